package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"errand/internal/bus"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/internal/style"
	"errand/pkg/messages"
)

type find struct {
	output
	programs.RecipientKey
	Word  string        `arg:"" name:"word" help:"A request id, an order number, an address, or a payer's id, name or telephone number."`
	Since programs.When `placeholder:"TIME" help:"Only events since then: 24h, 3d, or a date; default: all."`
}

func (*find) Help() string {
	return `Finds requests by id or by a whole value that they name: an order number, the address of a recipient or a
payer, a payer's id, name or telephone number. Case, spaces and the dashes of numbers do not matter. For mail it shows
the last state of that address in the sending log. Records of the sending log and of the transaction list that match no
request are listed below. The exit status is 1 if nothing is found.

A console that runs looks it up at once. Without one it reads everything that is kept, which takes a minute or two for
a million requests, and says how far it is. --since reads what is newer, and asks no console.

If mail-consumer has a RECIPIENT_KEY, pass the same here; otherwise a user who may act finds recipients without it. Who may not is
told, and finds them only in the rows of the sending log.

Examples:

    errand find DD001
    errand find "Tan & Sons"
    errand find ann@example.com --since 3d -o name
    RECIPIENT_KEY_FILE=/run/secrets/recipient errand find ann@example.com`
}

func (f *find) Run(ctx context.Context, c console) error {
	if strings.TrimSpace(f.Word) == "" {
		return invalid("WORD", "is empty")
	}
	secrets, err := f.Secrets()
	if err != nil {
		return err
	}
	return f.read(ctx, "find", c, func(b broker, now time.Time) (listing, error) {
		word, all := strings.TrimSpace(f.Word), &bus.Secrets{Conn: b.Conn, Given: secrets}
		var known bus.Known
		hint, since := "", f.Since.From(now)
		if since.IsZero() {
			hint = "; a console that runs finds it at once"
			b.quiet(func() { known, _ = bus.AskFind(ctx, b.Conn, all.Sought(ctx, word)) })
		}
		b.Progress = progress(c, hint)
		found, err := b.Find(ctx, word, all, since, known)
		writeUnread(c, found.Unread)
		return listFound(found, now), err
	})
}

// progress reports how far a long search is, with a hint.
func progress(c console, hint string) func(read, of uint64) {
	var one sync.Mutex
	began := time.Now()
	next := began.Add(time.Second)
	return func(read, of uint64) {
		one.Lock()
		defer one.Unlock()
		now := time.Now()
		if now.Before(next) {
			return
		}
		next = now.Add(5 * time.Second)
		left := float64(now.Sub(began)) / float64(read) * float64(max(of, read)-read)
		fmt.Fprintf(c.errs, "errand: read %d of %d messages, about %s left%s\n", read, of, style.Span(time.Duration(left)), hint)
	}
}

func listFound(found inspect.Finding, now time.Time) listing {
	l := listing{head: []string{"TIME", "OPERATION", "STATE", "REQUEST", "AS", "MAIL"}, whole: found, none: "No request."}
	for _, r := range found.Found {
		mail := r.Mail
		if r.MailTime != nil {
			mail += ", " + stamp(r.MailTime.Time, now)
		}
		l.add(r.RequestID, r, cell{stamp(r.Time.Time, now), dim}, cellOf(inspect.Short(r.Operation)), stateCell(r.State),
			cellOf(r.RequestID), cellOf(r.As), cellOf(mail))
	}
	l.text = func(c console) {
		var rows [][]cell
		for _, e := range slices.Concat(found.Rows, found.Records) {
			s := messages.ParseSubject(e.Subject)
			rows = append(rows, []cell{{stamp(e.Time.Time, now), dim}, cellOf(inspect.Short(s.Operation)), stateCell(s.State),
				cellOf(e.Candidates())})
		}
		if len(rows) > 0 {
			fmt.Fprintln(c.out, "\nIn the sending log and the transaction list, and of no request with certainty:")
			c.table([]string{"", "", "", ""}, rows)
		}
		if found.Hidden != nil {
			fmt.Fprintln(c.out, "\nThere may be more:", found.Hidden)
		}
	}
	switch {
	case len(found.Found)+len(found.Rows)+len(found.Records) > 0:
	case found.Hidden != nil:
		l.failed = fmt.Errorf("not found in what could be read: %w", found.Hidden)
	default:
		l.failed = errors.New("not found: no queued request and no stored event names it")
	}
	return l
}

// writeUnread says of which secrets the keys of recipients are that were not searched.
func writeUnread(c console, unread []string) {
	for _, id := range unread {
		fmt.Fprintf(c.errs, "errand: records of recipients were not searched: "+
			"this user may not read their secret %s, and RECIPIENT_KEY is not it\n", printable(id))
	}
}
