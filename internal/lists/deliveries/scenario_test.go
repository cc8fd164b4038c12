package deliveries

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/history"
	"errand/internal/lists"
	"errand/internal/lists/sweep"
	"errand/internal/wire/mailkey"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// mailConsumer holds the events of the mail consumer about its requests and calls.
type mailConsumer struct {
	outcomes  []history.Entry
	resolved  []*messages.SendResolved
	resolving int // sequence of the event that was resolved last
}

func (o *mailConsumer) put(op messages.Operation, state messages.State, id string, body messages.Body) {
	e := messages.Event{Operation: op, State: state, ID: id, Body: body}
	data, err := e.Encode()
	if err != nil {
		panic(err)
	}
	o.outcomes = append(o.outcomes, history.Entry{Subject: e.Subject(), Sequence: uint64(len(o.outcomes) + 1), At: time.Now(), Body: data})
}

// mailConsumerReader is how far one poller has read them.
type mailConsumerReader struct {
	*mailConsumer
	eventsRead int
}

func (r *mailConsumerReader) Requests(_ context.Context, since time.Time, take func(history.Entry) error) error {
	unread := r.outcomes[r.eventsRead:]
	r.eventsRead = len(r.outcomes)
	for _, e := range unread {
		if !e.At.Before(since) {
			if err := take(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *mailConsumerReader) Resolve(_ context.Context, e messages.Event, over uint64) error {
	body := e.Body.(*messages.SendResolved)
	r.put(messages.Send, messages.Resolved, e.ID, body)
	r.resolved, r.resolving = append(r.resolved, body), int(over)
	return nil
}

// stored is an event that was published.
type stored struct {
	messages.Event
	at time.Time
}

// store is a stream of events in memory, as one poller sees it.
type store struct {
	*scenario
	*mailConsumerReader
	next        int
	sizes       []int  // of what was published at once
	beforeLearn func() // runs once, before anything is learned
	refuse      func(messages.Event) error
}

func (*store) Lead(context.Context) error        { return nil }
func (*store) Led(context.Context) (bool, error) { return false, nil }
func (*store) Resign()                           {}

func (d *store) Learn(_ context.Context, take func(lists.Stored) error) error {
	if d.beforeLearn != nil {
		d.beforeLearn()
		d.beforeLearn = nil
	}
	for ; d.next < len(d.events); d.next++ {
		e := d.events[d.next]
		if err := take(lists.StoredAt(e.Event, e.at)); err != nil {
			return err
		}
	}
	return nil
}

func (d *store) Reset() { d.next, d.eventsRead = 0, 0 }

func (d *store) Kept(context.Context) (time.Time, error) { return d.kept, nil }

func (d *store) Publish(_ context.Context, events []messages.Event) func() (int, error) {
	d.sizes = append(d.sizes, len(events))
	return func() (int, error) {
		for i, e := range events {
			if _, err := e.Encode(); err != nil {
				return i, err
			}
			if d.refuse != nil {
				if err := d.refuse(e); err != nil {
					return i, err
				}
			}
			d.events = append(d.events, stored{e, time.Now()})
		}
		return len(events), nil
	}
}

func (d *store) Mark(_ context.Context, m sweep.Mark) error {
	d.marks = append(d.marks, m)
	return nil
}

func (d *store) LastMark(context.Context) (m sweep.Mark, err error) {
	if n := len(d.marks); n > 0 {
		m = d.marks[n-1]
	}
	return m, nil
}

// entry is a row of the sending log.
type logRow struct {
	envelope, to, from string
	created            time.Time
	state              messages.State
}

func (r *logRow) entry() mail.Entry {
	e := mail.Entry{CreatedAt: r.created, EnvelopeID: r.envelope, To: r.to, From: r.from, Delivered: r.state == messages.Delivered,
		Response: map[messages.State]string{messages.Delivered: "250 2.0.0 OK", messages.Deferred: "451 4.7.1 later",
			messages.Bounced: "550 5.1.1 no"}[r.state]}
	e.Raw, _ = json.Marshal(map[string]any{"envelope_id": r.envelope, "to": r.to, "state": r.state})
	return e
}

func entriesOf(rows []*logRow) (entries []mail.Entry) {
	for _, r := range rows {
		entries = append(entries, r.entry())
	}
	return entries
}

// scenario is a sending log, the requests behind it, and the published events.
type scenario struct {
	*testing.T
	consumer *mailConsumer
	rows     []*logRow
	events   []stored
	marks    []sweep.Mark
	config   Config
	interval time.Duration
	began    time.Time
	log      *Log
	secret   *mailkey.Secret   // of the mail consumer's keys
	only     map[string]int    // recipients of the requests of one batch
	known    map[sweep.ID]bool // what the poller has published or learned; nil: it must learn
	kept     time.Time         // since when all events are kept; zero: all are
}

func inScenario(t *testing.T, f func(s *scenario)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scenario{T: t, consumer: &mailConsumer{}, only: map[string]int{}, interval: 5 * time.Second, began: time.Now()}
		s.config, s.secret = Config{Published: func(messages.State, messages.Confidence) {}, ReportAfter: 72 * time.Hour,
			Secrets: []*mailkey.Secret{oldSecret}}, oldSecret
		time.Sleep(time.Hour) // the poller watches before anything is sent
		s.restart()
		f(s)
	})
}

// restart replaces the poller by a new process.
func (s *scenario) restart() {
	c := s.config
	c.Store = &store{scenario: s, mailConsumerReader: &mailConsumerReader{mailConsumer: s.consumer}}
	s.log, s.known = New(c), nil
}

// learn learns what was published.
func (s *scenario) learn() {
	s.Helper()
	if s.known == nil {
		s.known = map[sweep.ID]bool{}
	}
	if _, err := s.log.Kept(s.Context()); err != nil {
		s.Fatal(err)
	}
	if err := s.log.Learn(s.Context(), func(learned sweep.Stored) { s.known[learned.ID] = true }); err != nil {
		s.Fatal(err)
	}
}

// sweep publishes the states of rows that are not known and then what they say about requests.
func (s *scenario) sweep() {
	s.Helper()
	if s.known == nil {
		s.learn()
	}
	rows := slices.DeleteFunc(rowsOf(entriesOf(s.rows), time.Now()), func(r sweep.Row[mail.Entry]) bool { return s.known[r.ID] })
	if _, err := s.log.Publish(s.Context(), rows)(); err != nil {
		s.Fatal(err)
	}
	for _, r := range rows {
		s.known[r.ID] = true
	}
	if err := s.log.Swept(s.Context(), time.Now()); err != nil {
		s.Fatal(err)
	}
}

// run lets a new poller sweep for a while.
func (s *scenario) run(d time.Duration) {
	s.Helper()
	s.restart()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(min(s.interval, time.Until(end))) {
		s.sweep()
	}
}

func now() messages.Time { return messages.Time{Time: time.Now()} }

// keysOf returns the keys of a call's parties.
func keysOf(from string, to ...string) *messages.SecretKeys {
	return history.KeysOf(oldSecret, from, to)
}

// calls begins a call for a batch; it takes a second.
func (s *scenario) calls(id string, number, first int, to ...string) {
	s.Helper()
	s.callsFrom("", id, number, first, to...)
}

func (s *scenario) callsFrom(from, id string, number, first int, to ...string) {
	s.Helper()
	deadline, keys := messages.Time{Time: time.Now().Add(35 * time.Second)}, history.KeysOf(s.secret, from, to)
	if recipients, only := s.only[id]; only {
		s.consumer.put(messages.Send, messages.Started, id, &messages.SendStarted{Common: messages.Common{RequestID: id, At: now()},
			Fingerprint: "fingerprint of " + id, Recipients: recipients, Batches: 1, Deadline: deadline, Secret: keys})
	} else {
		s.consumer.put(messages.Batch, messages.Started, messages.BatchID(id, number), &messages.BatchBody{
			Common: messages.Common{RequestID: id, At: now()}, Batch: number, First: first, Count: len(to), Deadline: &deadline, Secret: keys})
	}
	time.Sleep(time.Second)
}

// started begins a request. One of a single batch is begun by its call.
func (s *scenario) started(id string, recipients, batches int) {
	if batches == 1 {
		s.only[id] = recipients
		return
	}
	s.consumer.put(messages.Send, messages.Started, id, &messages.SendStarted{Common: messages.Common{RequestID: id, At: now()},
		Fingerprint: "fingerprint of " + id, Recipients: recipients, Batches: batches})
}

func (s *scenario) ends(id string, state messages.State, recipients, batches, accepted int, unsettled ...messages.Unsettled) {
	s.consumer.put(messages.Send, state, id, &messages.SendOutcome{Common: messages.Common{RequestID: id, At: now()}, Recipients: recipients,
		Batches: batches, Accepted: accepted,
		Unsettled: unsettled, UnsettledCount: len(unsettled), Fingerprint: "fingerprint of " + id})
}

// waits defers a request of one batch whose call is of unknown fate.
func (s *scenario) waits(id string) {
	s.consumer.put(messages.Send, messages.Deferred, id, &messages.DeferredBody{Common: messages.Common{RequestID: id, At: now()},
		Reason: messages.ReasonNoAnswer, AfterUnknown: true})
}

// sends makes a request of one batch that is accepted.
func (s *scenario) sends(id string, to ...string) {
	s.Helper()
	s.started(id, len(to), 1)
	s.calls(id, 1, 0, to...)
	s.ends(id, messages.Accepted, len(to), 1, len(to))
}

// loses makes a request of one batch that waits for a call of unknown fate.
func (s *scenario) loses(id string, to ...string) {
	s.Helper()
	s.started(id, len(to), 1)
	s.calls(id, 1, 0, to...)
	s.waits(id)
}

// row adds a row of a message that was accepted some time ago.
func (s *scenario) row(to string, ago time.Duration, state messages.State) *logRow {
	r := &logRow{envelope: fmt.Sprintf("%011x%07x", time.Now().Add(-ago).UnixMilli(), len(s.rows)+1), to: to,
		created: time.Now().Truncate(time.Millisecond), state: state}
	s.rows = append(s.rows, r)
	return r
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

// summaries returns the summaries of a request. No two may be the same or less than a minute apart.
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

// people returns n addresses.
func people(name string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s%d@example.test", name, i))
	}
	return all
}
