package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/programs"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	"errand/internal/typo"
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
		{`order_number=1001`, `{"order_number":"1001"}`}, // a text is one, whatever it looks like
		{`content=[1]`, `{"content":"[1]"}`},
		{`subject="Hello"`, `{"subject":"Hello"}`},
		{`metadata={"a":1}`, `{"metadata":"{\"a\":1}"}`},
		{`as_html=true`, `{"as_html":true}`},
		{`as_html=True`, `{"as_html":"True"}`},
		{`metadata=null`, `{"metadata":"null"}`},
		{`metadata=`, `{"metadata":""}`},
		{`metadata=a=b`, `{"metadata":"a=b"}`},
		{`to=a@x.test,b@x.test`, `{"to":"a@x.test,b@x.test"}`},
		{`to=["a@x.test", "b@x.test"]`, `{"to":["a@x.test","b@x.test"]}`},
		{`to="A, B" <a@x.test>`, `{"to":"\"A, B\" <a@x.test>"}`},
		{`headers={"X-A":"1"}`, `{"headers":{"X-A":"1"}}`},
		{`content=<p>&`, `{"content":"<p>&"}`},
		{`content={not json`, `{"content":"{not json"}`},
	} {
		op := messages.Send
		if name, _, _ := strings.Cut(c.field, "="); slices.Contains(jsonNames(requests[messages.Enroll], nil), name) {
			op = messages.Enroll
		}
		got, err := object(op, []string{c.field})
		if err != nil || string(got) != c.want {
			t.Errorf("--field %q: got %s, %v, want %s", c.field, got, err, c.want)
		}
	}
}

func TestInvalidFieldsAreRefused(t *testing.T) {
	t.Parallel()
	for _, fields := range [][]string{{"amount"}, {"=1"}, {"a=1", "a=2"}, {"payer_name=Jos\xe9"}, {"na\xffme=x"}} {
		if got, err := object(messages.Enroll, fields); !isInvalid(err) {
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
		{`got "mail.send.accepted.X"`, []string{"mail.send.accepted.X"}},
		{`got "mail.send.requested.lane.Bulk": a lane is of enroll or send`, []string{"mail.send.requested.lane.Bulk"}},
		{"lane is not a known field: publish to mail.send.requested.lane.NAME", []string{"mail.send.requested", "-f", "lane=bulk"}},
		{"request is empty", []string{"mail.send.requested"}},
		{"must not be used together", []string{"mail.send.requested", "-f", "a=1", "--file", "x"}},
		{"no such file", []string{"mail.send.requested", "--file", "testdata/none.json"}},
		{"--timeout", []string{"mail.account.requested", "--wait", "--timeout", "0s"}},
	} {
		misconfigured(t, c.what, append([]string{"publish"}, c.args...)...)
	}
}

func TestPublishWithoutStreamsSaysWhatToRun(t *testing.T) {
	t.Parallel()
	n := devtest.Server(t)
	refused(t, "was `errand provision` run?", "publish", "--nats-url", n.URL, "mail.account.requested")
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
	for i, c := range []struct {
		body, id string
		args     []string
	}{
		{" {\"order_number\" : \"DD1\"}\n", "", nil}, // the command chooses an id, in the header
		{`{"request_id": "mine"}`, "mine", nil},
		{`{"request_id": "no id"}`, "MANDATE_REQUESTS-3", []string{"--send-anyway"}},
		{`{"order_number": `, "MANDATE_REQUESTS-4", []string{"--send-anyway"}},
	} {
		id := strings.TrimSpace(errand(t, c.body, append([]string{"publish", "--nats-url", n.URL, "mandate.transactions.requested"},
			c.args...)...))
		m := stored(t, js, "MANDATE_REQUESTS", uint64(i+1))
		if string(m.Data) != c.body {
			t.Errorf("%q: stored as %q", c.body, m.Data)
		}
		if c.id == "" {
			if c.id = m.Header.Get(nats.MsgIdHdr); !strings.HasPrefix(c.id, "transactions-") || !messages.ValidID(c.id) {
				t.Errorf("the id that it chose is %q", c.id)
			}
		}
		if id != c.id {
			t.Errorf("%q: printed id %q, want %q", c.body, id, c.id)
		}
	}
}

// What breaks a rule is named whole, and nothing is published.
func TestPublishRefusesWhatTheProgramsWouldRefuse(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	var term terminal
	err := term.errand(t.Context(), `{"to":"a@x.test","subjet":"s","contnet":"c","xyzzy":1,"to_object":{"bukket":"b"}}`, "publish",
		"--nats-url", n.URL, "mail.send.requested")
	want := `not published: the request breaks a rule (--send-anyway publishes it nevertheless):
  content is required
  contnet is not a known field: did you mean content?
  subject is required
  subjet is not a known field: did you mean subject?
  to_object bukket is not a known field: did you mean bucket?
  to_object bucket is required
  to_object digest is required
  to_object name is required
  to_object must not be given beside to
  xyzzy is not a known field`
	if !isInvalid(err) || err == nil || sorted(err.Error()) != sorted(want) {
		t.Errorf("got %v, want a configuration error\n%s", err, want)
	}
	s, err := js.Stream(t.Context(), "MAIL_REQUESTS")
	if err != nil || s.CachedInfo().State.LastSeq > 0 {
		t.Errorf("it was published, or %v", err)
	}
}

// sorted has the lines of a text in their order: the rules of one field have none.
func sorted(text string) string {
	return strings.Join(slices.Sorted(strings.SplitSeq(text, "\n")), "\n")
}

func TestMistypedNamesAreRecognized(t *testing.T) {
	t.Parallel()
	fields := jsonNames(requests[messages.Enroll], nil)
	for name, want := range map[string]string{
		"order_no": "", "ordernumber": "order_number", "order_numebr": "order_number", "Amount": "amount", "amuont": "amount",
		"payer_mail": "payer_email", "succes_url": "success_url", "nothing_like_it": "", "x": "", "": "",
	} {
		if want != "" {
			want = ": did you mean " + want + "?"
		}
		if got := typo.DidYouMean(name, fields); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
	if len(fields) != 28 {
		t.Errorf("an enrollment has %d fields: %q", len(fields), fields)
	}
	for subject, want := range map[string]string{"mail.sent.requested": "did you mean mail.send.requested?",
		"mail.send":               "did you mean mail.send.requested?",
		"mandate.enrol.requested": "did you mean mandate.enroll.requested?", "mail.send.request": "did you mean mail.send.requested?"} {
		misconfigured(t, want, "publish", subject)
	}
}

func TestPublishSaysThatItWasADuplicate(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	args := []string{"publish", "--nats-url", n.URL, "mail.account.requested", "-f", "request_id=twice"}
	errand(t, "", args...)
	var term terminal
	if err := term.errand(t.Context(), "", args...); err != nil || term.out.String() != "twice\n" ||
		!strings.Contains(term.errs.String(), "a duplicate: MAIL_REQUESTS-1 is the same request") {
		t.Errorf("%v: %s%s", err, term.out.String(), term.errs.String())
	}
	if m := stored(t, js, "MAIL_REQUESTS", 1); m.Header.Get(nats.MsgIdHdr) == "twice" {
		t.Error("a correction with the same id would be lost")
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
		err := term.errand(t.Context(), fmt.Sprintf(`{"to":"a@x.test","subject":"s","content":%q}`, strings.Repeat("x", length)), "publish",
			"--nats-url", n.URL, "mail.send.requested")
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
	out := errand(t, "", "publish", "--nats-url", n.URL, "mail.send.requested", "-w", "-f", "to=a@x.test", "-f", "subject=s", "-f",
		"content=c")
	if !strings.HasPrefix(out, "mail.send.accepted.") {
		t.Errorf("got %q, want the final event", out)
	}
	<-programs
}

// letterTo are the arguments of a valid message.
func letterTo(n *devkit.NATS, id string, more ...string) []string {
	return append([]string{"publish", "--nats-url", n.URL, "mail.send.requested", "--wait", "-f", "request_id=" + id,
		"-f", "to=a@x.test", "-f", "subject=s", "-f", "content=c"}, more...)
}

func TestTheExitStatusTellsTheOutcome(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	for i, c := range []struct {
		state, body, what string
		status            int
	}{
		{"failed", `{"reason":"refused","message":"no such sender"}`, "mail.send: failed: refused, no such sender", 1},
		{"partial", `{"recipients":3,"accepted":2}`, "2 of 3 recipients accepted", 3},
		{"uncertain", `{"reason":"no_answer"}`, "mail.send: uncertain: no_answer", 3},
		{"resolved", `{"outcome":"failed"}`, "mail.send: resolved: failed", 1},
		{"resolved", `{"outcome":"partial"}`, "mail.send: resolved: partial", 3},
		{"erased", `{"was":{"state":"accepted"}}`, "mail.send: erased: it was accepted", 1},
		{"started", `{}`, "no outcome within 1s: started: a call is under way", 4},
	} {
		id := fmt.Sprintf("id%d", i)
		answer(t, js, "mail.send."+c.state+"."+id, c.body)
		wantExit(t, c.status, c.what, letterTo(n, id, "--timeout", "1s")...)
	}
}

// wantExit runs a command that has to end with a status.
func wantExit(t *testing.T, status int, what string, args ...string) {
	t.Helper()
	err := failing(t, what, args...)
	got := 1
	if exit, ok := errors.AsType[*programs.Exit](err); ok {
		got = exit.Status
	}
	if got != status {
		t.Errorf("errand %s: status %d, want %d: %v", strings.Join(args, " "), got, status, err)
	}
}

// Whatever else is said, standard output has one JSON value.
func TestJSONAloneIsOnStandardOutput(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	answer(t, js, "mail.send.partial.half", `{"recipients":3,"accepted":2}`)
	answer(t, js, "mandate.transactions.page.list", `{"page":1,"records":[{"id":"of another request"}],"fingerprint":"other"}`)
	_, meta, err := messages.Decode[messages.TransactionsRequest]([]byte(`{"request_id":"list"}`))
	if err != nil {
		t.Fatal(err)
	}
	for page := range 2 {
		answer(t, js, "mandate.transactions.page.list", fmt.Sprintf(`{"page":%d,"records":[{"id":"T%d"}],"fingerprint":%q}`, page, page,
			meta.Fingerprint))
	}
	answer(t, js, "mandate.transactions.listed.list", fmt.Sprintf(`{"pages":2,"total":2,"fingerprint":%q}`, meta.Fingerprint))
	list := []string{"publish", "--nats-url", n.URL, "mandate.transactions.requested", "--wait", "-f", "request_id=list"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{letterTo(n, "half", "-o", "json"), `{"subject":"mail.send.partial.half","sequence":1,"body":{"recipients":3,"accepted":2}}`},
		{append(list, "-o", "json"), fmt.Sprintf(`{"subject":"mandate.transactions.listed.list","sequence":4,"body":{"pages":2,"total":2,`+
			`"fingerprint":%q},"records":[{"id":"T0"},{"id":"T1"}]}`, meta.Fingerprint)},
		{[]string{"publish", "--nats-url", n.URL, "mail.account.requested", "-o", "json", "-f", "request_id=a"},
			`{"operation":"mail.account","request_id":"a","stream":"MAIL_REQUESTS","sequence":2,` +
				`"fingerprint":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}`},
	} {
		var term terminal
		_ = term.errand(t.Context(), "", c.args...)
		var got, want map[string]any
		if err := errors.Join(json.Unmarshal([]byte(term.out.String()), &got), json.Unmarshal([]byte(c.want), &want)); err != nil {
			t.Errorf("%q: %v in %s", c.args, err, term.out.String())
		}
		delete(got, "time")
		delete(got, "published")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", c.args, diff)
		}
	}
	out := errand(t, "", list...)
	if !strings.HasSuffix(out, "{\n  \"id\": \"T0\"\n}\n{\n  \"id\": \"T1\"\n}\n") {
		t.Errorf("as text: %s", out)
	}
}

// What is said of a request without an outcome is what NATS shows to this user.
func TestWaitSaysWhatIsKnown(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	wantExit(t, 4, "queued, place 1: no mail-consumer answers",
		letterTo(n, "first", "--timeout", "200ms")...)
	wantExit(t, 4, "queued, place 2: no mail-consumer answers", letterTo(n, "second", "--timeout", "200ms")...)
	status := bus.ProgramStatus{Program: "mail-consumer", Faults: []string{"NATS check failed"},
		Holds: []bus.Hold{{Operation: messages.Account, Why: "another operation"}}}
	var mu sync.Mutex
	current := func() bus.ProgramStatus { mu.Lock(); defer mu.Unlock(); return status }
	if err := bus.AnswerStatus(js.Conn(), status.Program, current); err != nil {
		t.Fatal(err)
	}
	wantExit(t, 4, ": mail-consumer is not ready: NATS check failed", letterTo(n, "third", "--timeout", "200ms")...)
	mu.Lock()
	status.Holds[0] = bus.Hold{Operation: messages.Send, Why: "the account is suspended", Since: messages.Time{Time: time.Now()}}
	mu.Unlock()
	wantExit(t, 4, ": held: the account is suspended", letterTo(n, "fourth", "--timeout", "200ms")...)
	mu.Lock()
	status.NotStored = map[string]string{bus.MailEvents: "it is full"}
	mu.Unlock()
	answer(t, js, "mail.send.started.live", `{"attempt":1,"deadline":"2026-01-02T03:04:05Z"}`)
	for _, id := range []string{"untaken", "live"} {
		wantExit(t, 4, ": NATS does not store in MAIL_EVENTS: it is full", letterTo(n, id, "--timeout", "200ms")...)
	}
	mu.Lock()
	status.NotStored = nil
	mu.Unlock()
	if _, err := js.PauseConsumer(t.Context(), "MAIL_REQUESTS", "mail-send", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	wantExit(t, 4, ": its queue is paused", letterTo(n, "fifth", "--timeout", "200ms")...)
	if _, err := js.ResumeConsumer(t.Context(), "MAIL_REQUESTS", "mail-send"); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	status = bus.ProgramStatus{Program: "mail-consumer"}
	mu.Unlock()
	later := messages.Time{Time: time.Now().Add(time.Hour)}
	for state, want := range map[string]string{
		"deferred": "deferred: busy, try later; it goes on by", "started": "started: a call is under way; it goes on by",
		"reopened": "reopened: corrected, to be run again"} {
		answer(t, js, "mail.send."+state+"."+state, fmt.Sprintf(
			`{"reason":"busy","message":"try later","attempt":2,"by":"correction","not_before":%q,"deadline":%[1]q}`, later))
		wantExit(t, 4, want, letterTo(n, state, "--timeout", "200ms")...)
	}
	if err := js.DeleteConsumer(t.Context(), "MAIL_REQUESTS", "mail-send"); err != nil {
		t.Fatal(err)
	}
	wantExit(t, 4, "this account does not see the queues",
		letterTo(n, "sixth", "--timeout", "200ms")...)
}

// The id belongs to an earlier request with different contents, which succeeded.
func TestWaitDoesNotTakeTheOutcomeOfAnotherRequest(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	answer(t, js, "mandate.transactions.listed.taken", `{"request_id":"taken","fingerprint":"other"}`)
	answer(t, js, "mandate.transactions.failed.MANDATE_REQUESTS-1", `{"reason":"conflict","conflicts_with":"taken"}`)
	refused(t, ": failed: conflict", "publish", "--nats-url", n.URL, "mandate.transactions.requested", "--wait", "-f", "request_id=taken")
}

// within is a context that ends a hanging test.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), d)
	t.Cleanup(stop)
	return ctx
}
