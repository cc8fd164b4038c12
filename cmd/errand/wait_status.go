package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	client "errand/pkg/errand"
	"errand/pkg/messages"
)

// status describes a request without an outcome, "" if NATS does not answer. It says only what was read: what this user may
// not read is unknown.
func (w *waiting) status(ctx context.Context) string {
	last, err := client.New(w.b.js).Last(ctx, w.receipt)
	if err != nil {
		return ""
	}
	b, _ := messages.ReadFacts(last.Data) // what cannot be read is left out
	at := clock(last.Time)
	switch last.State {
	case "":
		return w.queued(ctx) + w.held(ctx)
	case messages.Started:
		text := fmt.Sprintf("started at %s, attempt %d", at, b.Attempt)
		if fault := bus.NotStored(w.programs(ctx), w.receipt.Operation); fault != "" {
			return text + "; " + fault
		}
		return text + "; the result of the call is known by " + clock(b.Deadline.Time)
	case messages.Deferred:
		return fmt.Sprintf("deferred at %s: %s: %s; it continues after %s", at, b.Reason, b.Message, clock(b.NotBefore.Time)) + w.held(ctx)
	case messages.Reopened:
		return fmt.Sprintf("reopened at %s by %s; it runs again", at, b.By) + w.held(ctx)
	}
	return fmt.Sprintf("its last event is %s, at %s", last.Subject, at)
}

func clock(t time.Time) string { return t.Local().Format(time.TimeOnly) }

// queued describes a request without an event.
func (w *waiting) queued(ctx context.Context) string {
	since := "no event yet; published at " + clock(w.published) + ", "
	q := bus.QueueOf(w.receipt.Operation)
	if w.denied {
		return since + "whether it is queued is unknown: this user may not read the queue " + q.Name
	}
	info, err := w.b.queue(ctx, q)
	switch {
	case errors.Is(err, nats.ErrPermissionViolation), errors.Is(err, nats.ErrNoResponders),
		errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		w.denied = true
		return w.queued(ctx)
	case err != nil:
		return since + "whether it is queued is unknown: NATS does not answer"
	case info.Paused:
		return fmt.Sprintf("%spaused: %s delivers nothing before %s", since, q.Name, clock(time.Now().Add(info.PauseRemaining)))
	case w.receipt.Sequence <= info.AckFloor.Stream:
		return since + "it was settled before; its events belong to other contents, or have expired"
	case w.receipt.Sequence <= info.Delivered.Stream:
		return since + "a worker has taken it"
	case info.NumPending == 0:
		return since + q.Name + " has no waiting request: this one was just stored, or was removed"
	}
	ahead := min(info.NumPending, w.receipt.Sequence-info.Delivered.Stream) - 1
	text := fmt.Sprintf("%squeued in %s with at most %d ahead of it, %d in flight", since, q.Name, ahead, info.NumAckPending)
	if info.NumWaiting == 0 && info.NumAckPending == 0 {
		text += "; nobody consumes: no program asks for work"
	}
	return text
}

// programs asks for the status of all programs; a user without permission gets no answer.
func (w *waiting) programs(ctx context.Context) (all []bus.ProgramStatus) {
	_ = w.b.quiet(func() { all, _ = bus.AskStatus(ctx, w.b.nc) })
	return all
}

// held says whether the operation's events are not stored, it is held, or its program not ready.
func (w *waiting) held(ctx context.Context) string {
	programs := w.programs(ctx)
	if fault := bus.NotStored(programs, w.receipt.Operation); fault != "" {
		return "; " + fault
	}
	if by, h := bus.HoldOf(programs, w.receipt.Operation); by != "" {
		return fmt.Sprintf("; held by %s since %s: %s", by, clock(h.Since.Time), h.Why)
	}
	for _, p := range programs {
		if p.Program == bus.ProgramOf(w.receipt.Operation) && len(p.Faults) > 0 {
			return fmt.Sprintf("; %s is not ready: %s", p.Program, strings.Join(p.Faults, "; "))
		}
	}
	return ""
}
