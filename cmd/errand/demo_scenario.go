//go:build !nodemo

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"errand/internal/retry"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// The big message of the demo, and its expected outcome.
const (
	manyPeople  = 2500
	manyBounces = 25 // of manyPeople
	manyBatches = 3  // 1000, 1000, 500
	duplicates  = 6  // in addition to manyPeople
	malformed   = 4  // in addition to manyPeople
)

// scenario is the demo's requests and their outcomes so far. Each run has new ids, order numbers and a new domain, as there may
// be data of an earlier run.
type scenario struct {
	domain   string
	requests []*demoRequest // in the order of the table
	states   map[string]messages.State
	linked   chan struct{} // closed when the first enrollment's payer has a link
}

type demoRequest struct {
	id, title  string
	op         messages.Operation
	body       map[string]any
	want       outcome
	got        outcome
	recipients []string // addresses that must get it
	url        string   // of the enrollment's page
	ended      bool
}

// outcome is a row of the table at the end.
type outcome struct {
	state                                                            messages.State
	requested, calls, accepted, delivered, bounced, refused, leftOut int
	batches                                                          int
	application                                                      messages.State // the application's status in the transaction list
}

func newScenario(now time.Time) *scenario {
	run := strconv.FormatInt(now.Unix()%(36*36*36*36*36), 36)
	s := &scenario{domain: "demo-" + run + ".example.com", states: map[string]messages.State{}, linked: make(chan struct{})}
	s.requests = []*demoRequest{
		s.enrollment("enroll-"+run, "an enrollment", outcome{state: messages.Succeeded, requested: 1, calls: 1, accepted: 1,
			application: approved}),
		s.enrollment("refuse-"+run, "one that is refused", outcome{state: messages.Failed, requested: 1, calls: 1, refused: 1}),
		s.few("letter-" + run),
		s.many("news-" + run),
	}
	return s
}

func (s *scenario) enrollment(id, title string, want outcome) *demoRequest {
	return &demoRequest{id: id, title: title, op: messages.Enroll, want: want, body: map[string]any{
		"request_id": id, "order_number": strings.ToUpper(id), "amount": "100.50", "payer_id_type": 1, "payer_id": "900101011234",
		"payer_name": "Ann Tester", "payer_email": "ann@" + s.domain, "payer_telephone_number": "0123456789",
		"frequency_mode": "MT", "application_reason": "Membership fee",
	}}
}

// few is a message to three people: one gets it, one bounces, one gets it later.
func (s *scenario) few(id string) *demoRequest {
	to := []string{"ann@" + s.domain, "bob.bounces@" + s.domain, "cho.defers@" + s.domain}
	return s.message(id, "a message to 3", to, to, outcome{state: messages.Accepted, requested: 3, calls: 1, accepted: 3, delivered: 2,
		bounced: 1, batches: 1})
}

// many is a message to more people than one call takes, with some invalid and some
// duplicate addresses.
func (s *scenario) many(id string) *demoRequest {
	var good, to []string
	for n := range manyPeople {
		name := "reader"
		if n%(manyPeople/manyBounces) == 50 {
			name = "bouncer"
		}
		good = append(good, fmt.Sprintf("%s%04d@%s", name, n, s.domain))
	}
	to = append(to, good[:1200]...)
	to = append(to, "no-at-sign", "two@@"+s.domain, "@"+s.domain, "a space@"+s.domain)
	to = append(to, good[1200:]...)
	for n := range duplicates {
		local, _, _ := strings.Cut(good[n*100], "@")
		to = append(to, local+"@"+strings.ToUpper(s.domain)) // domains are compared without case
	}
	return s.message(id, "a message to 2,500", to, good, outcome{state: messages.Accepted, requested: len(to), calls: manyBatches,
		accepted:  manyPeople,
		delivered: manyPeople - manyBounces, bounced: manyBounces, leftOut: duplicates + malformed, batches: manyBatches})
}

func (s *scenario) message(id, title string, to, good []string, want outcome) *demoRequest {
	return &demoRequest{id: id, title: title, op: messages.Send, want: want, recipients: good, body: map[string]any{
		"request_id": id, "from": "Demo <demo@" + s.domain + ">", "subject": "Hello from " + id, "content": "Good morning.", "to": to,
	}}
}

// publish publishes all requests; the sandbox refuses one of them, and the payer of the first one approves.
func (s *scenario) publish(ctx context.Context, h *installation) error {
	refused := s.requests[1].body["order_number"].(string)
	if _, err := h.box.AddFault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Match: refused,
		Status: http.StatusUnprocessableEntity, Body: json.RawMessage(`{"error":{"payer_id":["The payer id is not known to the bank."]}}`)}); err != nil {
		return err
	}
	for i, e := range s.requests {
		if i > 0 && !retry.Pause(ctx, pace) {
			return nil // the demo has ended
		}
		data, err := json.Marshal(e.body)
		if err != nil {
			return err
		}
		m, err := newMsg(e.op, data, false)
		if err != nil {
			return fmt.Errorf("the demo's own request %s: %w", e.id, err)
		}
		if _, err := store(ctx, h.broker, m); err != nil {
			return err
		}
		if i == 0 {
			if err := s.approve(ctx, h); err != nil {
				return err
			}
		}
	}
	return nil
}

// approved is the status of an application that the payer approved.
const approved messages.State = "approved"

// approve lets the payer of the first enrollment approve, once there is a link.
func (s *scenario) approve(ctx context.Context, h *installation) error {
	select {
	case <-s.linked:
	case <-ctx.Done():
	}
	if !retry.Pause(ctx, pace) {
		return nil // the demo has ended
	}
	return h.box.Decide(s.requests[0].body["order_number"].(string), sandbox.Approve)
}

// pace is the pause between two requests, so that a person can follow.
const pace = 400 * time.Millisecond

func (s *scenario) observe(e event) {
	subject := messages.ParseSubject(e.Subject)
	if subject.Operation == messages.Delivery {
		s.delivery(e)
		return
	}
	for _, r := range s.requests {
		if subject.ID == r.id {
			r.observe(subject, e.Data)
		}
	}
	if e.Subject == messages.Enroll.Subject(messages.Succeeded, s.requests[0].id) {
		close(s.linked)
	}
}

func (r *demoRequest) observe(subject messages.Subject, data []byte) {
	var b messages.SendOutcome
	_ = messages.DecodeEvent(data, &b) // a missing value shows in the table
	state := subject.State
	switch subject.Operation {
	case messages.Application:
		r.got.application = state
		return
	case messages.Batch:
		if state.Final(messages.Batch) {
			r.got.batches, r.got.calls = r.got.batches+1, r.got.calls+b.Attempt
		}
		return
	}
	if !state.Final(r.op) {
		return
	}
	r.ended, r.url, r.got.state = true, urlOf(data), state
	if r.got.batches == 0 { // one call, or a single batch
		r.got.batches, r.got.calls = b.Batches, b.Attempt
	}
	switch {
	case r.op == messages.Send:
		r.got.accepted, r.got.leftOut = b.Accepted, b.Duplicates+b.InvalidCount
	case state == messages.Succeeded:
		r.got.accepted = 1
	case state == messages.Failed:
		r.got.refused = 1
	}
}

// urlOf is the address of an enrollment's page in its outcome.
func urlOf(data []byte) string {
	var b struct{ Enrollment struct{ URL string } }
	_ = json.Unmarshal(data, &b) // other outcomes have none
	return b.Enrollment.URL
}

// delivery records the state of a recipient; a deferred one is delivered later.
func (s *scenario) delivery(e event) {
	to, ours := s.recipient(e)
	if !ours {
		return
	}
	before, now := s.states[to], messages.StateOf(e.Subject)
	s.states[to] = now
	r := s.requests[2]
	if isMany(to) {
		r = s.requests[3]
	}
	for state, change := range map[messages.State]int{before: -1, now: 1} {
		switch {
		case before == now:
		case state == messages.Delivered:
			r.got.delivered += change
		case state == messages.Bounced:
			r.got.bounced += change
		}
	}
}

// recipient returns the address in a delivery event, and whether it belongs to this scenario.
func (s *scenario) recipient(e event) (address string, ours bool) {
	var b struct{ Entry struct{ To string } }
	_ = json.Unmarshal(e.Data, &b) // an unreadable one is not ours
	return b.Entry.To, strings.HasSuffix(b.Entry.To, "@"+s.domain)
}

// isMany reports whether a recipient belongs to the big message.
func isMany(address string) bool {
	return strings.HasPrefix(address, "reader") || strings.HasPrefix(address, "bouncer")
}

func (s *scenario) complete() bool {
	for _, r := range s.requests {
		if !r.ended || r.got.delivered+r.got.bounced < len(r.recipients) {
			return false
		}
		if r.want.application != "" && (r.got.application == "" || r.got.application == "new") {
			return false
		}
	}
	return true
}

// check lists unexpected results, according to the events and to the sandbox.
func (s *scenario) check(t sandbox.Oracle) (problems []string) {
	expect := func(what string, got, want any) {
		if got != want {
			problems = append(problems, fmt.Sprintf("%s: got %+v, want %+v", what, got, want))
		}
	}
	enrollCalls, sendCalls, recipients, enrolled := 0, 0, 0, 0
	for _, r := range s.requests {
		r.got.requested = r.want.requested
		expect(r.title+" ("+r.id+")", r.got, r.want)
		if r.op == messages.Send {
			sendCalls, recipients = sendCalls+r.want.calls, recipients+r.want.accepted
		} else {
			enrollCalls, enrolled = enrollCalls+r.want.calls, enrolled+r.want.accepted
		}
	}
	expect("calls to enroll that reached the upstream", int(t.Calls["enroll"]), enrollCalls)
	expect("calls to send that reached the upstream", int(t.Calls["send"]), sendCalls)
	expect("payers enrolled upstream", t.Enroll.Accepted, enrolled)
	expect("callbacks taken", t.Callbacks.Delivered, 2) // the authorization, the bank's approval
	expect("recipients written to upstream", int(t.Mail.Recipients), recipients)
	expect("payers enrolled twice", t.Enroll.TwiceCount, 0)
	expect("recipients written to twice", t.Mail.TwiceCount, 0)
	return problems
}
