package sim

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// person is somebody on call, and the program that they use.
type person struct {
	*node
	act.Requests
}

func (w *world) person() person {
	n := w.newNode("ann")
	return person{n, act.Requests{Person: act.Person{Name: "ann", Audit: audit{n}}, Log: client{w.log, n}, Queues: desk{n}}}
}

// act is what a person does about a request.
func (w *world) act(t step, r *request) {
	p := w.person()
	defer p.kill(errKilled)
	ctx, cancel := context.WithTimeout(p.ctx, time.Hour)
	defer cancel()
	switch t.Do {
	case "cancel":
		_, err := p.Cancel(ctx, r.op, r.ID, "why")
		w.tell("ann cancels %s: %v", r.ID, err)
	case "redrive":
		p.redrive(ctx, r, t)
	case "erase":
		p.erase(ctx, r)
	}
}

// redrive plans, thinks for a while, and does it. N says what is accepted, and whether she is killed meanwhile.
func (p person) redrive(ctx context.Context, r *request, t step) {
	w := p.w
	letter := w.letters.newest(r.ID)
	if letter == nil {
		return
	}
	items, err := p.Plan(ctx, []inspect.DeadLetter{letter.DeadLetter})
	if err != nil || len(items) != 1 {
		w.tell("ann cannot plan a redrive of %s: %v", r.ID, err)
		return
	}
	w.tell("ann reads of %s: %s, %s", r.ID, items[0].Class, items[0].Says)
	retry.Pause(ctx, time.Duration(t.For))
	c := act.Consent{Why: "why"}
	if t.N&1 > 0 {
		c.Accept = []string{act.All}
	}
	if t.N&6 == 6 {
		p.killAt(3+t.N>>1, true)
	}
	w.consent(r, items[0], len(c.Accept) > 0)
	w.mu.Lock()
	r.at = time.Now().Add(time.Hour)
	w.mu.Unlock()
	_ = p.Redrive(ctx, items, c, func(d act.Redriven) { w.tell("ann redrives %s: %s %s", r.ID, d.Result, d.Message) })
}

// consent notes for which calls it was said that they may be made again.
func (w *world) consent(r *request, item act.Item, accepted bool) {
	if !accepted {
		return
	}
	keys := []string{r.ID}
	if r.op == messages.Send {
		keys = nil
		size := w.batchSize(r)
		for _, n := range item.Unknown {
			for i := (n - 1) * size; i < n*size && i < r.To; i++ {
				keys = append(keys, recipientKey(r, i))
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range keys {
		w.consents[k] = time.Now()
	}
}

// erase does what act.Erase does to the log: it marks each history of the request, and removes what it said.
func (p person) erase(ctx context.Context, r *request) {
	w := p.w
	h := &history.History{Log: p.Log, Operation: r.op, ID: r.ID}
	_, err := h.Read(ctx)
	if done, ok := errors.AsType[*history.AlreadyDoneError](err); !ok || done.State == messages.Erased {
		return
	}
	if err := h.Store(ctx, messages.Erased, &messages.ErasedBody{}); err != nil {
		w.tell("ann does not erase %s: %v", r.ID, err)
		return
	}
	w.mu.Lock()
	r.erased = true
	w.mu.Unlock()
	w.log.purge(func(e *stored) bool { return e.state != messages.Erased && messages.ParseSubject(e.Subject).ID == r.ID })
	w.letters.mu.Lock()
	w.letters.all = slices.DeleteFunc(w.letters.all, func(l *letter) bool { return l.RequestID == r.ID })
	w.letters.mu.Unlock()
	w.tell("ann erases %s", r.ID)
}

// audit is where her acts are recorded.
type audit struct{ *node }

func (a audit) Keep(ctx context.Context, _ *nats.Msg) error {
	return a.pass(ctx, "record an act", overNATS, time.Millisecond)
}

// desk is what she sees of the queues.
type desk struct{ *node }

func (d desk) Waiting(ctx context.Context, op messages.Operation, id string) (list []bus.Message, err error) {
	if err := d.pass(ctx, "read the queue", overNATS, time.Millisecond); err != nil {
		return nil, err
	}
	for _, m := range d.w.queues[op].waiting() {
		if idOf(op, m) == id {
			list = append(list, bus.Message{Subject: op.RequestedIn(m.lane), Sequence: m.sequence, Time: m.published, Header: m.header,
				Data: m.data})
		}
	}
	return list, nil
}

func (d desk) Queued(ctx context.Context, op messages.Operation, _ map[string]time.Time) (map[string]bool, error) {
	ids := map[string]bool{}
	for _, m := range d.w.queues[op].waiting() {
		ids[idOf(op, m)] = true
	}
	return ids, d.pass(ctx, "read the queue", overNATS, time.Millisecond)
}

// idOf is the id under which a message runs.
func idOf(op messages.Operation, m *message) string {
	if id := m.header.Get(bus.HeaderRequestID); id != "" {
		return id
	}
	meta, _ := messages.Check(op, m.data) // all are valid
	return cmp.Or(meta.RequestID, m.header.Get(nats.MsgIdHdr))
}

func (d desk) Scheduled(ctx context.Context, op messages.Operation, id string, _ int, visit func(bus.Message) bool) error {
	d.w.mu.Lock()
	kept := maps.Clone(d.w.scheduled)
	d.w.mu.Unlock()
	for _, s := range kept {
		if s.op == op && s.id == id && !visit(bus.Message{Data: s.due.Data}) {
			break
		}
	}
	return d.pass(ctx, "read what is scheduled", overNATS, time.Millisecond)
}

func (d desk) Release(ctx context.Context, op messages.Operation, id string) error {
	if err := d.before(ctx, "release", overNATS); err != nil {
		return err
	}
	d.w.mu.Lock()
	kept := maps.Clone(d.w.scheduled)
	d.w.mu.Unlock()
	for subject, s := range kept {
		if s.op == op && s.id == id {
			d.w.move(subject, s)
		}
	}
	return d.after(ctx, "release", overNATS)
}

func (d desk) Stream(_ context.Context, op messages.Operation) (jetstream.StreamConfig, error) {
	return jetstream.StreamConfig{Subjects: []string{op.Requested(), op.RequestedIn("bulk")}}, nil
}

func (d desk) Publish(ctx context.Context, m *nats.Msg) (duplicate bool, err error) {
	if err := d.before(ctx, "publish", overNATS); err != nil {
		return false, err
	}
	op := messages.ParseSubject(m.Subject).Operation
	published, duplicate := d.w.queues[op].publish(m.Header, m.Data, messages.ParseSubject(m.Subject).Lane)
	id := m.Header.Get(bus.HeaderRequestID)
	if r := d.w.requests[id]; r != nil && published != nil {
		d.w.mu.Lock()
		r.at = time.Now()
		r.redriven[m.Header.Get("traceparent")] = true
		d.w.mu.Unlock()
		d.w.tell("%s is published again (message %d)", id, published.sequence)
	}
	return duplicate, d.after(ctx, "publish", overNATS)
}
