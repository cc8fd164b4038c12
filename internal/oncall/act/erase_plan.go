package act

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/names"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

// Erasure is what is stored of a request that has ended, and is removed with its data.
type Erasure struct {
	RequestID   string             `json:"request_id"`
	Operation   messages.Operation `json:"operation"`
	As          string             `json:"as,omitempty"` // what it names the person as
	State       messages.State     `json:"state"`        // "" when its history is gone
	Events      int                `json:"events"`       // of it and of its batches
	Rows        int                `json:"rows"`         // of the sending log
	DeadLetters int                `json:"dead_letters"`
	// Recipients of a message, of one that never began those in its dead letter; where they are more than one it is of
	// others, too.
	Recipients int `json:"recipients,omitempty"`
	// Refused is why it cannot be erased now; "" when it can.
	Refused string `json:"refused,omitempty"`
	// Awaits is until when the sending log may show rows that it has not shown yet: those would
	// be published again, as rows that match no request.
	Awaits *messages.Time `json:"awaits,omitempty"`

	subjects map[string][]string // what is purged, by stream
	batches  []string            // BatchIDs
	dead     []uint64
}

// rowsCome is how long after the end of a message rows of it may come.
const rowsCome = 6 * 24 * time.Hour

// ErasureOf is what is stored of a request. Errors: ErrNothingDone when nothing is.
func ErasureOf(ctx context.Context, r inspect.Reader, op messages.Operation, id string, now time.Time) (e Erasure, err error) {
	e = Erasure{RequestID: id, Operation: op, subjects: map[string][]string{}}
	if !inspect.IsID(id) {
		return e, fmt.Errorf("%w: %q is not a valid request id", ErrNothingDone, id)
	}
	last, there, err := bus.Last(ctx, r.Conn, bus.EventsOf(op), op.Filter(id))
	if err != nil {
		return e, err
	}
	if there {
		e.State = messages.StateOf(last.Subject)
	}
	count := func(stream, filter string) {
		if err == nil {
			err = e.count(ctx, r.JS, stream, filter)
		}
	}
	count(bus.EventsOf(op), op.Filter(id))
	if op == messages.Enroll {
		for _, about := range []messages.Operation{messages.Application, messages.Deduction, messages.Callback} {
			count(bus.EventsOf(about), about.Filter(id))
		}
	}
	if op.HasLanes() {
		count(bus.ScheduledOf(op), bus.ScheduledFilter(op, id))
	}
	if op == messages.Send {
		count(bus.MailEvents, messages.Batch.Filter(id+".*"))
		count(bus.MailDeliveries, messages.Delivery.Filter(id))
	}
	began := time.Time{} // it has no earlier dead letter; one without a history, or that was reopened without one, may have any
	if err == nil {
		err = bus.EachOf(ctx, r.Conn, bus.EventsOf(op), op.Filter(id), func(m bus.Message) bool {
			if messages.StateOf(m.Subject) != messages.Reopened {
				began = m.Time.Add(-time.Second) // another server's clock may be behind
			}
			return false
		})
	}
	if err == nil {
		err = e.deadLetters(ctx, r.Conn, began)
	}
	if err != nil {
		return e, err
	}
	// Callbacks of a mandate come for years, rows of a message for days; a repeat leaves a dead letter.
	if !there && e.Events+e.Rows+e.DeadLetters == 0 {
		return e, fmt.Errorf("%w: no event of %s %s is kept; one that waits is cancelled first", ErrNothingDone, op, id)
	}
	if op == messages.Send {
		if err := e.message(ctx, r.Conn, last, now); err != nil {
			return e, err
		}
		if err := e.bounces(ctx, r.Conn, began); err != nil {
			return e, err
		}
	}
	waits, err := r.Waiting(ctx, op, id)
	long, unsearched := errors.AsType[*inspect.SkippedError](err)
	switch {
	case err != nil && !unsearched:
		return e, err
	case there && !e.State.Final(op):
		e.Refused = "it is " + string(e.State) + ": cancel it first, or wait for its end"
	case len(waits) > 0:
		e.Refused = "its queue has a message of it, which goes when a program takes it"
	case unsearched:
		e.Refused = long.Error()
	}
	return e, nil
}

func (e *Erasure) count(ctx context.Context, js jetstream.JetStream, stream, filter string) error {
	info, err := bus.StreamInfo(ctx, js, stream, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	for subject, n := range info.State.Subjects {
		about := messages.ParseSubject(subject)
		if about.Operation == messages.Batch {
			e.batches = append(e.batches, messages.BatchID(about.ID, about.Batch))
		}
		if about.State == messages.Erased {
			continue
		}
		e.subjects[stream] = append(e.subjects[stream], subject)
		if about.Operation == messages.Delivery {
			e.Rows += int(n)
		} else {
			e.Events += int(n)
		}
	}
	slices.Sort(e.batches)
	e.batches = slices.Compact(e.batches)
	return nil
}

// message finds out to how many a message was, and whether all its rows have come.
func (e *Erasure) message(ctx context.Context, nc *nats.Conn, last bus.Message, now time.Time) error {
	accepted := 0
	for _, state := range []messages.State{messages.Started, e.State} { // some outcomes do not say it
		m, there, err := bus.Last(ctx, nc, bus.MailEvents, messages.Send.Subject(state, e.RequestID))
		if err != nil {
			return err
		}
		if there {
			f, _ := history.ReadFacts(m.Data) // what cannot be read says nothing
			e.Recipients, accepted = cmp.Or(f.Recipients, e.Recipients), cmp.Or(f.Accepted, accepted)
		}
	}
	m, there, err := bus.Last(ctx, nc, bus.MailDeliveries, messages.Delivery.Subject(messages.Summary, e.RequestID))
	if err != nil {
		return err
	}
	var rows messages.SummaryBody
	if there {
		_ = json.Unmarshal(m.Data, &rows)
	}
	until := last.Time.Add(rowsCome)
	complete := there && rows.Accepted > 0 && rows.Delivered+rows.Bounced >= max(rows.Accepted, accepted)
	maySend := e.State == messages.Accepted || e.State == messages.Partial || e.State == messages.Uncertain || e.State == messages.Resolved
	if maySend && !complete && now.Before(until) {
		e.Awaits = &messages.Time{Time: until}
	}
	return nil
}

// bounces finds the addresses that are suppressed since the message bounced from them. Their keys are made with a secret that who
// erases may not know, so it reads what was stored since the message began: log-poller stores a suppression before its row, which
// may follow much later, if log-poller dies between them.
func (e *Erasure) bounces(ctx context.Context, nc *nats.Conn, began time.Time) error {
	if e.Awaits == nil && !slices.Contains(e.subjects[bus.MailDeliveries], messages.Delivery.Subject(messages.Bounced, e.RequestID)) {
		return nil
	}
	err := bus.Scan{Stream: bus.Suppressions, Filter: ">", Since: began}.Each(ctx, nc, func(m bus.Message) bool {
		if s, ok := bus.ReadSuppression(m); ok && s.RequestID == e.RequestID {
			e.subjects[bus.Suppressions] = append(e.subjects[bus.Suppressions], m.Subject)
		}
		return true
	})
	if errors.Is(err, bus.ErrNoStream) {
		return nil
	}
	return err
}

func (e *Erasure) deadLetters(ctx context.Context, nc *nats.Conn, since time.Time) error {
	scan := bus.Scan{Stream: bus.DeadLetters, Filter: bus.DeadOf(e.Operation), Since: since}
	err := scan.Each(ctx, nc, func(m bus.Message) bool {
		if m.Header.Get(bus.HeaderRequestID) != e.RequestID {
			return true
		}
		e.dead = append(e.dead, m.Sequence)
		if e.Operation == messages.Send {
			e.Recipients = max(e.Recipients, recipientsIn(m.Data))
		}
		return true
	})
	e.DeadLetters = len(e.dead)
	return err
}

func recipientsIn(body []byte) int {
	named := map[string]struct{}{}
	names.Each(messages.Send, body, func(n names.Name) bool {
		if n.As == names.Recipient {
			named[n.Key] = struct{}{}
		}
		return true
	})
	return len(named)
}

// Says is what is removed, in words.
func (e Erasure) Says() string {
	return fmt.Sprintf("%s; remove %d events, %d rows of the sending log, %d dead letters",
		cmp.Or(string(e.State), "its history is gone"), e.Events, e.Rows, e.DeadLetters)
}
