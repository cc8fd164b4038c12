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

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/internal/sandbox"
	client "errand/pkg/errand"
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
}

type demoRequest struct {
	id, title  string
	op         messages.Operation
	lane       string
	later      time.Duration // from when it is published to its not_before
	body       map[string]any
	want       outcome
	got        outcome
	recipients []string // addresses that must get it
	receipt    client.Receipt
	url        string // of the enrollment's page
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
	s := &scenario{domain: "demo-" + run + ".example.com"}
	few, many := s.few("letter-"+run), s.many("news-"+run)
	few.later, many.lane = time.Second, demoLane
	s.requests = []*demoRequest{
		s.enrollment("enroll-"+run, "an enrollment", outcome{state: messages.Succeeded, requested: 1, calls: 1, accepted: 1,
			application: approved}),
		s.enrollment("refuse-"+run, "one that is refused", outcome{state: messages.Failed, requested: 1, calls: 1, refused: 1}),
		few, many,
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
	return s.message(id, "mail to 3, later", to, to, outcome{state: messages.Accepted, requested: 3, calls: 1, accepted: 3, delivered: 2,
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
	return s.message(id, "mail to 2,500, bulk", to, good, outcome{state: messages.Accepted, requested: len(to), calls: manyBatches,
		accepted:  manyPeople,
		delivered: manyPeople - manyBounces, bounced: manyBounces, leftOut: duplicates + malformed, batches: manyBatches})
}

func (s *scenario) message(id, title string, to, good []string, want outcome) *demoRequest {
	return &demoRequest{id: id, title: title, op: messages.Send, want: want, recipients: good, body: map[string]any{
		"request_id": id, "from": "Demo <demo@" + s.domain + ">", "subject": "Hello from " + id, "content": "Good morning.", "to": to,
	}}
}

// run publishes all requests and waits for what becomes of them; the sandbox refuses one of them, and the payer of the first
// one approves.
func (s *scenario) run(ctx context.Context, h *installation) error {
	refused := s.requests[1].body["order_number"].(string)
	if err := h.box.AddFault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Match: refused,
		Status: http.StatusUnprocessableEntity, Body: json.RawMessage(`{"error":{"payer_id":["The payer id is not known to the bank."]}}`)}); err != nil {
		return err
	}
	for i, r := range s.requests {
		if i > 0 && !retry.Pause(ctx, pace) {
			return nil // the demo has ended
		}
		if err := r.publish(ctx, h.broker); err != nil {
			return err
		}
		if i == 0 {
			if err := r.approve(ctx, h); err != nil {
				return err
			}
		}
	}
	for _, r := range s.requests {
		for again := true; again; again = !r.complete() && retry.Pause(ctx, pace) {
			if err := r.look(ctx, h.broker); err != nil {
				return err
			}
		}
	}
	return nil
}

// pace is the pause between two requests, so that a person can follow.
const pace = 400 * time.Millisecond

func (r *demoRequest) publish(ctx context.Context, b broker) error {
	if r.later > 0 {
		r.body["not_before"] = messages.Time{Time: time.Now().Add(r.later)}
	}
	data, err := json.Marshal(r.body)
	if err != nil {
		return err
	}
	m, err := newMsg(r.op, data, false)
	if err != nil {
		return fmt.Errorf("the demo's own request %s: %w", r.id, err)
	}
	m.Subject = r.op.RequestedIn(r.lane)
	r.receipt, err = store(ctx, b, m)
	return err
}

// approved is the status of an application that the payer approved.
const approved messages.State = "approved"

// approve lets the payer of an enrollment approve, once there is a link.
func (r *demoRequest) approve(ctx context.Context, h *installation) error {
	if _, err := client.New(h.broker.JS).Wait(ctx, r.receipt); err != nil || !retry.Pause(ctx, pace) {
		return err
	}
	return h.box.Decide(r.body["order_number"].(string), sandbox.Approve)
}

// look notes what became of the request so far, once it has an outcome.
func (r *demoRequest) look(ctx context.Context, b broker) error {
	outcome, err := client.New(b.JS).Wait(ctx, r.receipt)
	if err != nil {
		return err
	}
	r.note(outcome.About())
	if r.op == messages.Enroll {
		last, _, err := bus.Last(ctx, b.Conn, bus.MandateEvents, messages.Application.Filter(r.id))
		r.got.application = messages.StateOf(last.Subject)
		return err
	}
	for state, n := range map[messages.State]*int{messages.Delivered: &r.got.delivered, messages.Bounced: &r.got.bounced} {
		count, _, err := bus.Count(ctx, b.Conn, bus.MailDeliveries, messages.Delivery.Subject(state, r.id), time.Time{})
		if err != nil {
			return err
		}
		*n = int(count)
	}
	return nil
}

func (r *demoRequest) note(e client.Event) {
	var b messages.SendOutcome
	_ = messages.DecodeEvent(e.Data, &b) // a missing value shows in the table
	var enrolled struct{ Enrollment struct{ URL string } }
	_ = json.Unmarshal(e.Data, &enrolled) // other outcomes have none
	r.got.state, r.url, r.got.batches, r.got.calls = e.State, enrolled.Enrollment.URL, b.Batches, b.Attempt
	switch {
	case r.op == messages.Send:
		r.got.accepted, r.got.leftOut = b.Accepted, b.Duplicates+b.InvalidCount
	case e.State == messages.Succeeded:
		r.got.accepted = 1
	case e.State == messages.Failed:
		r.got.refused = 1
	}
}

// complete reports whether all that is expected after the outcome has come.
func (r *demoRequest) complete() bool {
	return r.got.delivered+r.got.bounced >= len(r.recipients) && r.got.application == r.want.application
}

// check lists unexpected results, according to the events and to the sandbox. Others may use both at the same time.
func (s *scenario) check(t sandbox.Oracle) (problems []string) {
	expect := func(what string, got, want any) {
		if got != want {
			problems = append(problems, fmt.Sprintf("%s: got %+v, want %+v", what, got, want))
		}
	}
	atLeast := func(what string, got, want int) { expect(what, min(got, want), want) }
	enrollCalls, sendCalls, recipients := 0, 0, 0
	for _, r := range s.requests {
		r.got.requested = r.want.requested
		expect(r.title+" ("+r.id+")", r.got, r.want)
		if r.op == messages.Send {
			sendCalls, recipients = sendCalls+r.want.calls, recipients+r.want.accepted
		} else {
			enrollCalls += r.want.calls
			expect("enrollments upstream of "+r.id, t.Enroll.ByOrder[r.body["order_number"].(string)], r.want.accepted)
		}
	}
	written, twice := 0, 0
	for _, r := range t.Mail.ByRecipient {
		if strings.HasSuffix(r.Recipient, "@"+s.domain) {
			written, twice = written+r.Count, twice+min(r.Count-1, 1)
		}
	}
	atLeast("calls to enroll that reached the upstream", int(t.Calls["enroll"]), enrollCalls)
	atLeast("calls to send that reached the upstream", int(t.Calls["send"]), sendCalls)
	atLeast("callbacks taken", t.Callbacks.Delivered, 2) // the authorization, the bank's approval
	expect("recipients written to upstream", written, recipients)
	expect("recipients written to twice", twice, 0)
	return problems
}
