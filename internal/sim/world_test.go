package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/retry"
	"errand/pkg/messages"
)

// world is one history.
type world struct {
	*script
	seed     uint64
	began    time.Time
	ctx      context.Context
	log      *eventLog
	queues   map[messages.Operation]*queue
	letters  *letterBox
	requests map[string]*request
	replicas map[string]*replica
	weather  []weather
	service  *service
	kept     time.Duration // events' age, guarded by log
	clear    time.Time     // from then on all is well

	mu        sync.Mutex            // guards what follows
	scheduled map[string]*scheduled // by subject
	nth       map[string]uint64
	calls     []*call
	last      map[string]*call // to a recipient or for an order number
	consents  map[string]time.Time
	known     map[string]time.Time // since when the events say that it was done
	most      int                  // calls under way at once, of one replica
	tale      []line
	problems  []string
	over      bool
}

// request is what producers publish under one id.
type request struct {
	spec
	op       messages.Operation
	contents []contents
	at       time.Time // when it was published or redriven last
	erased   bool      // or all of it was purged
	redriven map[string]bool
}

type contents struct {
	data   []byte
	digest string
}

// newWorld prepares the history of a script, in a bubble.
func newWorld(s *script) *world {
	w := &world{script: s, seed: s.Seed, began: time.Now(), kept: time.Duration(s.Kept), queues: map[messages.Operation]*queue{},
		letters: &letterBox{ids: map[string]bool{}}, requests: map[string]*request{}, replicas: map[string]*replica{},
		scheduled: map[string]*scheduled{}, nth: map[string]uint64{}, last: map[string]*call{}, consents: map[string]time.Time{},
		known: map[string]time.Time{}}
	w.log = &eventLog{in: w, of: map[string][]*stored{}}
	change, read := messages.Enroll, messages.Transactions
	if s.Mail {
		change, read = messages.Send, messages.Account
		w.service = mailService(w)
	} else {
		zone := kualaLumpur
		if s.UTC {
			zone = time.UTC
		}
		w.service = mandateService(w, &ledger{w: w, others: time.Duration(s.Others), began: w.began.Add(-time.Hour), zone: zone, size: s.PerPage})
	}
	for _, op := range []messages.Operation{change, read} {
		w.queues[op] = &queue{op: op, ackWait: retry.AckWait, ids: map[string]time.Time{}, changed: make(chan struct{})}
	}
	for _, r := range s.Requests {
		op := change
		if r.Kind == "read" {
			op = read
		}
		w.requests[r.ID] = &request{spec: r, op: op, redriven: map[string]bool{}}
		for n := range 2 {
			w.requests[r.ID].contents = append(w.requests[r.ID].contents, w.contentsOf(r, op, n))
		}
	}
	w.clear = w.began
	for _, t := range s.Steps {
		end := w.began.Add(time.Duration(t.At + t.For))
		if t.Do == "age" {
			end = w.began.Add(time.Duration(t.At))
		}
		if t.Do == "weather" {
			w.weather = append(w.weather, weather{kind: t.Of, from: w.began.Add(time.Duration(t.At)), to: end, p: t.P})
		}
		if end.After(w.clear) && time.Duration(t.For) < 30*24*time.Hour { // DEAD_LETTERS may stay full
			w.clear = end
		}
	}
	return w
}

// contentsOf is the body of a request.
func (w *world) contentsOf(r spec, op messages.Operation, n int) contents {
	body := map[string]any{"request_id": r.ID}
	if r.GiveUpAt > 0 {
		body["give_up_at"] = w.began.Add(time.Duration(r.GiveUpAt)).UTC().Format(time.RFC3339)
	}
	if r.NotBefore > 0 {
		body["not_before"] = w.began.Add(time.Duration(r.NotBefore)).UTC().Format(time.RFC3339)
	}
	if r.OnUnknown != "" {
		body["on_unknown"] = r.OnUnknown
	}
	name := fmt.Sprintf("%s %d", r.ID, n)
	switch op {
	case messages.Send:
		var to []string
		for i := range r.To {
			to = append(to, fmt.Sprintf("%s-%d@example.test", r.ID, i))
		}
		body["subject"], body["content"], body["to"] = name, "text", to
	case messages.Enroll:
		maps.Copy(body, map[string]any{"payer_name": name, "payer_email": "payer@example.test", "payer_id_type": 1, "payer_id": "900101015555",
			"payer_telephone_number": "60190000000", "order_number": "DD-" + r.ID, "amount": "100", "application_reason": "Rent",
			"frequency_mode": "MT"})
	case messages.Transactions:
		body = map[string]any{"request_id": r.ID, "max_pages": 40 + n}
	case messages.Account:
		body = map[string]any{"request_id": r.ID}
	}
	if r.ByHeader {
		delete(body, "request_id")
	}
	data, _ := json.Marshal(body) // texts and numbers always encode
	meta, err := messages.Check(op, data)
	if err != nil {
		panic(err)
	}
	return contents{data, meta.Fingerprint}
}

// run lets the history happen.
func (w *world) run() {
	ctx, end := context.WithCancel(context.Background())
	w.ctx = ctx
	var all sync.WaitGroup
	for i := range w.Replicas {
		r := &replica{w: w, name: string(rune('A' + i)), size: w.sizeAt(i)}
		w.replicas[r.name] = r
		all.Go(r.run)
	}
	var acts sync.WaitGroup
	for _, t := range w.Steps {
		retry.Pause(ctx, time.Until(w.began.Add(time.Duration(t.At))))
		acts.Go(func() { w.do(t) })
	}
	acts.Wait()
	retry.Pause(ctx, time.Until(w.clear))
	if w.Resolve {
		retry.Pause(ctx, retry.ResolveEnough+time.Hour)
	}
	for w.waiting() && !w.failed() {
		retry.Pause(ctx, between(time.Second, time.Minute, min(1, time.Since(w.clear).Seconds()/600)))
	}
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	end()
	all.Wait()
	if !w.failed() {
		w.judge()
	}
}

// sizeAt is MAIL_BATCH_SIZE of the n-th replica: some replicas have another size, while it is changed.
func (w *world) sizeAt(n int) int { return [...]int{3, 3, 12, 3, 2, 12, 1}[(int(w.seed%7)*n)%7] }

// patience is how long a request may take when all is well: the longest hold, the longest deferral, and a rate.
const patience = 2 * time.Hour

// letterWithin is how long a dead letter may take that could not be stored: of a held operation only a probe looks at requests.
const letterWithin = retry.Longest + 10*time.Minute

// waiting reports whether something may still happen.
func (w *world) waiting() bool {
	quiet := true
	for _, q := range w.queues {
		quiet = quiet && len(q.waiting()) == 0
	}
	w.mu.Lock()
	quiet = quiet && len(w.scheduled) == 0
	w.mu.Unlock()
	if quiet {
		return false
	}
	for _, r := range w.requests {
		if time.Now().Before(w.due(r)) && !w.ended(r) {
			return true
		}
	}
	return min(time.Since(w.clear), time.Since(w.log.newest())) < letterWithin
}

// due is when a request must have its outcome.
func (w *world) due(r *request) time.Time {
	from := w.clear
	if r.at.After(from) {
		from = r.at
	}
	if begins := w.began.Add(time.Duration(r.NotBefore)); begins.After(from) {
		from = begins
	}
	if !w.Mail && w.Others == 0 { // an empty list proves nothing: what became of a call is asked until it is given up
		from = from.Add(time.Duration(max(w.GiveUp, r.GiveUpAt)))
	}
	return from.Add(patience)
}

// ended reports whether the last thing that happened to a request is its outcome.
func (w *world) ended(r *request) bool {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	all := w.log.of[historyKey(r.op, r.ID)]
	return r.at.IsZero() || r.erased || len(all) > 0 && all[len(all)-1].outcome()
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.problems) > 0
}

// fail notes that a promise was broken.
func (w *world) fail(format string, args ...any) {
	if *ignore != "" && regexp.MustCompile(*ignore).MatchString(fmt.Sprintf(format, args...)) {
		return
	}
	w.tell("!! "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.problems = append(w.problems, fmt.Sprintf(format, args...))
	}
}

// do is one step of the script.
func (w *world) do(t step) {
	r, d := w.requests[t.Of], time.Duration(t.For)
	switch t.Do {
	case "weather":
		w.tell("%s with %.1f for %v", t.Of, t.P, t.For)
	case "publish", "cancel", "redrive", "erase", "purge":
		if r != nil {
			w.concerns(t, r)
		}
	case "age":
		w.tell("events are kept for %v", t.For)
		w.log.mu.Lock()
		w.kept = d
		w.log.mu.Unlock()
	case "pause":
		w.tell("the queues are paused for %v", t.For)
		for _, q := range w.queues {
			q.pause(d)
		}
	case "kill", "restart", "stop", "cut":
		if of := w.replicas[t.Of]; of != nil {
			of.meets(t)
		}
	default:
		panic("no such step: " + t.Do)
	}
}

// concerns is a step about one request.
func (w *world) concerns(t step, r *request) {
	switch t.Do {
	case "publish":
		w.publish(r, t.N)
	case "purge":
		n := w.purge(r, t.N)
		w.tell("%d events of %s are purged", n, r.ID)
	default:
		w.act(t, r)
	}
}

// publish is a producer's.
func (w *world) publish(r *request, n int) {
	q := w.queues[r.op]
	q.mu.Lock()
	trace := fmt.Sprintf("%s-%d", r.ID, len(q.all)+1)
	q.mu.Unlock()
	h := nats.Header{"traceparent": {trace}}
	if r.ByHeader {
		h.Set(nats.MsgIdHdr, r.ID)
	}
	lane := r.Lane
	if w.Lanes && lane == "" && r.op.HasLanes() && part(w.drawn(r.ID, "lane"), 0) < 0.1 { // the same request in another one
		lane = "bulk"
	}
	m, duplicate := q.publish(h, r.contents[n].data, lane)
	if duplicate {
		w.tell("%s is published with contents %d, and taken for a duplicate", r.ID, n)
		return
	}
	q.mu.Lock()
	m.request, m.contents = r, n
	q.mu.Unlock()
	w.mu.Lock()
	r.at = time.Now()
	w.mu.Unlock()
	w.tell("%s is published with contents %d (message %d)", r.ID, n, m.sequence)
}

// purge removes events from the middle of a history. What a person or a correction opened stays: with it the right to run goes.
func (w *world) purge(r *request, how int) int {
	key := historyKey(r.op, r.ID)
	w.log.mu.Lock()
	var last []*stored
	for k, all := range w.log.of {
		if k == key || messages.ParseSubject(all[0].Subject).ID == r.ID {
			last = append(last, all[len(all)-1])
		}
	}
	w.log.mu.Unlock()
	return w.log.purge(func(e *stored) bool {
		if messages.ParseSubject(e.Subject).ID != r.ID || slices.Contains(last, e) {
			return false
		}
		return e.state == messages.Started || how > 0 && e.state != messages.Reopened
	})
}
