package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/pkg/messages"
)

// find looks for requests by what they name.
type find struct {
	NATS access `embed:"" group:"nats"`
	output
	programs.RecipientKey
	Word  string `arg:"" name:"word" help:"A request id, an order number, an e-mail address, or a payer's id, name or telephone number."`
	Since when   `placeholder:"TIME" help:"Look at events since then alone: 24h, 3d, or a date. Default: all that are kept."`
}

// Help is shown by --help in addition to the flags.
func (*find) Help() string {
	return `Finds requests by their id or by a whole value that they name: an order number, the address of a recipient or a payer, a payer's id, name or telephone number. Case and spaces do not matter. Of mail it shows what the sending log last said of that address; records of the sending log and of the transaction list that match no request are listed below. The exit status is 1 when nothing is found.

If mail-consumer has a RECIPIENT_KEY, give the same here: without it a recipient is found only by the rows of the sending log.

Examples:

    errand find DD001
    errand find "Tan & Sons"
    errand find ann@example.com
    errand find ann@example.com --since 3d -o name
    RECIPIENT_KEY_FILE=/run/secrets/recipient errand find ann@example.com`
}

// Run finds.
func (f *find) Run(ctx context.Context) error { return f.run(ctx, standard()) }

func (f *find) run(ctx context.Context, c console) error {
	if strings.TrimSpace(f.Word) == "" {
		return &programs.Invalid{Variable: "WORD", Problem: "is empty"}
	}
	secrets, err := f.Secrets()
	if err != nil {
		return err
	}
	return f.read(ctx, f.NATS, "find", c, func(b broker, c console, now time.Time) error {
		found, err := b.reader().Find(ctx, strings.TrimSpace(f.Word), secrets, f.Since.from(now))
		if err != nil {
			return err
		}
		return f.write(c, found, now)
	})
}

func (f *find) write(c console, found inspect.Finding, now time.Time) error {
	l := listing{head: []string{"TIME", "OPERATION", "STATE", "REQUEST", "AS", "MAIL"}, whole: found, none: "No request."}
	for _, r := range found.Found {
		mail := r.Mail
		if r.MailTime != nil {
			mail += ", " + stamp(r.MailTime.Time, now)
		}
		l.rows = append(l.rows, []cell{{stamp(r.Time.Time, now), dim}, cellOf(inspect.Short(r.Operation)), stateCell(r.State),
			cellOf(r.RequestID), cellOf(r.As), {mail, mailColour(mail)}})
		l.names, l.values = append(l.names, r.RequestID), append(l.values, r)
	}
	f.show(c, l)
	if len(found.Rows) > 0 && f.Output == "table" {
		fmt.Fprintln(c.out, "\nRows of the sending log that no request is sure to be meant by:")
		c.table([]string{"", "", ""}, unmatchedRows(found.Rows, now))
	}
	if len(found.Records) > 0 && f.Output == "table" {
		fmt.Fprintln(c.out, "\nRecords of the transaction list that no request is sure to be meant by:")
		c.table([]string{"", "", "", ""}, unmatchedRows(found.Records, now))
	}
	writeUnread(c, found.Unread)
	if len(found.Found)+len(found.Rows)+len(found.Records) == 0 {
		if found.Hidden != nil {
			return fmt.Errorf("not found in what this user may read: %w", found.Hidden)
		}
		return errors.New("not found: no request that waits and no event that is kept names it")
	}
	return nil
}

// writeUnread says how many records of recipients were made with secrets that are not known here.
func writeUnread(c console, unread map[string]int) {
	for _, id := range slices.Sorted(maps.Keys(unread)) {
		fmt.Fprintf(c.errs, "errand: %d records of recipients have keys of the secret %s: give it as RECIPIENT_KEY to look into them\n", unread[id], printable(id))
	}
}

func mailColour(mail string) colour {
	state, _, _ := strings.Cut(mail, " ")
	return colourOf(messages.State(strings.TrimRight(state, ",")))
}

// unmatchedRows are rows of the sending log or records of the transaction list that no request is certain to be meant by.
func unmatchedRows(events []inspect.Event, now time.Time) (cells [][]cell) {
	for _, e := range events {
		s := messages.ParseSubject(e.Subject)
		row := []cell{{stamp(e.Time.Time, now), dim}}
		if s.Operation != messages.Delivery {
			row = append(row, cellOf(inspect.Short(s.Operation)))
		}
		cells = append(cells, append(row, stateCell(s.State), cellOf(candidatesOf(e))))
	}
	return cells
}

// candidatesOf are the requests that a row or a record may be of.
func candidatesOf(e inspect.Event) string {
	var body messages.DeliveryBody
	_ = messages.DecodeEvent(e.Message.Data, &body) // it could be read before
	if len(body.Match.Candidates) == 0 {
		return "of no request"
	}
	return "of one of " + strings.Join(body.Match.Candidates, ", ")
}
