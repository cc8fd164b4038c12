package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/devkit/devtest"
	"errand/pkg/messages"
)

func TestFieldsBecomeJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ field, want string }{
		{`amount=100.50`, `{"amount":100.50}`},
		{`amount=-1e3`, `{"amount":-1e3}`},
		{`payer_id=900101011234`, `{"payer_id":900101011234}`},
		{`payer_id=0900101011234`, `{"payer_id":"0900101011234"}`}, // not a JSON number: the zero stays
		{`order_number="1001"`, `{"order_number":"1001"}`},
		{`order_number=DD001`, `{"order_number":"DD001"}`},
		{`as_html=true`, `{"as_html":true}`},
		{`as_html=True`, `{"as_html":"True"}`},
		{`metadata=null`, `{"metadata":"null"}`},
		{`metadata=`, `{"metadata":""}`},
		{`metadata=a=b`, `{"metadata":"a=b"}`},
		{`to=a@x.test,b@x.test`, `{"to":"a@x.test,b@x.test"}`},
		{`to=["a@x.test", "b@x.test"]`, `{"to":["a@x.test", "b@x.test"]}`},
		{`to="A, B" <a@x.test>`, `{"to":"\"A, B\" <a@x.test>"}`},
		{`headers={"X-A":"1"}`, `{"headers":{"X-A":"1"}}`},
		{`content=<p>&`, `{"content":"<p>&"}`},
		{`content={not json`, `{"content":"{not json"}`},
	} {
		got, err := object([]string{c.field})
		if err != nil || string(got) != c.want {
			t.Errorf("--field %q: got %s, %v, want %s", c.field, got, err, c.want)
		}
	}
}

func TestFieldsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	got, err := object([]string{"b=1", "a=2", "c=x"})
	if want := `{"b":1,"a":2,"c":"x"}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestInvalidFieldsAreRefused(t *testing.T) {
	t.Parallel()
	for _, fields := range [][]string{{"amount"}, {"=1"}, {"a=1", "a=2"}} {
		if got, err := object(fields); !isInvalid(err) {
			t.Errorf("--field %q: got %s, %v, want a configuration error", fields, got, err)
		}
	}
}

func TestPublishRefusesWhatIsNotARequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what string
		args []string
	}{
		{"mandate.enroll.requested, mandate.transactions.requested, mail.send.requested, mail.account.requested", []string{"mail.send"}},
		{"takes no requests", []string{"mail.send.accepted.X"}},
		{"request is empty", []string{"mail.send.requested"}},
		{"not both", []string{"mail.send.requested", "-f", "a=1", "--file", "x"}},
		{"no such file", []string{"mail.send.requested", "--file", "testdata/none.json"}},
		{"--timeout", []string{"mail.account.requested", "--wait", "--timeout", "0s"}},
	} {
		misconfigured(t, c.what, append([]string{"publish"}, c.args...)...)
	}
}

func TestPublishWithoutStreamsSaysWhatToRun(t *testing.T) {
	t.Parallel()
	n := devtest.Server(t)
	refused(t, "run `errand provision`", "publish", "--nats-url", n.URL, "mail.account.requested")
}

// stored returns the message with a sequence.
func stored(t *testing.T, js jetstream.JetStream, stream string, seq uint64) *jetstream.RawStreamMsg {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetMsg(t.Context(), seq)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPublishNamesTheRequestAndKeepsItsBytes(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	for i, c := range []struct{ body, id, header string }{
		{" {\"order_number\" : \"DD1\"}\n", "", ""}, // the command chooses an id, in the header
		{`{"request_id": "mine"}`, "mine", ""},
		{`{"request_id": "no id"}`, "MANDATE_REQUESTS-3", ""},
		{`{"order_number": `, "MANDATE_REQUESTS-4", ""},
	} {
		id := strings.TrimSpace(errand(t, c.body, "publish", "--nats-url", n.URL, "mandate.transactions.requested"))
		m := stored(t, js, "MANDATE_REQUESTS", uint64(i+1))
		if string(m.Data) != c.body {
			t.Errorf("%q: stored as %q", c.body, m.Data)
		}
		if c.id == "" {
			c.id, c.header = id, id
		}
		if got := m.Header.Get(nats.MsgIdHdr); id != c.id || got != c.header || id == "" {
			t.Errorf("%q: printed id %q, header %q; want %q, %q", c.body, id, got, c.id, c.header)
		}
	}
}

// JetStream's duplicate window spans the operations of a stream: the second of two requests
// with one Nats-Msg-Id is acknowledged and gone.
func TestPublishSaysThatJetStreamDroppedTheRequest(t *testing.T) {
	t.Parallel()
	_, js := provisioned(t)
	b := broker{js.Conn(), js}
	first, second := newRequest(messages.Enroll, []byte(`{}`)), newRequest(messages.Transactions, []byte(`{}`))
	if err := first.publish(t.Context(), b); err != nil || !strings.HasPrefix(first.id, "enroll-") {
		t.Fatalf("%s: %v", first.id, err)
	}
	second.header = first.header
	if err := second.publish(t.Context(), b); err == nil || !strings.Contains(err.Error(), "not stored") || !strings.Contains(err.Error(), first.id) {
		t.Errorf("got %v, want that it was not stored, and the id", err)
	}
}

// It must not be published again under another id, and not be provisioned in the account
// of a service.
func TestWaitWithoutTheEventsSaysThatTheRequestIsPublished(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	if err := js.DeleteStream(t.Context(), "MAIL_EVENTS"); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"once is published, but", "errand mirror"} {
		refused(t, what, "publish", "--nats-url", n.URL, "mail.account.requested", "--wait", "-f", "request_id=once")
	}
}

func TestPublishOfALargeRequestSaysWhatToDo(t *testing.T) {
	t.Parallel()
	n, _ := provisioned(t)
	for _, length := range []int{1<<20 - 1000, 2 << 20} { // over the stream's limit, and over the server's
		var term terminal
		err := term.errand(t.Context(), fmt.Sprintf(`{"content":%q}`, strings.Repeat("x", length)), "publish", "--nats-url", n.URL, "mail.send.requested")
		if err == nil || !strings.Contains(err.Error(), "to_object") {
			t.Errorf("%d bytes: got %v, want an error that names to_object", length, err)
		}
	}
}

// answer stores an event as a program would.
func answer(t *testing.T, js jetstream.JetStream, subject, body string) {
	t.Helper()
	if _, err := js.Publish(t.Context(), subject, []byte(body)); err != nil {
		t.Fatal(err)
	}
}

func TestWaitFindsAStoredOutcome(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	answer(t, js, "mail.account.reported.known", `{"request_id":"known","account":{}}`)
	out := errand(t, "", "publish", "--nats-url", n.URL, "mail.account.requested", "--wait", "-f", "request_id=known")
	want := "mail.account.reported.known\n{\n  \"request_id\": \"known\",\n  \"account\": {}\n}\n"
	if diff := cmp.Diff(want, out); diff != "" {
		t.Error(diff)
	}
}

func TestWaitSeesAnOutcomeThatArrives(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	queue, err := js.Consumer(t.Context(), "MAIL_REQUESTS", "mail-send")
	if err != nil {
		t.Fatal(err)
	}
	programs := make(chan struct{})
	go func() {
		defer close(programs)
		m, err := queue.Next()
		if err != nil {
			t.Error(err)
			return
		}
		id := m.Headers().Get(nats.MsgIdHdr)
		for _, state := range []string{"started", "accepted"} {
			if _, err := js.Publish(t.Context(), "mail.send."+state+"."+id, []byte(`{}`)); err != nil {
				t.Error(err)
			}
		}
	}()
	out := errand(t, "", "publish", "--nats-url", n.URL, "mail.send.requested", "-w", "-f", "to=a@x.test", "-f", "subject=s", "-f", "content=c")
	if !strings.HasPrefix(out, "mail.send.accepted.") {
		t.Errorf("got %q, want the final event", out)
	}
	<-programs
}

func TestWaitFailsUnlessTheOutcomeIsGood(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	for i, c := range []struct{ state, body, what string }{
		{"failed", `{"reason":"refused","message":"no such sender"}`, "mail.send ended failed: refused: no such sender"},
		{"partial", `{"recipients":3,"accepted":2}`, "2 of 3 recipients accepted"},
		{"uncertain", `{"reason":"no_answer"}`, "mail.send ended uncertain: no_answer"},
		{"resolved", `{"outcome":"failed"}`, "mail.send ended failed"},
	} {
		id := fmt.Sprintf("id%d", i)
		answer(t, js, "mail.send."+c.state+"."+id, c.body)
		refused(t, c.what, "publish", "--nats-url", n.URL, "mail.send.requested", "--wait", "-f", "request_id="+id)
	}
}

// The id belongs to an earlier request with different contents, which succeeded.
func TestWaitDoesNotTakeTheOutcomeOfAnotherRequest(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	answer(t, js, "mandate.transactions.listed.taken", `{"request_id":"taken","fingerprint":"other"}`)
	answer(t, js, "mandate.transactions.failed.MANDATE_REQUESTS-1", `{"reason":"conflict","conflicts_with":"taken"}`)
	refused(t, "ended failed: conflict", "publish", "--nats-url", n.URL, "mandate.transactions.requested", "--wait", "-f", "request_id=taken")
}

func TestWaitEndsInTimeAndShowsTheLastEvent(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	args := []string{"publish", "--nats-url", n.URL, "mail.account.requested", "--wait", "-f", "request_id=slow"}
	refused(t, "no program has started it", append(args, "--timeout", "200ms")...)
	answer(t, js, "mail.account.deferred.slow", `{}`)
	refused(t, "its last event is mail.account.deferred.slow", append(args, "--timeout", "1s")...)
}

func TestRequestIDIsChosenOnlyIfTheBodyHasNone(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{}`, `{"request_id":null}`, `{"request_id":""}`} {
		r := newRequest(messages.Account, []byte(body))
		if !messages.ValidID(r.id) || r.header.Get(nats.MsgIdHdr) != r.id {
			t.Errorf("%s: got id %q, header %v", body, r.id, r.header)
		}
	}
	if r := newRequest(messages.Account, []byte(`{"request_id":"a"}`)); r.id != "a" || len(r.header) > 0 {
		t.Errorf("a body that names one: got id %q, header %v", r.id, r.header)
	}
}

// within is a context that ends a hanging test.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), d)
	t.Cleanup(stop)
	return ctx
}
