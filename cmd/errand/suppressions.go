package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"errand/internal/bus"
	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

type suppressions struct {
	List   suppressed   `cmd:"" aliases:"ls" help:"List the last bounces and what people decided, or what is known of an address."`
	Add    suppress     `cmd:"" help:"Have nothing sent to an address."`
	Remove suppressNone `cmd:"" aliases:"rm" help:"Have an address written to again."`
}

type suppressed struct {
	output
	programs.RecipientKey
	Limit   uint   `default:"50" help:"At most the newest N; 0 for all."`
	Address string `arg:"" optional:"" help:"Only this address."`
}

func (*suppressed) Help() string {
	return `Lists from which addresses mail bounced for good, and whom people added or removed, newest first. Of an address the
newest line counts, if it is no older than SUPPRESS_BOUNCED of mail-consumer, which the last line says. Addresses
themselves are not stored: KEY is a keyed hash of one, and REQUEST the mail that bounced.

If mail-consumer has a RECIPIENT_KEY, pass the same here to ask for an address.

Examples:

    errand suppressions list
    errand suppressions list ann@example.com`
}

func (s *suppressed) Run(ctx context.Context, c console) error {
	given, err := s.Secrets()
	if err == nil && s.Address != "" {
		err = checkAddress(s.Address)
	}
	if err != nil {
		return err
	}
	return s.read(ctx, "suppressions", c, func(b broker, now time.Time) (listing, error) {
		filters := []string{">"}
		if s.Address != "" {
			filters = nil
			keys := (&bus.Secrets{Conn: b.Conn, Given: given}).KeysOf(ctx, s.Address)
			if len(keys) == 0 {
				return listing{}, act.ErrNoKeys
			}
			for _, k := range keys {
				filters = append(filters, bus.SuppressionFilter(k))
			}
		}
		var all []bus.Message
		for _, filter := range filters {
			scan := bus.Scan{Stream: bus.Suppressions, Filter: filter}
			some, err := scan.ToNewest(ctx, b.Conn, int(s.Limit))
			if err == nil && some {
				err = scan.Each(ctx, b.Conn, func(m bus.Message) bool { all = append(all, m); return true })
			}
			if err != nil {
				return listing{}, err
			}
		}
		programs, err := bus.AskStatus(ctx, b.Conn)
		l := listSuppressions(all, now)
		l.text = func(c console) { fmt.Fprintln(c.out, inspect.Suppressing(programs)) }
		return l, err
	})
}

func listSuppressions(all []bus.Message, now time.Time) listing {
	l := listing{head: []string{"TIME", "KEY", "WHY", "REQUEST"}, none: "none"}
	for _, m := range slices.Backward(all) {
		if s, ok := bus.ReadSuppression(m); ok {
			what := struct {
				Key mailkey.Key `json:"key"`
				bus.Suppression
			}{s.Key, s}
			l.add(strconv.FormatUint(m.Sequence, 10), what,
				cell{stamp(s.At.Time, now), dim}, cellOf(s.Key.String()), cellOf(s.Says()), cellOf(s.RequestID))
		}
	}
	return l
}

type oneAddress struct {
	acting
	programs.RecipientKey
	Address string `arg:"" help:"The address."`
}

type suppress struct{ oneAddress }

func (*suppress) Help() string {
	return `Has nothing sent to an address for as long as after a bounce (SUPPRESS_BOUNCED of mail-consumer). A request with suppress:
false is sent to it all the same.

Examples:

    errand suppressions add ann@example.com --why 'asked by telephone'`
}

func (s *suppress) Run(ctx context.Context, c console) error {
	return s.act(ctx, c, false, "is suppressed, within 10 seconds")
}

type suppressNone struct{ oneAddress }

func (*suppressNone) Help() string {
	return `Has an address written to again that is suppressed, until the next bounce.

Examples:

    errand suppressions remove ann@example.com --why 'the mailbox is there again'`
}

func (s *suppressNone) Run(ctx context.Context, c console) error {
	return s.act(ctx, c, true, "is written to again, within 10 seconds")
}

func (s *oneAddress) act(ctx context.Context, c console, removed bool, says string) error {
	if err := checkAddress(s.Address); err != nil {
		return err
	}
	given, err := s.Secrets()
	if err != nil {
		return err
	}
	return s.do(ctx, "suppressions", c, true, func(person act.Person) error {
		err := person.Suppress(ctx, (&bus.Secrets{Conn: person.Conn, Given: given}).KeysOf(ctx, s.Address), removed, s.Why)
		if err != nil {
			return err
		}
		programs, err := bus.AskStatus(ctx, person.Conn)
		fmt.Fprintf(c.out, "%s %s\n%s\n", s.Address, says, inspect.Suppressing(programs))
		return err
	})
}

func checkAddress(text string) error {
	if _, err := messages.ParseRecipient(text); err != nil {
		return invalid("ADDRESS", "%v", err)
	}
	return nil
}
