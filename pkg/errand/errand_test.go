package errand_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/errand"
	"errand/pkg/messages"
)

// world is a provisioned server without programs: the test stores the events.
type world struct {
	t      *testing.T
	n      *devkit.NATS
	js     jetstream.JetStream
	client *errand.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	n, nc := devtest.Provisioned(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return &world{t, n, js, errand.New(js)}
}

func (w *world) publish(r messages.Request) errand.Receipt {
	w.t.Helper()
	receipt, err := w.client.Publish(w.t.Context(), r)
	if err != nil {
		w.t.Fatal(err)
	}
	return receipt
}

// store stores an event as a program would.
func (w *world) store(subject, body string) {
	w.t.Helper()
	if _, err := w.js.Publish(w.t.Context(), subject, []byte(body)); err != nil {
		w.t.Fatal(err)
	}
}

// wait is Wait with little patience.
func (w *world) wait(r errand.Receipt, patience time.Duration) (errand.Outcome, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	return w.client.Wait(ctx, r)
}

func (w *world) want(r errand.Receipt, subject string) errand.Outcome {
	w.t.Helper()
	o, err := w.wait(r, 10*time.Second)
	if err != nil {
		w.t.Fatalf("wait for %s: %v", subject, err)
	}
	if got := o.About().Subject; got != subject {
		w.t.Errorf("the outcome is %s, want %s", got, subject)
	}
	return o
}

func letter(id, content string) messages.SendRequest {
	return messages.SendRequest{RequestID: id, To: messages.Recipients("ann@example.com"), Subject: "Hello", Content: content}
}

// own is a body with the fingerprint of a request.
func own(r errand.Receipt, more string) string {
	return fmt.Sprintf(`{"request_id":%q,"fingerprint":%q%s}`, r.RequestID, r.Fingerprint, more)
}

func TestARequestThatBreaksARuleIsNotPublished(t *testing.T) {
	w := newWorld(t)
	for want, r := range map[string]messages.Request{
		"subject is required": messages.SendRequest{To: messages.Recipients("a@example.com"), Content: "x"},
		"give_up_at must be at most": messages.SendRequest{To: messages.Recipients("a@example.com"), Content: "x", Subject: "s",
			GiveUpAt: time.Now().Add(1000 * time.Hour)},
		"order_number is required":  &messages.EnrollRequest{},
		"amount is required":        messages.EnrollRequest{},
		"payer_id_type is required": messages.EnrollRequest{},
	} {
		_, err := w.client.Publish(t.Context(), r)
		if invalid := new(messages.Invalid); !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an *Invalid: %s", err, want)
		}
	}
	_, err := w.client.Publish(t.Context(), messages.SendRequest{To: []byte("ann@example.com"), Subject: "s", Content: "x"})
	if err == nil || !strings.Contains(err.Error(), "messages.Recipients") {
		t.Errorf("an address that is not JSON: %v", err)
	}
	for _, none := range []messages.Request{nil, (*messages.SendRequest)(nil)} {
		if _, err := w.client.Publish(t.Context(), none); err == nil || !strings.Contains(err.Error(), "it is nil") {
			t.Errorf("no request: %v", err)
		}
	}
	_, mistyped := w.client.PublishMsg(t.Context(), nats.NewMsg("mail.sent.requested"))
	_, lane := w.client.Lane("bulk mail").Publish(t.Context(), letter("in-a-lane", "x")) // NATS takes no space in a subject
	for _, err := range []error{mistyped, lane} {
		if invalid := new(messages.Invalid); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "mail.send.requested") {
			t.Errorf("a mistyped subject: %v", err)
		}
	}
	s, err := w.js.Stream(t.Context(), "MAIL_REQUESTS")
	if err != nil || s.CachedInfo().State.Msgs > 0 {
		t.Errorf("%v: %d messages are stored", err, s.CachedInfo().State.Msgs)
	}
}

// The same request is stored once. A correction with the same id, and another operation's
// request, are other messages.
func TestOnlyTheSameRequestIsADuplicate(t *testing.T) {
	w := newWorld(t)
	first := w.publish(letter("one", "x"))
	for _, c := range []struct {
		r         messages.Request
		duplicate bool
	}{{letter("one", "x"), true}, {letter("one", "corrected"), false}, {messages.AccountRequest{RequestID: "one"}, false},
		{messages.AccountRequest{RequestID: "one"}, true}, {messages.AccountRequest{}, false}, {messages.AccountRequest{}, false}} {
		got := w.publish(c.r)
		if got.Duplicate != c.duplicate || c.duplicate && got.Operation == first.Operation && got.Sequence != first.Sequence {
			t.Errorf("%+v: got %+v, want duplicate %v", c.r, got, c.duplicate)
		}
	}
}

func TestAReceiptSaysUnderWhichIdTheEventsAre(t *testing.T) {
	w := newWorld(t)
	for i, c := range []struct{ body, header, want string }{
		{`{"request_id":"a"}`, "b", "a"},
		{`{"request_id":""}`, "b1", "b1"},
		{`{}`, "b2", "b2"},
		{`{}`, "not an id", "MAIL_REQUESTS-4"},
		{`{"request_id":"no id"}`, "c", "MAIL_REQUESTS-5"},
		{`no json`, "d", "MAIL_REQUESTS-6"},
		{`{"reqest_id":"x"}`, "", "MAIL_REQUESTS-7"},
		{`{"request_id":"e","request_id":""}`, "f", "MAIL_REQUESTS-8"},
	} {
		m := &nats.Msg{Subject: "mail.account.requested", Header: nats.Header{}, Data: []byte(c.body)}
		if c.header != "" {
			m.Header.Set(nats.MsgIdHdr, c.header)
		}
		got, err := w.client.PublishMsg(t.Context(), m)
		if err != nil || got.RequestID != c.want || got.Position() != fmt.Sprintf("MAIL_REQUESTS-%d", i+1) {
			t.Errorf("%s, Nats-Msg-Id %q: got %+v, %v, want %s", c.body, c.header, got, err, c.want)
		}
	}
}

func TestWhatWasNotStoredIsToldApartFromWhatMayBe(t *testing.T) {
	w := newWorld(t)
	large := letter("large", strings.Repeat("x", 2<<20))
	if _, err := w.client.Publish(t.Context(), large); !errors.Is(err, errand.ErrTooLarge) {
		t.Errorf("larger than the server takes: %v", err)
	}
	large.Content = large.Content[:1<<20-1000]
	if _, err := w.client.Publish(t.Context(), large); !errors.Is(err, errand.ErrTooLarge) {
		t.Errorf("larger than the stream takes: %v", err)
	}
	requests, err := w.js.Stream(t.Context(), "MAIL_REQUESTS")
	if err != nil {
		t.Fatal(err)
	}
	full := requests.CachedInfo().Config
	full.MaxBytes = 1
	if _, err := w.js.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	_, err = w.client.Publish(t.Context(), letter("a", "x"))
	if api, ok := errors.AsType[*jetstream.APIError](err); !ok || errors.Is(err, errand.ErrNoAck) ||
		err.Error() != "publish mail.send.requested: not published: "+api.Error() {
		t.Errorf("full: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.client.Publish(ctx, letter("a", "x")); !errors.Is(err, errand.ErrNoAck) || !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if err := w.js.DeleteStream(t.Context(), "MAIL_REQUESTS"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Publish(t.Context(), letter("a", "x")); !errors.Is(err, errand.ErrNotTaken) {
		t.Errorf("without a stream: %v", err)
	}
}

func TestWaitTellsTheOutcomes(t *testing.T) {
	w := newWorld(t)
	at := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Event" }, cmp.Ignore())
	for i, c := range []struct {
		state, more string
		want        errand.Outcome
	}{
		{"accepted", `,"invalid_count":2`, errand.Succeeded{LeftOut: 2}},
		{"partial", `,"accepted":2,"recipients":3,"invalid_count":1`, errand.Partial{Accepted: 2, Recipients: 3, LeftOut: 1}},
		{"failed", `,"reason":"refused","message":"no","fields":{"from":["unknown"]}`,
			errand.Failed{Reason: messages.ReasonRefused, Message: "no", Fields: map[string][]string{"from": {"unknown"}}}},
		{"uncertain", `,"reason":"no_answer","message":"timeout"`, errand.Uncertain{Reason: messages.ReasonNoAnswer, Message: "timeout"}},
		{"resolved", `,"outcome":"accepted"`, errand.Resolved{Became: messages.Accepted}},
		{"resolved", `,"outcome":"failed"`, errand.Resolved{Became: messages.Failed}},
		{"erased", `,"was":{"state":"accepted"}`, errand.Erased{}},
	} {
		r := w.publish(letter(fmt.Sprint("id", i), "x"))
		w.store("mail.send.started."+r.RequestID, own(r, ""))
		w.store("mail.send."+c.state+"."+r.RequestID, own(r, c.more))
		got := w.want(r, "mail.send."+c.state+"."+r.RequestID)
		if diff := cmp.Diff(c.want, got, at); diff != "" {
			t.Errorf("%s %s: %s", c.state, c.more, diff)
		}
		if e := got.About(); e.Sequence == 0 || time.Since(e.Time) > time.Minute || e.RequestID != r.RequestID || e.Operation != messages.Send {
			t.Errorf("the event is %+v", e)
		}
	}
}

func TestOnlyAnAnsweredEnrollmentHasALink(t *testing.T) {
	const body = `{"outcome":"succeeded","enrollment":{"url":"https://pay.example/1"}}`
	for _, c := range []struct {
		what string
		op   messages.Operation
		is   messages.State
		body string
		ok   bool
	}{
		{"an answer", messages.Enroll, messages.Succeeded, body, true},
		{"an answer without a link", messages.Enroll, messages.Succeeded, `{"enrollment":{}}`, false},
		{"a body that cannot be read", messages.Enroll, messages.Succeeded, `{"enrollment":7}`, false},
		{"what was found out later", messages.Enroll, messages.Resolved, body, false},
		{"mail", messages.Send, messages.Accepted, body, false},
	} {
		link, ok := errand.Succeeded{Event: errand.Event{Operation: c.op, State: c.is, Data: []byte(c.body)}}.Link()
		if ok != c.ok || ok != (link == "https://pay.example/1") || !ok && link != "" {
			t.Errorf("%s: %q, %t", c.what, link, ok)
		}
	}
}

// The id has a history of other contents. What is a conflict is reported under the position,
// a correction has another event in the end.
func TestWaitTakesNoOtherRequestsOutcomeForItsOwn(t *testing.T) {
	w := newWorld(t)
	before := w.publish(letter("taken", "x"))
	w.store("mail.send.accepted.taken", own(before, ""))
	r := w.publish(letter("taken", "other contents"))
	if o, err := w.wait(r, 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, %v", o, err)
	}
	w.store("mail.send.failed."+r.Position(), own(r, `,"reason":"conflict","conflicts_with":"taken"`))
	failed, ok := w.want(r, "mail.send.failed."+r.Position()).(errand.Failed)
	if !ok || failed.Reason != messages.ReasonConflict || failed.ConflictsWith != "taken" {
		t.Errorf("got %+v", failed)
	}

	wrong := w.publish(letter("corrected", "x"))
	w.store("mail.send.failed.corrected", own(wrong, `,"reason":"refused"`))
	right := w.publish(letter("corrected", "better"))
	w.store("mail.send.reopened.corrected", own(right, ""))
	if e, err := w.client.Last(t.Context(), right); err != nil || e.State != messages.Reopened {
		t.Errorf("its last event is %v, %v", e, err)
	}
	w.store("mail.send.accepted.corrected", own(right, ""))
	w.want(right, "mail.send.accepted.corrected")
}

// Who waits with the receipt of what failed is told so, whatever became of the correction; and not who published the same again.
func TestWaitSaysThatARequestWasCorrected(t *testing.T) {
	w := newWorld(t)
	wrong := w.publish(letter("corrected", "x"))
	w.store("mail.send.failed.corrected", own(wrong, `,"reason":"refused"`))
	w.want(wrong, "mail.send.failed.corrected")
	right := w.publish(letter("corrected", "better"))
	w.store("mail.send.reopened.corrected", own(right, ""))
	for _, state := range []string{"started", "failed", "reopened", "accepted"} {
		w.store("mail.send."+state+".corrected", own(right, ""))
		o, err := w.wait(wrong, 10*time.Second)
		if !errors.Is(err, errand.ErrCorrected) || !strings.Contains(err.Error(), "mail.send.failed.corrected: refused") {
			t.Errorf("after %s: %v, %v", state, o, err)
		}
	}
	again := wrong
	again.Published = time.Now().Add(2 * time.Minute)
	if o, err := w.wait(again, 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of the same contents, published again: %v, %v", o, err)
	}
}

// The outcome is stored after the server started again: who waited before hears it.
func TestReadersSurviveARestartOfTheServer(t *testing.T) {
	w := newWorld(t)
	r := w.publish(letter("away", "x"))
	o, err := w.client.Outcomes(t.Context(), "billing", messages.Send, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	w.store("mail.send.started.away", own(r, ""))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	began, got := make(chan struct{}), make(chan string, 3)
	go func() {
		o, err := w.client.Wait(ctx, r)
		got <- fmt.Sprintf("wait %T %v", o, err)
	}()
	go func() {
		for e, err := range w.client.Follow(ctx, r) {
			if e.State == messages.Started {
				close(began)
			}
			if err != nil || e.Final() {
				got <- fmt.Sprint("follow ", e.Subject, err)
				return
			}
		}
	}()
	go func() {
		err := o.Run(ctx, func(_ context.Context, o errand.Outcome) error {
			got <- "outcomes " + o.About().Subject
			return nil
		})
		if err != nil && ctx.Err() == nil {
			got <- fmt.Sprint("outcomes ", err)
		}
	}()
	<-began
	if err := w.n.Restart(); err != nil {
		t.Fatal(err)
	}
	other, err := w.n.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	js, err := jetstream.New(other)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "mail.send.accepted.away", []byte(own(r, ""))); err != nil {
		t.Fatal(err)
	}
	all := []string{<-got, <-got, <-got}
	slices.Sort(all)
	want := []string{"follow mail.send.accepted.away<nil>", "outcomes mail.send.accepted.away", "wait errand.Succeeded <nil>"}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Error(diff)
	}
}

func TestWithoutEventsTheErrorSaysSo(t *testing.T) {
	w := newWorld(t)
	r := w.publish(letter("a", "x"))
	if err := w.js.DeleteStream(t.Context(), "MAIL_EVENTS"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.wait(r, 10*time.Second); !errors.Is(err, errand.ErrNoEvents) {
		t.Errorf("wait: %v", err)
	}
	for _, err := range w.client.Follow(t.Context(), r) {
		if !errors.Is(err, errand.ErrNoEvents) {
			t.Errorf("follow: %v", err)
		}
	}
	if _, err := w.client.Outcomes(t.Context(), "billing", messages.Send, time.Time{}); !errors.Is(err, errand.ErrNoEvents) {
		t.Errorf("outcomes: %v", err)
	}
}

func TestAMistypedOperationIsNamed(t *testing.T) {
	w := newWorld(t)
	const mistyped messages.Operation = "mail.sned"
	r := errand.Receipt{Operation: mistyped, RequestID: "r1", Stream: "MAIL_REQUESTS", Sequence: 1}
	_, outcomes := w.client.Outcomes(t.Context(), "billing", mistyped, time.Time{})
	_, wait := w.wait(r, 10*time.Second)
	_, last := w.client.Last(t.Context(), r)
	var follow error
	for _, follow = range w.client.Follow(t.Context(), r) {
	}
	for name, err := range map[string]error{"Outcomes": outcomes, "Wait": wait, "Last": last, "Follow": follow} {
		if err == nil || !strings.Contains(err.Error(),
			`operation must be one of [mandate.enroll mandate.transactions mail.send mail.account], got "mail.sned"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAPrintedOutcomeShowsNothingOfItsBody(t *testing.T) {
	w := newWorld(t)
	r := w.publish(letter("r1", "1"))
	w.store("mail.send.failed.r1", `{"reason":"refused","message":"ann@example.com is unknown","fingerprint":"`+r.Fingerprint+`"}`)
	o := w.want(r, "mail.send.failed.r1")
	for format, want := range map[string]string{"%v": "mail.send.failed.r1: refused", "%+v": "mail.send.failed.r1: refused",
		"%s": "mail.send.failed.r1: refused"} {
		if got := fmt.Sprintf(format, o); got != want {
			t.Errorf("%s: %s, want %s", format, got, want)
		}
	}
	if got := fmt.Sprint(o.About()); got != "mail.send.failed.r1" {
		t.Errorf("the event is printed as %s", got)
	}
}

func TestFollowShowsEveryEventOfARequestInOrder(t *testing.T) {
	w := newWorld(t)
	r := w.publish(letter("news", "x"))
	want := []string{"mail.send.started.news", "mail.batch.started.news.1", "mail.batch.accepted.news.1", "mail.send.uncertain.news",
		"mail.send.resolved.news"}
	for _, subject := range want[:3] {
		w.store(subject, own(r, ""))
	}
	w.store("mail.send.accepted.other", `{}`)
	var got []string
	for e, err := range w.client.Follow(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.Subject); len(got) == 3 {
			w.store(want[3], own(r, ""))
			w.store(want[4], own(r, `,"outcome":"accepted"`))
		}
		if e.State == messages.Resolved {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range w.client.Follow(ctx, r) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a context that has ended: %v", err)
		}
	}
}

// run collects outcomes until there are n of them.
func run(t *testing.T, o *errand.Outcomes, n int, handle func(e errand.Event) error) (got []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := o.Run(ctx, func(_ context.Context, outcome errand.Outcome) error {
		e := outcome.About()
		if got = append(got, fmt.Sprintf("%T %s", outcome, e.Subject)); len(got) == n {
			cancel()
		}
		return handle(e)
	})
	if err != nil {
		t.Errorf("run: %v", err)
	}
	return got
}

func TestOutcomesBeginNowAndMissNothingAfterThat(t *testing.T) {
	w := newWorld(t)
	began := time.Now()
	w.store("mail.send.accepted.old", `{}`)
	outcomes := func(durable string, since time.Time) *errand.Outcomes {
		o, err := w.client.Outcomes(t.Context(), durable, messages.Send, since)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	outcomes("billing", time.Time{})
	for _, subject := range []string{"mail.send.started.a", "mail.batch.accepted.a.1", "mail.account.failed.b", "mail.send.uncertain.a",
		"mail.send.resolved.a"} {
		w.store(subject, `{"outcome":"failed"}`)
	}
	fine := func(errand.Event) error { return nil }
	want := []string{"errand.Uncertain mail.send.uncertain.a", "errand.Resolved mail.send.resolved.a"}
	if diff := cmp.Diff(want, run(t, outcomes("billing", time.Time{}), 2, fine)); diff != "" {
		t.Error(diff)
	}
	all := append([]string{"errand.Succeeded mail.send.accepted.old"}, want...)
	if diff := cmp.Diff(all, run(t, outcomes("archive", began), 3, fine)); diff != "" {
		t.Error(diff)
	}
	w.store("mail.send.accepted.new", `{}`)
	if diff := cmp.Diff([]string{"errand.Succeeded mail.send.accepted.new"}, run(t, outcomes("billing", time.Time{}), 1, fine)); diff != "" {
		t.Errorf("after a pause: %s", diff)
	}
	if _, err := w.client.Outcomes(t.Context(), "billing", messages.Account, time.Time{}); err == nil ||
		!strings.Contains(err.Error(), "another name") {
		t.Errorf("the same name for another operation: %v", err)
	}
}

func TestAnOutcomeWhoseHandlerFailsComesAgainAndHoldsUpNobody(t *testing.T) {
	w := newWorld(t)
	o, err := w.client.Outcomes(t.Context(), "billing", messages.Send, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		w.store("mail.send.accepted."+id, `{}`)
	}
	tries := 0
	got := run(t, o, 3, func(e errand.Event) error {
		if tries++; tries == 1 {
			return errors.New("not now")
		}
		return nil
	})
	want := []string{"errand.Succeeded mail.send.accepted.a", "errand.Succeeded mail.send.accepted.b", "errand.Succeeded mail.send.accepted.a"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOutcomesHandOverWhatTheFilterSelects(t *testing.T) {
	w := newWorld(t)
	for i, c := range []struct {
		only errand.Filter
		want []string
	}{
		{errand.Filter{States: []messages.State{messages.Failed, messages.Resolved}},
			[]string{"failed.in-1", "failed.MAIL_REQUESTS-9", "resolved.in-2"}},
		{errand.Filter{Reasons: []messages.Reason{messages.ReasonConflict}}, []string{"failed.MAIL_REQUESTS-9", "accepted.last"}},
		{errand.Filter{Prefix: "in-"}, []string{"failed.in-1", "failed.MAIL_REQUESTS-9", "resolved.in-2"}},
		{errand.Filter{Prefix: "in-", Reasons: []messages.Reason{messages.ReasonRefused}}, []string{"failed.in-1"}},
	} {
		o, err := w.client.Outcomes(t.Context(), fmt.Sprint("filtered", i), messages.Send, time.Now().Add(-time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		o.Only = c.only
		if i == 0 {
			w.store("mail.send.accepted.other", `{}`)
			w.store("mail.send.failed.in-1", `{"reason":"refused"}`)
			w.store("mail.send.failed.MAIL_REQUESTS-9", `{"reason":"conflict","conflicts_with":"in-5"}`)
			w.store("mail.send.resolved.in-2", `{"outcome":"accepted"}`)
			w.store("mail.send.accepted.last", `{"reason":"conflict"}`)
		}
		got := run(t, o, len(c.want), func(errand.Event) error { return nil })
		for i, subject := range got {
			_, got[i], _ = strings.Cut(subject, " mail.send.")
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%+v: %s", c.only, diff)
		}
	}
}

func TestOutcomesEndWhenTheirConsumerIsDeleted(t *testing.T) {
	w := newWorld(t)
	o, err := w.client.Outcomes(t.Context(), "billing", messages.Send, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	w.store("mail.send.accepted.a", `{}`)
	err = o.Run(t.Context(), func(ctx context.Context, _ errand.Outcome) error {
		return w.js.DeleteConsumer(ctx, "MAIL_EVENTS", "billing")
	})
	if err == nil {
		t.Error("it ended without an error")
	}
}

// A receipt is kept beside what the request is about, and waited for by another process.
func TestAReceiptOutlivesItsProcess(t *testing.T) {
	w := newWorld(t)
	r := w.publish(letter("kept", "x"))
	w.store("mail.send.accepted.kept", own(r, ""))
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again errand.Receipt
	if err := json.Unmarshal(text, &again); err != nil || again != r {
		t.Fatalf("%s: %v", text, err)
	}
	w.want(again, "mail.send.accepted.kept")
}

// A receipt may be made from what a stranger sent: a wildcard would read another request's events.
func TestNobodyWaitsForAllRequests(t *testing.T) {
	c := errand.New(nil)
	for _, id := range []string{"*", ">", "", "a b", "a.b"} {
		r := errand.Receipt{Operation: messages.Send, RequestID: id}
		if o, err := c.Wait(t.Context(), r); err == nil {
			t.Errorf("wait for %q: %v", id, o)
		}
		if e, err := c.Last(t.Context(), r); err == nil {
			t.Errorf("the last of %q: %v", id, e)
		}
	}
}

// The connection gave up, or was closed: nothing is tried again.
func TestWithAClosedConnectionTheErrorSaysSo(t *testing.T) {
	w := newWorld(t)
	r := w.publish(letter("a", "x"))
	o, err := w.client.Outcomes(t.Context(), "billing", messages.Send, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	during := make(chan error, 2)
	go func() { _, err := w.client.Wait(t.Context(), r); during <- err }()
	go func() { during <- o.Run(t.Context(), func(context.Context, errand.Outcome) error { return nil }) }()
	<-time.After(100 * time.Millisecond)
	w.js.Conn().Close()
	began := time.Now()
	_, wait := w.client.Wait(t.Context(), r)
	_, publish := w.client.Publish(t.Context(), letter("b", "x"))
	_, msg := w.client.PublishMsg(t.Context(), &nats.Msg{Subject: "mail.account.requested", Data: []byte(`{}`)})
	_, outcomes := w.client.Outcomes(t.Context(), "billing", messages.Send, time.Time{})
	var follow error
	for _, follow = range w.client.Follow(t.Context(), r) {
	}
	all := map[string]error{"Wait": wait, "Publish": publish, "PublishMsg": msg, "Outcomes": outcomes, "Follow": follow,
		"Run": o.Run(t.Context(), nil)}
	took := time.Since(began)
	all["during 1"], all["during 2"] = <-during, <-during
	for what, err := range all {
		if !errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, errand.ErrNoAck) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if total := time.Since(began); took > time.Second || total > 5*time.Second {
		t.Errorf("it took %v, and %v for all", took, total)
	}
}
