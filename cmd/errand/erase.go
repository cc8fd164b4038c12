package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"errand/internal/bus"
	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/internal/style"
	"errand/internal/wire"
	"errand/pkg/messages"
)

type erase struct {
	acting
	format
	programs.RecipientKey

	IDs []string `arg:"" optional:"" name:"id" help:"Request ids."`
	Of  string   `placeholder:"WORD" help:"Everything that names this address, order number, payer id or other whole value."`
	Yes bool     `short:"y" help:"Do it; otherwise only the plan is shown."`
	Now bool     `help:"Also messages whose sending log is incomplete; erase later rows with --of."`
}

func (*erase) Help() string {
	return `Removes what is stored about a payer or a recipient: events of requests, batches and mandates (applications,
deductions, callbacks), dead letters, rows of the sending log, bounces, transaction lists. Without
--yes it only shows them. An event "erased" without data stays, so that the request's id is not run again for as long
as events are kept, and so does a record of who erased it and why.

It needs the user eraser of deploy/nats/emergency; no other user may remove anything. A request without an outcome
is refused: cancel it first. Copies of readers, backups, recipient lists in the object store and the services
themselves are not reached. If mail-consumer has a RECIPIENT_KEY, pass the same here, or recipients of what it sent
since are not found by their address.

--of reads everything that is kept, which takes a minute or two for a million requests; to see only what names somebody,
the console's Find answers at once. It refuses a request that is of other people, too: a message to several, or one of
another person; name its id to erase all of it.

Dead letters and single rows are overwritten on the servers' disks at once. Events are not: their bytes stay in
their file, which NATS drops when all that is stored in it has expired (--max-age).

Rows of the sending log that arrive after an erasure are published as unmatched. So a message is refused until its
rows are complete, unless --now is given; erase the rest with --of.

Examples:

    errand erase signup-1                                            # only shows it
    errand erase --of ann@example.com --yes --why 'request 17 to the data officer'`
}

func (e *erase) Run(ctx context.Context, c console) error {
	e.Of = strings.TrimSpace(e.Of)
	switch {
	case (len(e.IDs) > 0) == (e.Of != ""):
		return invalid("ID", "must be given, or --of, but not both")
	case slices.ContainsFunc(e.IDs, func(id string) bool { return !inspect.IsID(id) }):
		return invalid("ID", "must be request ids; the rest of what names somebody is erased by --of")
	case e.Of != "" && strings.Contains(wire.Fold(e.Why), wire.Fold(e.Of)):
		return invalid("--why", "must not name the person: it is kept for 400 days and cannot be removed")
	}
	secrets, err := e.Secrets()
	if err != nil {
		return err
	}
	e.As = cmp.Or(e.As, loggedIn()) // several people share the NATS user
	return e.do(ctx, "erase", c, e.Yes, func(person act.Person) error {
		found, err := e.traces(ctx, c, person, &bus.Secrets{Conn: person.Conn, Given: secrets})
		if err != nil {
			return err
		}
		e.write(c, found)
		if len(found.Requests)+len(found.Rows)+len(found.Suppressed) == 0 {
			return errors.New("nothing is stored")
		}
		if !e.Yes {
			fmt.Fprintln(c.errs, "nothing was removed: this needs --yes and --why")
			return nil
		}
		return e.remove(ctx, c, person, found)
	})
}

func (e *erase) traces(ctx context.Context, c console, person act.Person, secrets *bus.Secrets) (t act.Traces, err error) {
	now, reader := time.Now(), inspect.Reader{Conn: person.Conn, JS: person.JS, Progress: progress(c, "")}
	if e.Of != "" {
		t, err = act.TracesOf(ctx, reader, e.Of, secrets, now)
	}
	for _, id := range e.IDs {
		n := len(t.Requests)
		for _, op := range inspect.Operations {
			one, err := act.ErasureOf(ctx, reader, op, id, now)
			if err == nil {
				t.Requests = append(t.Requests, one)
			} else if !errors.Is(err, act.ErrNothingDone) {
				return t, err
			}
		}
		if len(t.Requests) == n {
			return t, fmt.Errorf("%s: it has no stored event; if it is queued, cancel it first", id)
		}
	}
	for i, one := range t.Requests {
		if one.Refused == "" && one.Awaits != nil && !e.Now {
			t.Requests[i].Refused = "rows of the sending log may arrive until " + one.Awaits.Local().Format(time.DateTime) +
				": erase it then, or see --now"
		}
	}
	return t, err
}

func (e *erase) write(c console, t act.Traces) {
	l := listing{head: []string{"OPERATION", "REQUEST", "NAMED AS", "STATE", "EVENTS", "ROWS", "DEAD", "REFUSED"}, whole: t}
	for _, r := range t.Requests {
		l.add(r.RequestID, r, cellOf(inspect.Short(r.Operation)), cellOf(r.RequestID), cellOf(cmp.Or(r.As, "request id")), cellOf(r.State),
			numberCell(r.Events), numberCell(r.Rows), numberCell(r.DeadLetters), cell{r.Refused, red})
	}
	l.text = func(c console) {
		if slices.ContainsFunc(t.Requests, func(r act.Erasure) bool { return r.Operation == messages.Transactions }) {
			fmt.Fprintln(c.out, "the pages of transaction lists also hold other people's records")
		}
		if len(t.Suppressed) > 0 {
			fmt.Fprintln(c.out, "what is stored of bounces from the address")
		}
		if n := len(t.Rows); n > 0 {
			fmt.Fprintf(c.out, "%s of the sending log without one of these requests\n", style.Plural(n, "row", "rows"))
		}
	}
	e.show(c, l)
	writeUnread(c, t.Unread)
}

func (e *erase) remove(ctx context.Context, c console, person act.Person, t act.Traces) error {
	var failed []error
	report := func(what string, err error) {
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", what, err))
			return
		}
		fmt.Fprintf(c.errs, "%s: erased\n", what)
	}
	left := 0
	for _, r := range t.Requests {
		what := inspect.Short(r.Operation) + " " + r.RequestID
		if r.Refused != "" {
			left++
			fmt.Fprintf(c.errs, "%s: not erased: %s\n", what, r.Refused)
			continue
		}
		report(what, person.Erase(ctx, r, e.Why))
	}
	if n := len(t.Rows); n > 0 {
		report(style.Plural(n, "row", "rows"), person.EraseRows(ctx, t.Rows, e.Why))
	}
	if len(t.Suppressed) > 0 {
		report("bounces from the address", person.EraseSuppressions(ctx, t.Suppressed, e.Why))
	}
	switch {
	case len(failed) > 0:
		return errors.Join(failed...)
	case left == len(t.Requests)+len(t.Rows)+len(t.Suppressed):
		return errors.New("nothing was erased")
	}
	fmt.Fprintln(c.errs, "not reached: copies of readers, backups, recipient lists, the services themselves; on the servers' disks the bytes "+
		"of events stay\nuntil all that is stored around them has expired (--max-age)")
	return nil
}
