package act

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/internal/oncall/inspect"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/hold"
	"errand/internal/retry"
	"errand/internal/sandbox/devkit/inshort"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// model is one request and everybody who has to do with it at once: workers that crash and
// stand still, redrivers that are killed between reopening and publishing, publishers who correct it,
// people who cancel it. The upstream says the truth of what it did, when it is asked.
type model struct {
	t   *testing.T
	log historytest.Log
	r   *rand.Rand

	mu      sync.Mutex
	queue   []modelMessage
	dead    []inspect.DeadLetter
	calls   []modelCall
	effects int
}

type modelMessage struct {
	contents  string
	published time.Time
	redriven  bool
}

// modelCall is a call, and the started event that announced it.
type modelCall struct {
	started uint64
	effect  bool
	unknown bool // nobody knows what came of it
}

const modelID = "r1"

func contentsOf(n int) string {
	return fmt.Sprintf(`{"payer_name":"Payer","payer_email":"payer@example.test","payer_id_type":1,"payer_id":"900101015555","payer_telephone_number":"60190000000","order_number":"DD1","amount":"%d","application_reason":"Rent","frequency_mode":"MT"}`, 100+n)
}

func (m *model) random(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.r.IntN(n)
}

func (m *model) sleep(longest time.Duration) {
	time.Sleep(time.Duration(m.random(int(longest/time.Millisecond))+1) * time.Millisecond)
}

func (m *model) publish(contents string, redriven bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queue = append(m.queue, modelMessage{contents, time.Now(), redriven})
}

// work takes messages and runs them until the end; one that does not come to its end is redelivered.
func (m *model) work(end time.Time) {
	caller := &attempt.Caller{Policy: retry.Policy{First: 200 * time.Millisecond, Max: 10 * time.Second, Tries: 3}, Timeout: 30 * time.Second,
		Slots: admission.NewSlots(4), Stop: make(chan struct{})}
	for time.Now().Before(end) {
		m.sleep(3 * time.Second)
		m.mu.Lock()
		if len(m.queue) == 0 {
			m.mu.Unlock()
			continue
		}
		i := m.r.IntN(len(m.queue))
		taken := m.queue[i]
		if m.r.IntN(4) > 0 { // else its AckWait runs out: another worker has it too
			m.queue = slices.Delete(m.queue, i, i+1)
		}
		m.mu.Unlock()
		if err := m.settle(caller, taken); err != nil {
			m.mu.Lock()
			m.queue = append(m.queue, taken)
			m.mu.Unlock()
		}
	}
}

// settle is what a consumer and the handler of enrollments do with a message.
func (m *model) settle(caller *attempt.Caller, of modelMessage) error {
	ctx, crash := context.WithTimeout(context.Background(), time.Duration(m.random(90)+1)*time.Second)
	defer crash()
	h := &history.History{Log: &m.log, Operation: messages.Enroll, ID: modelID,
		Fingerprint: fingerprintOf(messages.Enroll, []byte(of.contents))}
	if h.Published = of.published; !of.redriven {
		h.Corrects = historytest.Corrects
	}
	ev, err := h.Settle(ctx, false, func(p history.Prior) (messages.Event, error) { return m.run(ctx, caller, h, p) })
	if done, ok := errors.AsType[*history.AlreadyDoneError](err); ok {
		m.letter(of.contents, done.State, done.Sequence)
		return nil
	}
	if conflict := new(history.ConflictError); errors.As(err, &conflict) {
		return nil
	}
	if err == nil {
		m.letter(of.contents, ev.State, h.Sequence())
	}
	return err
}

func (m *model) letter(contents string, state messages.State, final uint64) {
	if state != messages.Failed && state != messages.Uncertain {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = append(m.dead, inspect.DeadLetter{RequestID: modelID, Operation: messages.Enroll, Sequence: uint64(len(m.dead) + 1),
		Event: inspect.Event{Message: bus.Message{
			Data: []byte(contents), Header: nats.Header{nats.MsgIdHdr: {bus.DeadLetterID(messages.Enroll, modelID, final)}}}}})
}

// run decides an enrollment as internal/requests/enroll does, whose list it has by heart.
func (m *model) run(ctx context.Context, caller *attempt.Caller, h *history.History, p history.Prior) (messages.Event, error) {
	again, listed := p.Again, false
	r, err := attempt.Run(ctx, caller, attempt.Call[string]{
		Delivery: attempt.Delivery{Prior: p, History: h, Permit: (&hold.Hold{Interval: time.Minute}).Permit(),
			GiveUpAt: time.Now().Add(time.Hour)},
		LooksUp: true,
		Started: func(deadline messages.Time, afterUnknown bool) messages.Body {
			return &messages.EnrollStarted{Deadline: deadline, Fingerprint: h.Fingerprint, AfterUnknown: afterUnknown}
		},
		OnUnknown: func(_ context.Context, fresh bool) (attempt.Verdict, error) {
			again = again && !fresh
			m.mu.Lock()
			listed = m.effects > 0
			m.mu.Unlock()
			if m.random(10) == 0 {
				return "", &clients.Error{Fate: clients.Busy, Reason: messages.ReasonBusy}
			}
			if again && !listed {
				return attempt.Done, nil
			}
			return attempt.Uncertain, nil
		},
		Make: func(ctx context.Context) (string, error) { return m.call(ctx, h) },
	})
	if err != nil {
		return messages.Event{}, err
	}
	switch r.Verdict {
	case attempt.Done:
		return h.Event(messages.Succeeded, &messages.EnrollSucceeded{Fingerprint: h.Fingerprint}), nil
	case attempt.Uncertain:
		return h.Event(messages.Uncertain, &messages.EnrollUncertain{Reason: r.Reason, Fingerprint: h.Fingerprint, AfterUnknown: r.AfterUnknown}),
			nil
	case attempt.RetryLater:
		return messages.Event{}, attempt.Defer(ctx, h, r)
	}
	return h.Event(messages.Failed, &messages.FailedBody{Reason: r.Reason, Fingerprint: h.Fingerprint, AfterUnknown: r.AfterUnknown}), nil
}

// call does something or nothing, and says so or not.
func (m *model) call(ctx context.Context, h *history.History) (string, error) {
	outcome := m.random(8)
	m.mu.Lock()
	effect := outcome <= 2
	m.calls = append(m.calls, modelCall{h.Sequence(), effect, effect && outcome > 0 || outcome == 3 || outcome == 4})
	if effect {
		m.effects++
	}
	m.mu.Unlock()
	m.sleep(20 * time.Second)
	switch {
	case outcome == 0 && ctx.Err() == nil:
		return "ok", nil
	case outcome <= 4:
		return "", &clients.Error{Fate: clients.Unknown, Reason: messages.ReasonNoAnswer}
	case outcome == 5:
		return "", &clients.Error{Fate: clients.Busy, Reason: messages.ReasonBusy}
	}
	return "", &clients.Error{Fate: clients.Refused, Reason: "refused"}
}

// redrive runs dead letters again, and is killed now and then.
func (m *model) redrive(end time.Time) {
	for time.Now().Before(end) {
		m.sleep(30 * time.Second)
		m.mu.Lock()
		if len(m.dead) == 0 {
			m.mu.Unlock()
			continue
		}
		letter := m.dead[m.r.IntN(len(m.dead))]
		m.mu.Unlock()
		item, err := classify(context.Background(), &m.log, letter)
		if err != nil {
			m.t.Error(err)
			return
		}
		m.sleep(5 * time.Second) // somebody reads the plan
		if item, err = item.consented(Consent{Accept: []string{All}, Force: []string{modelID}}); err != nil {
			continue
		}
		if item.Class != inspect.Reopened {
			if _, err := reopen(context.Background(), &m.log, item, "ann", "why"); err != nil {
				continue
			}
		}
		m.sleep(5 * time.Second)
		for range m.random(3) { // none: killed before; two: again after it
			m.publish(string(letter.Event.Message.Data), true)
		}
	}
}

func (m *model) cancel(end time.Time) {
	for time.Now().Before(end) {
		m.sleep(3 * time.Minute)
		c := cancelling{op: messages.Enroll, id: modelID}
		last, _ := m.log.Last(context.Background(), messages.Enroll, messages.Enroll.Filter(modelID))
		if last.Sequence > 0 && c.over(context.Background(), &m.log, last) != nil {
			continue
		}
		if last.Sequence == 0 {
			c.fingerprint = fingerprintOf(messages.Enroll, []byte(contentsOf(0)))
		}
		m.sleep(time.Second)
		_ = c.store(context.Background(), &m.log, "ann", "why") // it went on meanwhile, perhaps
	}
}

// check holds what was called against what was stored.
func (m *model) check() {
	events := m.log.Events()
	for _, c := range m.calls {
		for _, e := range slices.Backward(events) {
			if e.Sequence >= c.started {
				continue
			}
			state := messages.StateOf(e.Subject)
			if state == messages.Reopened {
				break
			}
			if state.Final(messages.Enroll) {
				m.t.Fatalf("a call was announced by %d after %s at %d, and nobody had reopened it: %v", c.started, state, e.Sequence, m.log.States())
			}
		}
	}
	for i, c := range m.calls {
		for _, later := range m.calls[i+1:] {
			reopened := func(e history.Entry) bool {
				return messages.StateOf(e.Subject) == messages.Reopened && e.Sequence > c.started && e.Sequence < later.started
			}
			if c.unknown && !slices.ContainsFunc(events, reopened) {
				m.t.Fatalf("a call by %d after a call of unknown fate by %d, and nobody had said so: %v", later.started, c.started, m.log.States())
			}
		}
	}
	if m.effects > 1 {
		m.t.Fatalf("enrolled %d times: %v %v", m.effects, m.log.States(), m.calls)
	}
	for i, e := range events {
		state := messages.StateOf(e.Subject)
		if i > 0 && messages.StateOf(events[i-1].Subject) == messages.Succeeded {
			m.t.Fatalf("%s after succeeded: %v", state, m.log.States())
		}
		if state == messages.Failed && slices.ContainsFunc(m.calls, func(c modelCall) bool { return c.effect && c.started < e.Sequence }) {
			m.t.Fatalf("failed, and it was done: %v %v", m.log.States(), m.calls)
		}
	}
}

// Whatever workers, redrivers, correctors and cancellers do at once: no call is announced after
// an outcome that nobody has reopened, none after one of unknown fate that nobody has reopened
// since, nobody is enrolled twice, and what ended failed was not done.
func TestWhateverIsDoneAtOnceNobodyIsEnrolledTwice(t *testing.T) {
	runs := inshort.Choose(t, 300, 60)
	reopened, redone := 0, 0
	for seed := range uint64(runs) {
		synctest.Test(t, func(t *testing.T) {
			m := &model{t: t, r: rand.New(rand.NewPCG(seed, 15))}
			end := time.Now().Add(20 * time.Minute)
			m.publish(contentsOf(0), false)
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() { m.work(end) })
			}
			for range 2 {
				all.Go(func() { m.redrive(end) })
			}
			all.Go(func() { m.cancel(end) })
			all.Go(func() {
				for n := 1; time.Now().Before(end); n++ {
					m.sleep(4 * time.Minute)
					m.publish(contentsOf(n%3), false)
				}
			})
			all.Wait()
			m.check()
			states := m.log.States()
			if slices.Contains(states, messages.Reopened) {
				reopened++
			}
			if i := slices.Index(states, messages.Uncertain); i >= 0 && slices.Contains(states[i:], messages.Succeeded) {
				redone++
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if reopened < runs/2 || redone == 0 {
		t.Errorf("of %d runs %d reopened something, and %d brought one of unknown fate to its end: the test shows nothing", runs, reopened,
			redone)
	}
}
