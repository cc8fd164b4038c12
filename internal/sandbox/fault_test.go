package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wire serves the sandbox over real TCP, where a cut resets the connection.
type wire struct {
	t testing.TB
	s *Sandbox
	*httptest.Server
}

func newWire(t testing.TB) wire {
	s := New(strictOptions())
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(s.Close) // runs first, so that no handler waits in a delay
	return wire{t, instant(t, s), server}
}

// call makes one call over a new connection.
func (w wire) call(ctx context.Context, method, path, body string) (int, http.Header, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, w.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header = request(method, path, "").Header
	r.Close = true
	response, err := (&http.Transport{}).RoundTrip(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	return response.StatusCode, response.Header, string(got), err
}

func (w wire) enroll() (int, http.Header, string, error) {
	return w.call(context.Background(), "POST", "/v3/mandates", enrollment1().String())
}

func (w wire) send(to ...string) (int, http.Header, string, error) {
	return w.call(context.Background(), "POST", "/api/v0/messages", message1().with("to", to).String())
}

// fault adds faults over HTTP, as a script would.
func (w wire) fault(bodies ...string) {
	w.t.Helper()
	for _, body := range bodies {
		if status, _, got, err := w.call(context.Background(), "POST", "/_sandbox/faults", body); err != nil || status != 200 {
			w.t.Fatalf("fault %s: %d %s %v", body, status, got, err)
		}
	}
}

// done checks the numbers of enrollments and of accepted recipients that were really
// done.
func (w wire) done(enrollments, recipients int) {
	w.t.Helper()
	_, _, body, err := w.call(context.Background(), "GET", "/_sandbox/oracle?summary=1", "")
	var o Oracle
	if err = errors.Join(err, json.Unmarshal([]byte(body), &o)); err != nil {
		w.t.Fatal(err)
	}
	equal(w.t, "enrollments and recipients done", []any{o.Enroll.Accepted, o.Mail.Recipients}, []any{enrollments, recipients})
}

func TestCutResetsTheConnectionBeforeAnythingIsDone(t *testing.T) {
	w := newWire(t)
	w.fault(`{"operation":"*","kind":"cut","times":2}`)
	for _, call := range []func() (int, http.Header, string, error){w.enroll,
		func() (int, http.Header, string, error) { return w.send("a@x.test") }} {
		if _, _, _, err := call(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("got %v, want a reset connection", err)
		}
	}
	w.done(0, 0)
	equal(t, "faults fired", w.s.Faults()[0].Fired, 2)
	if status, _, _, err := w.enroll(); status != 200 || err != nil {
		t.Errorf("after the times given: %d %v", status, err)
	}
	w.done(1, 0)
}

func TestAcceptCutDoesTheWorkAndGivesNoAnswer(t *testing.T) {
	w := newWire(t)
	w.fault(`{"operation":"*","kind":"accept_cut","times":2}`)
	if _, _, _, err := w.enroll(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset connection", err)
	}
	if _, _, _, err := w.send("a@x.test", "b@x.test"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset connection", err)
	}
	w.done(1, 2)
}

func TestStatusAnswersWithNothingDone(t *testing.T) {
	w := newWire(t)
	w.fault(`{"operation":"enroll","kind":"status","status":503,"times":1,"headers":{"Retry-After":"7"},"body":{"message":"later"}}`,
		`{"operation":"enroll","kind":"status","status":302,"times":1,"headers":{"Location":"/elsewhere"},"body":"moved"}`,
		`{"operation":"send","kind":"status","status":429,"times":1}`, `{"operation":"send","kind":"status","times":1}`)
	status, header, body, _ := w.enroll()
	equal(t, "first", []any{status, header.Get("Retry-After"), body}, []any{503, 7, `{"message":"later"}`})
	status, header, body, _ = w.enroll()
	equal(t, "second", []any{status, header.Get("Location"), body}, []any{302, "/elsewhere", "moved"})
	status, _, body, _ = w.send("a@x.test")
	equal(t, "third", []any{status, body}, []any{429, `{"error":true,"status_code":429,"message":"Too Many Requests","data":{}}`})
	status, _, _, _ = w.send("a@x.test")
	equal(t, "fourth", status, 500)
	w.done(0, 0)
}

func TestAcceptStatusAnswersItWithTheWorkDone(t *testing.T) {
	w := newWire(t)
	w.fault(`{"operation":"*","kind":"accept_status","status":502,"times":2}`)
	status, _, _, _ := w.enroll()
	equal(t, "enroll", status, 502)
	status, _, _, _ = w.send("a@x.test")
	equal(t, "send", status, 502)
	w.done(1, 1)
}

func TestTruncateCutsTheBodyUnderItsFullLength(t *testing.T) {
	w := newWire(t)
	w.fault(`{"operation":"*","kind":"truncate","times":2}`)
	for _, call := range []func() (int, http.Header, string, error){w.enroll,
		func() (int, http.Header, string, error) { return w.send("a@x.test") }} {
		status, header, body, err := call()
		if status != 200 || !errors.Is(err, io.ErrUnexpectedEOF) || body == "" || json.Valid([]byte(body)) {
			t.Errorf("got %d %v %q %v, want half a body and an unexpected end", status, header, body, err)
		}
	}
	w.done(1, 1)
}

func TestGarbageIsAReadableStatusWithAnUnreadableBody(t *testing.T) {
	w := newWire(t)
	w.fault(`{"operation":"*","kind":"garbage","times":2}`)
	for _, call := range []func() (int, http.Header, string, error){w.enroll,
		func() (int, http.Header, string, error) { return w.send("a@x.test") }} {
		status, _, body, err := call()
		if status != 200 || err != nil || json.Valid([]byte(body)) {
			t.Errorf("got %d %q %v", status, body, err)
		}
	}
	w.done(1, 1)
}

func TestAcceptEmptyLeavesOutWhatTheAnswerMustHold(t *testing.T) {
	w := newWire(t)
	w.fault(`{"operation":"*","kind":"accept_empty","times":5}`)
	_, _, enrolled, _ := w.enroll()
	_, _, sent, _ := w.send("a@x.test")
	if strings.Contains(enrolled, `"url"`) || !strings.Contains(enrolled, `"order_number":"DD1"`) {
		t.Errorf("enrollment answered %s", enrolled)
	}
	equal(t, "submission", sent, `{"data":{},"error":false,"message":"OK","status_code":200}`)
	w.done(1, 1)
	for _, path := range []string{"/v3/mandates/transactions", "/api/v0/logs", "/api/v0/user"} {
		_, _, body, err := w.call(context.Background(), "GET", path, "")
		if err != nil || !json.Valid([]byte(body)) || strings.Contains(body, "[") || strings.Contains(body, "suspended") {
			t.Errorf("%s answered %s %v", path, body, err)
		}
	}
}

func TestShortAcceptsTheFirstRecipientsOnly(t *testing.T) {
	w := newWire(t)
	w.fault(`{"operation":"send","kind":"short","times":1}`, `{"operation":"send","kind":"short","accept":1,"times":1}`,
		`{"operation":"send","kind":"short","accept":0,"times":1}`)
	for _, want := range []string{"2", "1", "0"} {
		_, _, body, _ := w.send("a@x.test", "b@x.test", "c@x.test", "d@x.test")
		if !strings.Contains(body, `"total_recipient":`+want+`}`) {
			t.Errorf("got %s, want %s", body, want)
		}
	}
	w.done(0, 3)
	equal(t, "logged", logs(t, w.s, "")["total_record"], 3)
}

func TestDelayDoesTheWorkEvenForACallerThatLeft(t *testing.T) {
	w := newWire(t)
	w.fault(`{"operation":"enroll","kind":"delay","delay":"200ms","times":1}`)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, _, _, err := w.call(ctx, "POST", "/v3/mandates", enrollment1().String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want the caller's own deadline", err)
	}
	w.done(0, 0)
	for deadline := time.Now().Add(time.Minute); w.s.Enrolled("DD1") == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the work was never done")
		}
		_, _, _, _ = w.call(context.Background(), "GET", "/_sandbox/help", "")
	}
}

func TestDelayAnswerDoesTheWorkFirst(t *testing.T) {
	w := newWire(t)
	w.fault(`{"operation":"*","kind":"delay_answer","delay":"1h","times":1}`)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, _, _, err := w.call(ctx, "POST", "/v3/mandates", enrollment1().String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want the caller's own deadline", err)
	}
	w.done(1, 0)
}

func TestClosingEndsDelays(t *testing.T) {
	w := newWire(t)
	w.fault(`{"operation":"*","kind":"delay_answer","delay":"1h"}`)
	answered := make(chan int, 1)
	go func() {
		status, _, _, _ := w.enroll()
		answered <- status
	}()
	for w.s.Enrolled("DD1") == 0 {
		_, _, _, _ = w.call(context.Background(), "GET", "/_sandbox/help", "")
	}
	w.s.Close()
	equal(t, "answered", <-answered, 200)
}
