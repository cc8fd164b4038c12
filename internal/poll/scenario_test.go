package poll

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"errand/pkg/messages"
)

// mailConsumer holds the events of the mail consumer about its requests and calls.
type mailConsumer struct {
	mu        sync.Mutex
	sent      []timedRecord
	outcomes  []timedRecord
	resolved  []*messages.SendResolved
	resolving int // sequence of the event that was resolved last
}

type timedRecord struct {
	Record
	at time.Time
}

func (o *mailConsumer) put(op messages.Operation, state messages.State, id string, body messages.Body) {
	e := messages.Event{Operation: op, State: state, ID: id, Body: body}
	data, err := e.Encode()
	if err != nil {
		panic(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	list := &o.outcomes
	if op == messages.Log {
		list = &o.sent
	}
	*list = append(*list, timedRecord{Record{Subject: e.Subject(), Sequence: uint64(len(*list) + 1), Body: data}, time.Now()})
}

// mailConsumerReader is how far one poller has read them.
type mailConsumerReader struct {
	*mailConsumer
	calls, events int
}

func (r *mailConsumerReader) Requests(_ context.Context, since time.Time) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for ; r.calls < len(r.sent); r.calls++ {
			if f := r.sent[r.calls]; !f.at.Before(since) && !yield(f.Record, nil) {
				return
			}
		}
		for ; r.events < len(r.outcomes); r.events++ {
			if f := r.outcomes[r.events]; !f.at.Before(since) && !yield(f.Record, nil) {
				return
			}
		}
	}
}

func (r *mailConsumerReader) Resolve(_ context.Context, e messages.Event, over uint64) error {
	body := e.Body.(*messages.SendResolved)
	r.put(messages.Send, messages.Resolved, e.ID, body)
	r.resolved, r.resolving = append(r.resolved, body), int(over)
	return nil
}

// scenario is a sending log, the requests behind it, and the published events.
type scenario struct {
	*world
	consumer *mailConsumer
}

func inScenario(t *testing.T, f func(s *scenario)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, upstream: &upstream{order: newestFirst, random: rand.New(rand.NewPCG(1, 1))}, store: &store{}}
		s := &scenario{world: w, consumer: &mailConsumer{}}
		s.restart()
		f(s)
	})
}

// restart replaces the poller by a new process.
func (s *scenario) restart() {
	s.sink = &sink{store: s.store}
	s.poller = s.upstream.poller(s.T, s.sink, 50)
	s.poller.Interval, s.poller.Overlap = 5*time.Second, time.Minute
	s.poller.Reports = Reports{Requests: &mailConsumerReader{mailConsumer: s.consumer}, ReportAfter: 72 * time.Hour, ConcludeAfter: time.Hour}
}

// run lets a new poller sweep for a while.
func (s *scenario) run(d time.Duration) {
	s.Helper()
	s.sink = &sink{store: s.store}
	s.poller.Sink, s.poller.Requests = s.sink, &mailConsumerReader{mailConsumer: s.consumer}
	ctx, stop := context.WithTimeout(s.Context(), d)
	defer stop()
	if err := s.poller.Run(ctx); err != nil {
		s.Fatal(err)
	}
}

func now() messages.Time { return messages.Time{Time: time.Now()} }

// keysOf returns recipients in the format of the record of a call.
func keysOf(to ...string) (keys []byte) {
	for _, text := range to {
		keys = messages.AppendKey(keys, keyOf(text))
	}
	return keys
}

// calls begins a call for a batch; it takes a second.
func (s *scenario) calls(id string, number, first int, to ...string) {
	s.Helper()
	s.consumer.put(messages.Log, messages.Sent, messages.BatchID(id, number), &messages.SentBody{Common: messages.Common{RequestID: id, At: now()},
		Batch: number, First: first, Count: len(to), Begin: now(), Until: messages.Time{Time: time.Now().Add(35 * time.Second)}, Keys: keysOf(to...)})
	time.Sleep(time.Second)
}

func (s *scenario) started(id string, recipients, batches int) {
	s.consumer.put(messages.Send, messages.Started, id, &messages.SendStarted{Common: messages.Common{RequestID: id, At: now()}, Fingerprint: "fingerprint of " + id, Recipients: recipients, Batches: batches})
}

func (s *scenario) ends(id string, state messages.State, recipients, batches, accepted int, unsettled ...messages.Unsettled) {
	s.consumer.put(messages.Send, state, id, &messages.SendOutcome{Common: messages.Common{RequestID: id, At: now()}, Recipients: recipients, Batches: batches, Accepted: accepted,
		Unsettled: unsettled, UnsettledCount: len(unsettled)})
}

// waits defers a request of one batch whose call is of unknown fate.
func (s *scenario) waits(id string) {
	s.consumer.put(messages.Send, messages.Deferred, id, &messages.DeferredBody{Common: messages.Common{RequestID: id, At: now()}, Reason: messages.ReasonNoAnswer, AfterUnknown: true})
}

// sends makes a request of one batch that is accepted.
func (s *scenario) sends(id string, to ...string) {
	s.Helper()
	s.started(id, len(to), 1)
	s.calls(id, 1, 0, to...)
	s.ends(id, messages.Accepted, len(to), 1, len(to))
}

// row adds a row of a message that was accepted some time ago.
func (s *scenario) row(to string, ago time.Duration, state messages.State) *row {
	s.upstream.mu.Lock()
	defer s.upstream.mu.Unlock()
	s.made++
	r := &row{envelope: fmt.Sprintf("%011x%07x", time.Now().Add(-ago).UnixMilli(), s.made), to: to, created: time.Now().Truncate(time.Millisecond),
		states: []messages.State{state}, place: uint64(s.made)}
	s.rows, s.shown = append(s.rows, r), nil
	return r
}

func (s *scenario) becomes(r *row, state messages.State) {
	s.upstream.mu.Lock()
	defer s.upstream.mu.Unlock()
	r.states = append(r.states, state)
}

// eventsOf returns the events of a kind about a request, in order.
func (s *scenario) eventsOf(op messages.Operation, state messages.State, id string) (all []stored) {
	for _, e := range s.events {
		if e.Operation == op && e.State == state && e.ID == id {
			all = append(all, e)
		}
	}
	return all
}

// summaries returns the summaries of a request. No two may be the same or less than a
// minute apart.
func (s *scenario) summaries(id string) (all []string) {
	s.Helper()
	var last time.Time
	for _, e := range s.eventsOf(messages.Delivery, messages.Summary, id) {
		b := e.Body.(*messages.SummaryBody)
		text := fmt.Sprintf("%d of %d: %d delivered, %d deferred, %d bounced, %d unknown, %d queued, final %t",
			b.Accepted, b.Recipients, b.Delivered, b.Deferred, b.Bounced, b.Unknown, b.Queued, b.Final)
		if e.at.Sub(last) < time.Minute || slices.Contains(all, text) {
			s.Errorf("%s: a summary %v after the previous one: %s", id, e.at.Sub(last), text)
		}
		all, last = append(all, text), e.at
	}
	return all
}

// concluded returns the conclusions for a batch.
func (s *scenario) concluded(id string, number int) (all []string) {
	for _, e := range s.eventsOf(messages.Log, messages.Concluded, messages.BatchID(id, number)) {
		b := e.Body.(*messages.ConcludedBody)
		all = append(all, fmt.Sprintf("%s, %d of %d", b.Outcome, b.Seen, b.Count))
	}
	return all
}

// overdue returns the places of a request's recipients that were reported as overdue.
func (s *scenario) overdue(id string) (all []string) {
	for _, e := range s.eventsOf(messages.Delivery, messages.Overdue, id) {
		b := e.Body.(*messages.OverdueBody)
		all = append(all, Place(b.Batch, b.Recipient))
	}
	slices.Sort(all)
	return all
}

// people returns n addresses.
func people(name string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s%d@example.test", name, i))
	}
	return all
}
