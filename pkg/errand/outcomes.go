package errand

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/messages"
)

// Outcomes is a durable consumer over the outcomes of all requests of one operation. It misses
// none, also while nobody runs it.
type Outcomes struct {
	// Only says which outcomes Run hands over; it acknowledges the others. So all that share a name have the same. Set it before Run.
	Only Filter

	consumer jetstream.Consumer
	js       jetstream.JetStream
}

// Filter selects outcomes; an empty field selects all.
type Filter struct {
	States  []messages.State  // such as messages.Failed; messages.Resolved for what became known later
	Reasons []messages.Reason // of Failed, Uncertain, and a Partial's first batch
	Prefix  string            // of the request id; a conflict is under <stream>-<sequence>, and counts by the id that it conflicts with
}

func (f Filter) selects(e Event) bool {
	said := readFacts(e)
	return (len(f.States) == 0 || slices.Contains(f.States, e.State)) &&
		(len(f.Reasons) == 0 || slices.Contains(f.Reasons, said.Reason)) &&
		strings.HasPrefix(cmp.Or(said.ConflictsWith, e.RequestID), f.Prefix)
}

// Outcomes makes the durable consumer of that name, or takes the one that is there: over every final event of op and the resolved
// ones that may follow. A new one begins with the outcomes stored since a time, or with the next one if since is zero: make it
// before you publish. It stays until it is deleted. Several processes, or calls of Run, share the outcomes of one name.
//
// Errors: ErrNoEvents, an invalid name or operation, or the server's.
func (c *Client) Outcomes(ctx context.Context, durable string, op messages.Operation, since time.Time) (*Outcomes, error) {
	stream, err := eventsOf(op)
	if err != nil {
		return nil, fmt.Errorf("outcomes: %w", err)
	}
	want := jetstream.ConsumerConfig{Durable: durable, Description: "outcomes of " + string(op), FilterSubjects: outcomeSubjects(op),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxDeliver: -1, DeliverPolicy: jetstream.DeliverNewPolicy}
	if !since.IsZero() {
		want.DeliverPolicy, want.OptStartTime = jetstream.DeliverByStartTimePolicy, &since
	}
	consumer, err := c.js.Consumer(ctx, stream, durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		consumer, err = c.js.CreateConsumer(ctx, stream, want)
		if errors.Is(err, jetstream.ErrConsumerExists) { // another process was faster, with another since
			consumer, err = c.js.Consumer(ctx, stream, durable)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("outcomes of %s: %w", op, noEvents(err))
	}
	have := consumer.CachedInfo().Config
	slices.Sort(have.FilterSubjects)
	if !slices.Equal(have.FilterSubjects, want.FilterSubjects) || have.AckPolicy != want.AckPolicy {
		return nil, fmt.Errorf("outcomes of %s: the consumer %s is there already, for %v: choose another name", op, durable, have.FilterSubjects)
	}
	return &Outcomes{consumer: consumer, js: c.js}, nil
}

// ackWait is how soon an outcome comes again after the process that had it was killed.
const ackWait = 30 * time.Second

// outcomeSubjects are the subjects of the events that end a request, in order.
func outcomeSubjects(op messages.Operation) (list []string) {
	for _, s := range []messages.State{messages.Accepted, messages.Failed, messages.Listed, messages.Partial, messages.Reported,
		messages.Resolved, messages.Succeeded, messages.Uncertain} {
		if s.Final(op) {
			list = append(list, op.Subject(s, "*"))
		}
	}
	return list
}

// Run calls handle with outcomes, one after the other, until ctx ends, which is not an error. It survives reconnects. Errors: the
// consumer was deleted, or the connection closed.
//
// An outcome is acknowledged when handle returns nil. After an error it comes again, in a second at first and a minute in the end,
// for ever; others go on meanwhile, so one may come after a newer one of its request. It also comes again when the process was
// killed: handle must bear to see an event twice, and knows it by its ce-id. However long handle works, others do not get it.
// Conflicts are among the outcomes: Failed with ReasonConflict.
func (o *Outcomes) Run(ctx context.Context, handle func(context.Context, Outcome) error) error {
	for {
		m, err := o.next(ctx)
		switch {
		case ctx.Err() != nil:
			if m != nil {
				_ = m.Nak() // another process gets it at once, and not after AckWait
			}
			_ = o.js.Conn().FlushTimeout(time.Second) // the last acknowledgement; if it is lost, the outcome comes again
			return nil
		case m != nil:
			err = o.settle(ctx, m, handle)
		case err != nil:
			err = o.ended(ctx, err)
		}
		if err != nil {
			return fmt.Errorf("outcomes: %w", err)
		}
	}
}

// next takes one outcome, nil if none comes for a while: more would wait for handle and run into AckWait.
func (o *Outcomes) next(ctx context.Context) (jetstream.Msg, error) {
	pull, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	taken, err := o.consumer.Fetch(1, jetstream.FetchContext(pull), jetstream.FetchHeartbeat(time.Second))
	if err != nil {
		return nil, err
	}
	select {
	case m := <-taken.Messages():
		return m, taken.Error()
	case <-ctx.Done():
	}
	_ = o.js.Conn().FlushTimeout(time.Second) // the server knows the pull then, and answers it right after
	select {
	case m := <-taken.Messages():
		return m, nil
	case <-time.After(10 * time.Millisecond):
	}
	stop()
	return <-taken.Messages(), nil
}

// ended is an error if there are no more outcomes to come. Otherwise a server or the consumer's leader is away for a while.
func (o *Outcomes) ended(ctx context.Context, err error) error {
	switch {
	case o.js.Conn().IsClosed():
		return nats.ErrConnectionClosed
	case errors.Is(err, jetstream.ErrConsumerDeleted), errors.Is(err, jetstream.ErrBadRequest):
		return err
	}
	_, err = o.consumer.Info(ctx)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(lastLook):
	}
	return nil
}

// settle calls handle with one outcome and acknowledges it, or has it sent again later.
func (o *Outcomes) settle(ctx context.Context, m jetstream.Msg, handle func(context.Context, Outcome) error) error {
	e, err := delivered(m)
	if err != nil {
		return err
	}
	if !o.Only.selects(e) {
		return m.Ack()
	}
	done := make(chan struct{})
	var kept sync.WaitGroup
	kept.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(ackWait / 3):
				_ = m.InProgress() // without it the outcome comes again
			}
		}
	})
	err = handle(ctx, e.Outcome())
	close(done)
	kept.Wait()
	if err != nil {
		return m.NakWithDelay(again(m))
	}
	return m.Ack()
}

// again is how long an outcome stays away whose handler failed.
func again(m jetstream.Msg) time.Duration {
	meta, err := m.Metadata()
	if err != nil || meta.NumDelivered > 6 {
		return time.Minute
	}
	return time.Second << (max(meta.NumDelivered, 1) - 1)
}
