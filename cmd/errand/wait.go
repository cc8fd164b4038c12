package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"errand/internal/bus"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/internal/style"
	client "errand/pkg/errand"
	"errand/pkg/messages"
)

// waiting waits for the outcome of a published request and prints it. Until then it reports the status on standard error.
type waiting struct {
	b       broker
	receipt client.Receipt
	timeout time.Duration
	console console
	json    bool
}

// Exit statuses of errand publish --wait, in addition to 0, 1 and 2.
const (
	exitUnsure  = 3 // uncertain or partial
	exitNotDone = 4 // no outcome in time
)

// firstStatus and nextStatus are the pauses between reports.
const (
	firstStatus = time.Second
	nextStatus  = 5 * time.Second
	statusWait  = 3 * time.Second // for the answers
)

func (w *waiting) run(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, w.timeout)
	defer stop()
	said := ""
	for silence := firstStatus; ; silence = nextStatus {
		round, cancel := context.WithTimeout(ctx, silence)
		outcome, err := client.New(w.b.JS).Wait(round, w.receipt)
		cancel()
		switch {
		case err == nil:
			return w.show(ctx, outcome)
		case errors.Is(err, client.ErrNoEvents):
			err = fmt.Errorf("%s is published, but its outcome cannot be read: %w", w.receipt.RequestID, unreadable(bus.ErrNoStream))
			return &programs.Exit{Status: exitNotDone, Err: err}
		case ctx.Err() != nil:
			return w.notDone(ctx, said)
		}
		if status := w.status(ctx); status != said && status != "" {
			fmt.Fprintln(w.console.errs, printable(status))
			said = status
		}
	}
}

func (w *waiting) notDone(ctx context.Context, said string) error {
	after := fmt.Sprintf("no outcome within %v", w.timeout)
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		after = "interrupted"
	}
	said = cmp.Or(w.status(context.WithoutCancel(ctx)), said, "nothing is known of it")
	return &programs.Exit{Status: exitNotDone, Err: fmt.Errorf("%s: %s. The request goes on by itself. See errand watch --since 1h '%s'",
		after, said, w.receipt.Operation.Filter(w.receipt.RequestID))}
}

// status says where a request without an outcome is and why, as errand show does; "" if NATS does not answer or does not let
// this user know.
func (w *waiting) status(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, statusWait)
	defer cancel()
	var stories []inspect.Story
	w.b.quiet(func() { stories, _ = w.b.Stories(ctx, w.receipt.RequestID, time.Now()) })
	for _, s := range stories {
		switch {
		case s.Operation != w.receipt.Operation && s.State != inspect.NeverSeen:
		case s.State.Final(s.Operation):
			return "it was settled before; its events belong to other contents"
		case s.Waits == nil:
			return s.Says
		case s.Waits.Next == nil, s.Waits.Next.Before(time.Now()):
			return s.Waits.Says()
		default:
			return s.Waits.Says() + "; it goes on by " + s.Waits.Next.Local().Format(time.TimeOnly)
		}
	}
	return ""
}

// show prints the final event, and the records of a listing. It returns the request's error.
func (w *waiting) show(ctx context.Context, outcome client.Outcome) error {
	e := outcome.About()
	var records []json.RawMessage
	if e.State == messages.Listed {
		var err error
		if records, err = w.records(ctx); err != nil {
			return fmt.Errorf("%s is listed, but its pages cannot be read: %w", e.RequestID, err)
		}
	}
	if w.json {
		line := struct {
			inspect.Event
			Records *[]json.RawMessage `json:"records,omitempty"`
		}{Event: inspect.EventOf(bus.Message{Time: e.Time, Sequence: e.Sequence, Subject: e.Subject, Header: e.Header, Data: e.Data})}
		if e.State == messages.Listed {
			line.Records = &records
		}
		fmt.Fprintln(w.console.out, encoded(line, false))
		return verdict(outcome)
	}
	fmt.Fprintln(w.console.out, printable(e.Subject))
	fmt.Fprintln(w.console.out, pretty(e.Data))
	for _, record := range records {
		fmt.Fprintln(w.console.out, pretty(record))
	}
	return verdict(outcome)
}

// records returns the records of the listing's pages, without older pages of other contents under the same id.
func (w *waiting) records(ctx context.Context) (records []json.RawMessage, err error) {
	records = []json.RawMessage{}
	pages := bus.Scan{Stream: bus.MandateEvents, Filter: w.receipt.Operation.Subject(messages.Page, w.receipt.RequestID)}
	err = pages.Each(ctx, w.b.Conn, func(m bus.Message) bool {
		var page messages.TransactionsPage
		if messages.DecodeEvent(m.Data, &page) == nil && page.Fingerprint == w.receipt.Fingerprint {
			records = append(records, page.Records...)
		}
		return true
	})
	return records, err
}

// verdict returns nil for a good outcome, otherwise an error with the exit status.
func verdict(outcome client.Outcome) error {
	e := outcome.About()
	err := fmt.Errorf("%s: %s", e.Operation, printable(inspect.EndedAs(e.State, e.Data)))
	switch o := outcome.(type) {
	case client.Succeeded:
		return nil
	case client.Failed, client.Erased:
		return err
	case client.Resolved:
		switch o.Became {
		case messages.Succeeded, messages.Accepted:
			return nil
		case messages.Failed:
			return err
		}
	}
	return &programs.Exit{Status: exitUnsure, Err: err}
}

// pretty indents JSON and escapes characters that are not printable. Other data is only made printable.
func pretty(data []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, data, "", "  ") != nil {
		return printable(string(data))
	}
	return style.Escape(b.String())
}
