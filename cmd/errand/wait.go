package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// wait prints the request's final event, whether it is already stored or arrives within
// timeout. The error is that of the request, or says that there is no outcome.
//
// It reads the request's history from the stream: a subscription would also get events
// that the server then refused.
func (r *request) wait(ctx context.Context, b broker, timeout time.Duration, c console) error {
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	// An unreadable request, and one whose id belongs to another request, is reported
	// under its position in the stream.
	filters := []string{r.op.Filter(r.position)}
	if r.id != r.position {
		filters = append(filters, r.op.Filter(r.id))
	}
	var scans []*bus.Scan
	for _, filter := range filters {
		scans = append(scans, &bus.Scan{Stream: bus.EventsOf(r.op), Filter: filter, Page: pageSize})
	}
	last := ""
	for again := true; again; again = retry.Pause(ctx, retry.Follow) {
		for _, scan := range scans {
			page, err := scan.Next(ctx, b.nc)
			if errors.Is(err, bus.ErrNoStream) {
				return r.noOutcome(ctx, timeout, last, err)
			}
			for _, m := range page { // after any other error it is asked again
				state := messages.StateOf(m.Subject)
				if !state.Final(r.op) {
					last = m.Subject
					continue
				}
				if !r.isOwn(m.Data) {
					continue
				}
				fmt.Fprintln(c.out, printable(m.Subject))
				fmt.Fprintln(c.out, pretty(m.Data))
				return verdict(r.op, state, m.Data)
			}
		}
	}
	return r.noOutcome(ctx, timeout, last, ctx.Err())
}

// isOwn reports whether a final event is about this request, and not about another one
// with the same id, which has a different fingerprint.
func (r *request) isOwn(data []byte) bool {
	var body struct {
		Fingerprint string `json:"fingerprint"`
	}
	_ = json.Unmarshal(data, &body) // without a fingerprint it counts as own
	return body.Fingerprint == "" || r.fingerprint == "" || body.Fingerprint == r.fingerprint
}

func (r *request) noOutcome(ctx context.Context, timeout time.Duration, last string, err error) error {
	switch {
	case errors.Is(err, bus.ErrNoStream):
		return fmt.Errorf("%s is published, but its outcome cannot be read: %w", r.id, unreadable(err))
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		where := "no program has started it; is one running?"
		if last != "" {
			where = "its last event is " + last + "."
		}
		return fmt.Errorf("no outcome within %v: %s The request stays in the queue. See errand watch --since 1h '%s'", timeout, where, r.op.Filter(r.id))
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted; the request stays in the queue. See errand watch --since 1h '%s'", r.op.Filter(r.id))
	}
	return fmt.Errorf("wait for the outcome of %s: %w", r.id, err)
}

// verdict is nil for a good outcome, otherwise an error that says what went wrong.
func verdict(op messages.Operation, state messages.State, data []byte) error {
	var b struct {
		Outcome              messages.State
		Reason, Message      string
		Recipients, Accepted int
	}
	_ = json.Unmarshal(data, &b) // missing values are left out of the error
	if state == messages.Resolved {
		state = b.Outcome
	}
	why := ""
	if b.Reason != "" {
		why = ": " + b.Reason
	}
	if b.Message != "" {
		why += ": " + b.Message
	}
	switch state {
	case messages.Succeeded, messages.Accepted, messages.Listed, messages.Reported:
		return nil
	case messages.Partial:
		return fmt.Errorf("%s ended partial: %d of %d recipients accepted%s", op, b.Accepted, b.Recipients, printable(why))
	}
	return fmt.Errorf("%s ended %s%s", op, state, printable(why))
}

// pretty indents JSON and escapes what is not printable; other data is only made printable.
func pretty(data []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, data, "", "  ") != nil {
		return printable(string(data))
	}
	return escaped(b.String())
}
