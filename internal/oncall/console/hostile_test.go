package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/oncall/access"
	"errand/internal/retry"
	"errand/pkg/messages"
)

func TestWhatNobodyCanMeanIsRefused(t *testing.T) {
	t.Parallel()
	in := installed(t)
	in.failed("order-1")
	in.shows("/dead-letters", "order-1")
	for path, want := range map[string]int{
		"/requests?before=x":                    400,
		"/dead-letters?before=%27":              400,
		"/requests?operation=nope":              404,
		"/requests?state=queued&operation=nope": 404,
		"/requests?since=0000-01-01T00:00:00Z":  200,
		"/requests?since=-1h":                   400,
		"/audit?verb=%3E":                       200,
		"/audit?actor=%3E&target=*":             200,
		"/redrive?letter=x":                     404,
		"/redrive?letter=1":                     200,
		"/redrive?operation=nope":               404,
		"/requests/..%2f..%2fetc":               404,
		"/requests/" + strings.Repeat("a", 65):  404,
		"/find/" + strings.Repeat("A", 20000):   404,
	} {
		if status, page := in.get(path); status != want {
			t.Errorf("%.60s: %d, want %d\n%s", path, status, want, page)
		}
	}
	for _, form := range []url.Values{{"item": {"seq:999"}}, {"item": {"*"}}, {}} {
		form.Set("why", "x")
		if status, page := in.post("/redrive", form); status != http.StatusBadRequest && status != http.StatusNotFound {
			t.Errorf("%v: %d, want 400 or 404\n%s", form, status, page)
		}
	}
	for _, word := range []string{"%", "'; drop table request; --", "@", "\x00@\xff", "a\r\nPUB x 1\r\n", "*", ">"} {
		if status, page := in.post("/find", url.Values{"word": {word}}); status != http.StatusOK || strings.Contains(page, "order-1") {
			t.Errorf("found by %q, %d:\n%s", word, status, page)
		}
	}
}

// asked makes a view of no page, as a browser that is sent the answer.
func (in *installation) asked(v view, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(in.t.Context(), http.MethodGet, "/", http.NoBody)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	in.serve(v)(w, r, anybody)
	return w
}

func TestAFaultInOnePageEndsNoOther(t *testing.T) {
	t.Parallel()
	in := installed(t)
	faulty := in.asked(view{build: func(*http.Request, access.User) (page, error) { panic("nobody saw it come") }})
	if faulty.Code != http.StatusInternalServerError || !strings.Contains(faulty.Body.String(), "Something went wrong") {
		t.Errorf("it answers %d:\n%s", faulty.Code, faulty.Body)
	}
	in.shows("/", "Today")
}

// An open page asks for its newest version, and is answered with its main part where there may be one.
func TestAnOpenPageIsMadeAgainWhenSomethingChanges(t *testing.T) {
	t.Parallel()
	in := installed(t)
	made := 0
	v := view{build: func(r *http.Request, user access.User) (page, error) {
		made++
		return in.findForm(r, user)
	}}
	first := in.asked(v)
	tag := first.Header().Get("ETag")
	if text := first.Body.String(); tag == "" || !strings.Contains(text, `data-tag="&#34;`) || !strings.Contains(text, "</html>") {
		t.Fatalf("the page, with the tag %s, is\n%s", tag, text)
	}
	in.until("nothing changed", func() bool { // but the time, perhaps
		again := in.asked(v, "If-None-Match", tag)
		tag = cmp.Or(again.Header().Get("ETag"), tag)
		return again.Code == http.StatusNotModified && again.Body.Len() == 0
	})
	before := made
	in.watch.version.Add(1)
	now := in.asked(v, "If-None-Match", tag, "X-Part", "main")
	if text := now.Body.String(); now.Code != http.StatusOK || made != before+1 || strings.Contains(text, "<html") ||
		!strings.Contains(text, "<h1>") || now.Header().Get("ETag") == tag {
		t.Errorf("after a change: %d, made %d times, %s", now.Code, made-before, text)
	}
	v.still = true
	if form := in.asked(v); form.Header().Get("ETag") != "" || strings.Contains(form.Body.String(), "data-tag") {
		t.Errorf("a form is replaced while somebody fills it in:\n%s", form.Body)
	}
}

func TestNothingWaitsForNATSForLong(t *testing.T) {
	t.Parallel()
	in := installed(t)
	for _, still := range []bool{false, true} {
		asked := false
		in.asked(view{still: still, build: func(r *http.Request, _ access.User) (page, error) {
			end, limited := r.Context().Deadline()
			asked = limited && time.Until(end) <= retry.PageAct
			return page{}, notFound("")
		}})
		if !asked {
			t.Errorf("a page, still: %v, has no limit", still)
		}
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	answer := httptest.NewRecorder()
	in.submit(func(r *http.Request, _ access.User) (string, error) {
		if err := r.Context().Err(); errors.Is(err, context.Canceled) {
			t.Errorf("an act ends with the browser's connection: %v", err)
		}
		if _, limited := r.Context().Deadline(); !limited {
			t.Error("an act has no limit")
		}
		return "", refusedAct(context.DeadlineExceeded)
	})(answer, httptest.NewRequestWithContext(gone, http.MethodPost, "/queues/mail.send/pause", http.NoBody), anybody)
	if answer.Code != http.StatusServiceUnavailable || !strings.Contains(answer.Body.String(), "It is unknown whether it was done") {
		t.Errorf("it answers %d:\n%s", answer.Code, answer.Body)
	}
}

func TestAPlanSaysWhatRunsWithoutATick(t *testing.T) {
	t.Parallel()
	in := installed(t)
	ended := func(subject, id string, event body) {
		event["request_id"] = id
		ack, err := in.js.Publish(t.Context(), subject+"."+id, mustJSON(event))
		if err != nil {
			t.Fatal(err)
		}
		op := messages.Operation(strings.Join(strings.Split(subject, ".")[:2], "."))
		in.store("dead."+op.Requested(), body{"request_id": id}, "Errand-Request-Id", id, "Nats-Msg-Id", bus.DeadLetterID(op, id, ack.Sequence))
	}
	in.begun("letter-1", 3, body{"request_id": "letter-1"})
	ended("mail.send.uncertain", "letter-1", body{"batches": 3, "unsettled_count": 2,
		"unsettled": []body{{"batch": 1, "state": "refused"}, {"batch": 3, "state": "uncertain"}}})
	ended("mandate.enroll.failed", "withdrawn", body{"reason": "cancelled"})
	in.shows("/dead-letters", "letter-1")
	in.shows("/dead-letters?all=1", "was cancelled")
	_, page := in.get("/redrive?letter=1")
	for _, text := range []string{"1 request runs when you redrive", "1 batch not accepted, 1 batch of unknown fate",
		"also send the batches of unknown fate"} {
		if !strings.Contains(page, text) {
			t.Errorf("the plan does not say %q:\n%s", text, page)
		}
	}
	if strings.Contains(page, "The others stay") {
		t.Errorf("the plan of one request speaks of others:\n%s", page)
	}
}
