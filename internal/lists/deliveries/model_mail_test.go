package deliveries

import (
	"math/rand/v2"
	"strings"
	"time"

	"errand/internal/history"
	"errand/pkg/messages"
)

// sending is a request of the mail consumer, at work.
type sending struct {
	*model
	random    *rand.Rand
	id, from  string
	onUnknown string
	batches   []*sendingBatch
	giveUp    time.Time
	away      time.Duration // for how long at most nobody takes over when a worker dies
	reopened  int
}

// sendingBatch is one of its batches.
type sendingBatch struct {
	number, first int
	to            []string
	state         messages.State // how it ended; "": it has not
	reason        messages.Reason
	unknown       bool // a call of unknown fate was made, and nothing is known of it
	until         time.Time
	recorded      bool // its recipients, by this worker
}

const callTakes = 35 * time.Second // as announced, at most

func (r *sending) put(op messages.Operation, state messages.State, id string, body messages.Body) {
	r.streams.mu.Lock()
	defer r.streams.mu.Unlock()
	r.streams.put(messages.Event{Operation: op, State: state, ID: id, Body: body}, r.id)
}

func (r *sending) common() messages.Common {
	return messages.Common{RequestID: r.id, At: messages.Time{Time: time.Now()}}
}

func (r *sending) chance(n int) bool { return r.random.IntN(n) == 0 }

func (r *sending) upTo(d time.Duration) time.Duration {
	return time.Duration(r.random.Int64N(int64(d) + 1))
}

// run takes the request to its end, and sometimes a person has it run again.
func (r *sending) run() {
	for {
		if len(r.batches) > 1 {
			r.started(time.Now(), nil)
		}
		wait := 10 * time.Second
		for {
			waiting := false
			for _, b := range r.batches {
				if b.state == "" {
					r.visit(b)
					waiting = waiting || b.state == ""
				}
			}
			if !waiting {
				break
			}
			if len(r.batches) > 1 {
				r.put(messages.Send, messages.Deferred, r.id, &messages.DeferredBody{Common: r.common(), Reason: messages.ReasonNoAnswer,
					AfterUnknown: true})
			}
			time.Sleep(wait + r.upTo(time.Second))
			wait = min(2*wait, 15*time.Minute)
		}
		over := r.ends()
		if !r.again(over) {
			return
		}
	}
}

// again has a request run once more, after a correction or by a person.
func (r *sending) again(over uint64) bool {
	if r.reopened++; r.reopened > 3 || !r.chance(3) {
		return false
	}
	time.Sleep(r.upTo(6 * time.Hour))
	r.streams.mu.Lock()
	resolved := r.streams.last[r.id] != over
	r.streams.mu.Unlock()
	failed, open := true, false
	for _, b := range r.batches {
		failed = failed && b.state == messages.Refused
		open = open || b.state == messages.Refused || b.state == messages.Uncertain && len(r.batches) == 1
	}
	if resolved || !open {
		return false
	}
	by := messages.ByCorrection
	if failed { // with other recipients, in another order, perhaps of another sender
		size := 1 + r.random.IntN(3)
		r.batches = r.newBatches(r.random, []int{size, size, 1}[r.random.IntN(3)])
		r.from = modelSenders[r.random.IntN(3)]
	} else {
		by = "ann"
		for _, b := range r.batches {
			if b.state == messages.Refused || len(r.batches) == 1 {
				b.state = ""
			}
		}
		r.onUnknown = messages.OnUnknownReport
	}
	r.tallied("reopened by " + by)
	r.put(messages.Send, messages.Reopened, r.id, &messages.ReopenedBody{Common: r.common(), By: by})
	return true
}

func (m *model) tallied(what string) {
	m.streams.mu.Lock()
	defer m.streams.mu.Unlock()
	m.tally[what]++
}

func (r *sending) recipients() (n int) {
	for _, b := range r.batches {
		n += len(b.to)
	}
	return n
}

func (r *sending) started(at time.Time, keys *messages.SecretKeys) {
	r.put(messages.Send, messages.Started, r.id, &messages.SendStarted{Common: r.common(), Deadline: messages.Time{Time: at.Add(callTakes)},
		Fingerprint: "f", Recipients: r.recipients(), Batches: len(r.batches), BatchSize: 1000,
		Secret: keys})
}

// visit takes a batch as far as it comes.
func (r *sending) visit(b *sendingBatch) {
	b.recorded = false
	for !r.call(b) {
	}
}

// call makes a call for a batch; done: there is nothing more to do for now.
func (r *sending) call(b *sendingBatch) (done bool) {
	begin := time.Now()
	c := &realCall{from: r.from, to: b.to, first: b.first, begin: begin, until: begin.Add(callTakes)}
	b.until = c.until
	var keys *messages.SecretKeys
	if !b.recorded {
		keys, b.recorded = history.KeysOf(oldSecret, r.from, b.to), true
	}
	if len(r.batches) == 1 {
		r.started(begin, keys)
	} else {
		r.put(messages.Batch, messages.Started, messages.BatchID(r.id, b.number),
			&messages.BatchBody{Common: r.common(), Batch: b.number, First: b.first, Count: len(b.to), Deadline: &messages.Time{Time: c.until},
				Secret: keys})
	}
	r.made(r.id, b.number, c)
	if r.chance(40) { // the worker dies before it calls
		return r.diedDuring(b, c)
	}
	time.Sleep(r.upTo(25 * time.Millisecond))
	took := r.upTo(2 * time.Second)
	if r.chance(4) {
		took = r.upTo(30 * time.Second)
	}
	during := time.Now().Add(r.upTo(took))
	fate := r.random.IntN(100)
	r.endsAt(c, time.Now().Add(took))
	r.crowd(b, c)
	switch {
	case fate < 40:
		r.reach(b, c, during)
		time.Sleep(took)
		r.settle(b, messages.Accepted, "")
		return true
	case fate < 45:
		time.Sleep(took)
		r.settle(b, messages.Refused, messages.ReasonRefused)
		return true
	case fate < 55:
		if r.chance(2) { // its worker calls again, and nothing says before that it was over
			took += r.upTo(10 * time.Second)
			r.endsAt(c, time.Now().Add(took))
			time.Sleep(took)
			return false
		}
		time.Sleep(took)
		r.deferred(b, messages.ReasonBusy, b.unknown)
		time.Sleep(r.upTo(10 * time.Minute))
		return false
	}
	switch r.random.IntN(5) {
	case 0, 1:
		r.reach(b, c, during)
	case 2: // long after its caller was gone
		r.reach(b, c, time.Now().Add(took+r.upTo(14*time.Minute)))
	}
	b.unknown = true
	if fate > 90 {
		return r.diedDuring(b, c)
	}
	time.Sleep(took)
	return r.lost(b, messages.ReasonNoAnswer)
}

// endsAt says when a call does, where pollers are checked by it.
func (r *sending) endsAt(c *realCall, at time.Time) {
	r.streams.mu.Lock()
	defer r.streams.mu.Unlock()
	c.ended = at
}

// diedDuring is what follows when a worker has died: another worker takes over.
func (r *sending) diedDuring(b *sendingBatch, c *realCall) bool {
	b.unknown = true
	r.endsAt(c, c.until)
	time.Sleep(time.Until(c.until) + r.upTo(time.Minute))
	if r.chance(4) {
		time.Sleep(r.upTo(r.away))
	}
	b.recorded = false // another worker takes over
	return r.lost(b, messages.ReasonInterrupted)
}

// lost is what follows a call of unknown fate.
func (r *sending) lost(b *sendingBatch, reason messages.Reason) (done bool) {
	b.reason = reason
	if r.onUnknown == messages.OnUnknownResend {
		return false
	}
	r.settle(b, messages.Uncertain, reason)
	return true
}

func (r *sending) reach(b *sendingBatch, c *realCall, at time.Time) {
	r.streams.mu.Lock()
	c.reached = at
	r.streams.mu.Unlock()
	r.service.accept(at, c, r.id, b.number)
}

func (r *sending) deferred(b *sendingBatch, reason messages.Reason, after bool) {
	if len(r.batches) == 1 {
		r.put(messages.Send, messages.Deferred, r.id, &messages.DeferredBody{Common: r.common(), Reason: reason, AfterUnknown: after})
		return
	}
	r.put(messages.Batch, messages.Deferred, messages.BatchID(r.id, b.number),
		&messages.BatchBody{Common: r.common(), Batch: b.number, First: b.first, Count: len(b.to), Reason: reason, AfterUnknown: after})
}

// settle ends a batch.
func (r *sending) settle(b *sendingBatch, state messages.State, reason messages.Reason) {
	if state == messages.Refused && b.unknown {
		state = messages.Uncertain // never failed with a call of unknown fate behind it
	}
	b.state, b.reason = state, reason
	if len(r.batches) == 1 {
		return
	}
	body := &messages.BatchBody{Common: r.common(), Batch: b.number, First: b.first, Count: len(b.to), Reason: reason, AfterUnknown: b.unknown}
	if accepted := len(b.to); state == messages.Accepted {
		body.Accepted = &accepted
	}
	r.put(messages.Batch, state, messages.BatchID(r.id, b.number), body)
}

// ends stores the request's outcome, and returns its sequence.
func (r *sending) ends() uint64 {
	o := &messages.SendOutcome{Common: r.common(), Recipients: r.recipients(), Batches: len(r.batches), Fingerprint: "f"}
	uncertain := false
	for _, b := range r.batches {
		if b.state == messages.Accepted {
			o.Accepted += len(b.to)
		} else {
			o.Unsettled = append(o.Unsettled, messages.Unsettled{Batch: b.number, First: b.first, Count: len(b.to), State: b.state,
				Reason: b.reason})
			uncertain = uncertain || b.state == messages.Uncertain
		}
		o.AfterUnknown = o.AfterUnknown || b.unknown
		o.Reason = b.reason
	}
	o.UnsettledCount = len(o.Unsettled)
	state := messages.Failed
	switch {
	case uncertain:
		state = messages.Uncertain
	case o.Accepted == o.Recipients:
		state = messages.Accepted
	case o.Accepted > 0:
		state = messages.Partial
	}
	r.put(messages.Send, state, r.id, o)
	r.streams.mu.Lock()
	defer r.streams.mu.Unlock()
	r.model.sum(r.id).accepted = 0
	if state == messages.Accepted {
		r.model.sum(r.id).accepted = o.Accepted
	}
	return r.streams.last[r.id]
}

// people and senders are few, so that mails meet.
var (
	modelPeople = []string{"Ann.Lee@example.test", "bob@bücher.example", "cy@xn--bcher-kva.example", "dan@Example.TEST",
		"eve+news@example.test", "F.Ox@example.test", "gil@example.test", "hal@example.test"}
	modelSenders = []string{"Shop@example.test", "news@bücher.example", ""}
	otherSenders = []string{"tenant@elsewhere.test", "no-reply@elsewhere.test"}
)

// newSending is a request with random recipients.
func (m *model) newSending(id string, random *rand.Rand) *sending {
	r := &sending{model: m, random: random, id: id, from: modelSenders[random.IntN(3)], away: m.days.dead}
	r.onUnknown = []string{messages.OnUnknownReport, messages.OnUnknownReport, messages.OnUnknownReport,
		messages.OnUnknownResend}[random.IntN(4)]
	r.batches = r.newBatches(random, []int{1, 1, 2, 3}[random.IntN(4)])
	r.giveUp = time.Now().Add(m.days.giveUp)
	return r
}

// newBatches are some of the people, now and then one of them twice.
func (m *model) newBatches(random *rand.Rand, n int) (all []*sendingBatch) {
	order, first, next := random.Perm(len(modelPeople)), 0, 0
	for number := range n {
		b := &sendingBatch{number: number + 1, first: first}
		for range 1 + random.IntN(2) {
			b.to = append(b.to, modelPeople[order[next]])
			if next++; random.IntN(8) == 0 {
				local, domain, _ := strings.Cut(b.to[len(b.to)-1], "@")
				b.to = append(b.to, strings.ToUpper(local)+"@"+domain)
			}
		}
		first += len(b.to)
		all = append(all, b)
	}
	return all
}
