package errand_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/errand"
	"errand/pkg/messages"
)

func TestAnEventUnderThePositionThatIsOfOtherContentsIsNoOutcome(t *testing.T) {
	w := newWorld(t)
	// The queue was made again since, and counts from 1.
	w.store("mail.send.failed.MAIL_REQUESTS-1",
		`{"request_id":"MAIL_REQUESTS-1","fingerprint":"of another","reason":"conflict","conflicts_with":"other"}`)
	r := w.publish(letter("mine", "new"))
	if o, err := w.wait(r, 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the outcome is %v, %v, want none: it is another request's", o, err)
	}
	w.store("mail.send.accepted.mine", own(r, ""))
	w.want(r, "mail.send.accepted.mine")
}

// late is a JetStream in which another program makes a consumer right after it was looked for.
type late struct {
	jetstream.JetStream
	other func()
}

func (l late) Consumer(ctx context.Context, stream, name string) (jetstream.Consumer, error) {
	c, err := l.JetStream.Consumer(ctx, stream, name)
	if l.other != nil && errors.Is(err, jetstream.ErrConsumerNotFound) {
		l.other()
	}
	return c, err
}

func TestTwoThatMakeTheSameConsumerAtOnceShareIt(t *testing.T) {
	w := newWorld(t)
	since := time.Now().Add(-time.Hour)
	second := errand.New(late{w.js, func() {
		if _, err := w.client.Outcomes(t.Context(), "shop", messages.Send, since.Add(time.Second)); err != nil {
			t.Error(err)
		}
	}})
	if _, err := second.Outcomes(t.Context(), "shop", messages.Send, since); err != nil {
		t.Error(err)
	}
}

// answered is a JetStream that stores every message, and whose answers are these errors first.
type answered struct {
	jetstream.JetStream
	with  []error
	calls atomic.Int64
}

func (a *answered) PublishMsg(ctx context.Context, m *nats.Msg, o ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	n := a.calls.Add(1)
	ack, err := a.JetStream.PublishMsg(ctx, m, o...)
	if n <= int64(len(a.with)) {
		return nil, a.with[n-1]
	}
	return ack, err
}

var (
	lost      = nats.ErrTimeout
	inProcess = &jetstream.APIError{Code: 409, ErrorCode: 10158, Description: "duplicate message id is in process"}
	full      = &jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum bytes exceeded"}
)

func TestARequestIsPublishedAgainUntilItIsAcknowledgedAndStoredOnce(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		r    messages.Request
		with []error
	}{
		"answers are lost":                {letter("lost", "x"), []error{lost, lost, lost}},
		"it is being stored":              {letter("process", "x"), []error{inProcess}},
		"then it seems not to be stored":  {letter("then", "x"), []error{lost, full, jetstream.ErrNoStreamResponse, nats.ErrMaxPayload}},
		"a request that has no id":        {messages.AccountRequest{}, []error{lost, lost}},
		"a correction, and a lost answer": {letter("lost", "y"), []error{lost}},
	} {
		js := &answered{JetStream: w.js, with: c.with}
		before := w.queued()
		r, err := errand.New(js).Publish(t.Context(), c.r)
		if err != nil || !r.Duplicate || r.RequestID == r.Position() || js.calls.Load() != int64(len(c.with)+1) || w.queued() != before+1 {
			t.Errorf("%s: %+v, %v after %d attempts; %d are stored", name, r, err, js.calls.Load(), w.queued()-before)
		}
	}
}

func TestAfterALostAnswerNoErrorSaysThatNothingWasStored(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		with    []error
		want    []error
		not     error
		publish func(*errand.Client, context.Context) error
		calls   func(int64) bool
	}{
		"not stored, at once": {with: []error{full}, want: []error{full}, not: errand.ErrNoAck, calls: func(n int64) bool { return n == 1 }},
		"lost, then not stored": {with: append([]error{lost}, slices.Repeat([]error{full}, 1000)...), want: []error{errand.ErrNoAck, full},
			calls: func(n int64) bool { return n > 2 }},
		"lost, then no stream": {with: append([]error{lost}, slices.Repeat([]error{nats.ErrNoResponders}, 1000)...),
			want: []error{errand.ErrNoAck, errand.ErrNotTaken}, calls: func(n int64) bool { return n > 2 }},
		"without an id": {with: []error{lost}, want: []error{errand.ErrNoAck, lost}, publish: func(c *errand.Client, ctx context.Context) error {
			_, err := c.PublishMsg(ctx, &nats.Msg{Subject: "mail.account.requested", Data: []byte(`{}`)})
			return err
		}, calls: func(n int64) bool { return n == 1 }},
	} {
		js := &answered{JetStream: w.js, with: c.with}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if c.publish == nil {
			c.publish = func(client *errand.Client, ctx context.Context) error {
				_, err := client.Publish(ctx, letter("a", "x"))
				return err
			}
		}
		err := c.publish(errand.New(js), ctx)
		cancel()
		for _, want := range c.want {
			if !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", name, err, want)
			}
		}
		if c.not != nil && errors.Is(err, c.not) || !c.calls(js.calls.Load()) {
			t.Errorf("%s: got %v after %d attempts", name, err, js.calls.Load())
		}
	}
}

// The answer never comes: the server drops what is published.
func TestWhoMayNotPublishHearsItBeforeTheContextEnds(t *testing.T) {
	t.Parallel()
	n := devtest.Configured(t, `authorization { users: [ { user: reader, password: x, permissions: { publish: "$JS.API.>" } } ] }`)
	nc, err := nats.Connect(n.URL, nats.UserInfo("reader", "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = errand.New(js).Publish(t.Context(), letter("a", "x"))
	if took := time.Since(began); !errors.Is(err, errand.ErrNoAck) || took > 20*time.Second {
		t.Errorf("got %v after %v, want ErrNoAck after five seconds", err, took)
	}
}

func TestThousandsArePublishedInOneWait(t *testing.T) {
	w := newWorld(t)
	var all []messages.Request
	for i := range 5000 {
		all = append(all, letter(fmt.Sprint("n", i), "x"))
	}
	all[17] = messages.SendRequest{RequestID: "n17"}
	all[4711] = letter("n4711", strings.Repeat("x", 2<<20))
	receipts, errs := w.client.PublishAll(t.Context(), all...)
	for i, err := range errs {
		switch invalid := new(messages.Invalid); {
		case i == 17 && errors.As(err, &invalid), i == 4711 && errors.Is(err, errand.ErrTooLarge):
		case err != nil || receipts[i].RequestID != fmt.Sprint("n", i) || receipts[i].Sequence == 0:
			t.Fatalf("request %d: %+v, %v", i, receipts[i], err)
		}
	}
	if n := w.queued(); n != 4998 || len(receipts) != 5000 || len(errs) != 5000 {
		t.Errorf("%d are stored, with %d receipts and %d errors", n, len(receipts), len(errs))
	}
	if receipts, errs := w.client.PublishAll(t.Context()); len(receipts)+len(errs) > 0 {
		t.Errorf("of none: %v, %v", receipts, errs)
	}
}

func TestARequestCarriesTheTraceOfItsContext(t *testing.T) {
	w := newWorld(t)
	type key struct{}
	w.client.Trace = func(ctx context.Context) map[string]string {
		parent, _ := ctx.Value(key{}).(string)
		return map[string]string{"traceparent": parent, "tracestate": "", "baggage": "ann@example.com"}
	}
	own := &nats.Msg{Subject: "mail.account.requested", Data: []byte(`{}`), Header: nats.Header{"traceparent": {"00-own"}}}
	with := context.WithValue(t.Context(), key{}, "00-parent")
	bare := &nats.Msg{Subject: "mail.account.requested", Data: []byte(`{}`)}
	for i, c := range []struct {
		ctx  context.Context
		m    *nats.Msg
		want string
	}{{with, bare, "00-parent"}, {t.Context(), bare, ""}, {with, own, "00-own"}} {
		r, err := w.client.PublishMsg(c.ctx, c.m)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := w.js.Stream(t.Context(), r.Stream)
		if err != nil {
			t.Fatal(err)
		}
		m, err := stream.GetMsg(t.Context(), r.Sequence)
		if err != nil || m.Header.Get("traceparent") != c.want || m.Header.Get("baggage") != "" || len(m.Header["tracestate"]) > 0 {
			t.Errorf("%d: the header is %v, %v, want %q", i, m.Header, err, c.want)
		}
	}
}

// queued counts the requests to the mail service.
func (w *world) queued() uint64 {
	w.t.Helper()
	s, err := w.js.Stream(w.t.Context(), "MAIL_REQUESTS")
	if err != nil {
		w.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}
