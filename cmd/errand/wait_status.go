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

// status is what is known of a request that has no outcome; "" when NATS does not answer.
// It says what was read and no more: what this user may not ask is unknown.
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
		return fmt.Sprintf("started at %s, attempt %d; what came of the call is known by %s", at, b.Attempt, clock(b.Deadline.Time))
	case messages.Deferred:
		return fmt.Sprintf("deferred at %s: %s: %s; it goes on after %s", at, b.Reason, b.Message, clock(b.NotBefore.Time)) + w.held(ctx)
	case messages.Reopened:
		return fmt.Sprintf("reopened at %s by %s; it is run again", at, b.By)
	}
	return fmt.Sprintf("its last event is %s, at %s", last.Subject, at)
}

func clock(t time.Time) string { return t.Local().Format(time.TimeOnly) }

// queued is where a request without any event is.
func (w *waiting) queued(ctx context.Context) string {
	since := "no event yet; published at " + clock(w.published) + ", "
	q := bus.QueueOf(w.receipt.Operation)
	if w.denied {
		return since + "whether it is queued is unknown: this user may not ask the queue " + q.Name
	}
	info, err := w.b.queue(ctx, q)
	switch {
	case errors.Is(err, nats.ErrPermissionViolation), errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		w.denied = true
		return w.queued(ctx)
	case err != nil:
		return since + "whether it is queued is unknown: NATS does not answer"
	case info.Paused:
		return fmt.Sprintf("%spaused: %s delivers nothing before %s", since, q.Name, clock(time.Now().Add(info.PauseRemaining)))
	case w.receipt.Sequence <= info.AckFloor.Stream:
		return since + "a program settled it before; its id has the events of other contents now, or none are kept"
	case w.receipt.Sequence <= info.Delivered.Stream:
		return since + "a program took it"
	case info.NumPending == 0:
		return since + q.Name + " counts nothing that waits: it was only just stored, or is taken out"
	}
	ahead := min(info.NumPending, w.receipt.Sequence-info.Delivered.Stream) - 1
	text := fmt.Sprintf("%squeued in %s with at most %d ahead of it, %d in flight", since, q.Name, ahead, info.NumAckPending)
	if info.NumWaiting == 0 && info.NumAckPending == 0 {
		text += "; nobody consumes: no program asks for work"
	}
	return text
}

// held is what the programs say of the operation, if they say something.
func (w *waiting) held(ctx context.Context) string {
	var programs []bus.ProgramStatus
	_ = w.b.quiet(func() { programs, _ = bus.AskStatus(ctx, w.b.nc) }) // nobody answers whoever may not ask
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
