package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/hold"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// upstream answers reads from memory.
type upstream struct {
	asked  []string                              // path and query, in order
	answer func(n int) (status int, body string) // to the n-th call, from 1
}

func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	u.asked = append(u.asked, r.URL.RequestURI())
	status, body := u.answer(len(u.asked))
	header := http.Header{}
	if status == http.StatusTooManyRequests {
		header.Set("Retry-After", "120")
	}
	return &http.Response{StatusCode: status, Header: header, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)),
		Request: r}, nil
}

// page is one of three that have two records each.
func page(number int) string {
	return fmt.Sprintf(`{"data":[{"id":"TX-%d"},{"id":"TX-%d"}],"meta":{"current_page":%d,"last_page":3,"total":6}}`,
		2*number-1, 2*number, number)
}

func answersPages(first int) func(int) (int, string) {
	return func(n int) (int, string) { return http.StatusOK, page(first + n - 1) }
}

// harness is one request and what it is answered from.
type harness struct {
	log      historytest.Log
	hold     hold.Hold
	upstream upstream
	caller   attempt.Caller
	stop     chan struct{}
	request  messages.TransactionsRequest
	giveUp   time.Time
	age      time.Duration // of the request
	id       string
}

func newHarness(answer func(int) (int, string)) *harness {
	h := &harness{upstream: upstream{answer: answer}, stop: make(chan struct{}), giveUp: time.Now().Add(time.Hour), id: "r1",
		hold: hold.Hold{Interval: time.Minute}}
	h.caller = attempt.Caller{Policy: retry.Policy{First: 200 * time.Millisecond, Max: 10 * time.Second, Tries: 3},
		Timeout: 30 * time.Second, Slots: admission.NewSlots(1), Stop: h.stop}
	return h
}

func settle[R any](t *testing.T, h *harness, op messages.Operation, body R,
	handle func(context.Context, attempt.Request[R]) (messages.Event, error)) (messages.Event, error) {
	t.Helper()
	permit, err := h.hold.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer permit.Release(false)
	permit.Admit(h.id)
	ledger := &history.History{Log: &h.log, Operation: op, ID: h.id, Fingerprint: "f"}
	published := time.Now().Add(-h.age)
	return ledger.Settle(t.Context(), len(h.log.Events()) == 0, func(p history.Prior) (messages.Event, error) {
		return handle(t.Context(), attempt.Request[R]{Body: body, Delivery: attempt.Delivery{Prior: p, History: ledger, Permit: permit,
			Published: published, GiveUpAt: h.giveUp}})
	})
}

// list runs one delivery of a listing.
func (h *harness) list(t *testing.T) (messages.Event, error) {
	t.Helper()
	api, err := mandate.New(mandate.Config{URL: "http://127.0.0.1:1", Token: clients.NewSecret("token")}, clients.Transport(&h.upstream))
	if err != nil {
		t.Fatal(err)
	}
	return settle(t, h, messages.Transactions, h.request, (&Transactions{Upstream: api, Caller: &h.caller}).Handle)
}

func (h *harness) account(t *testing.T) (messages.Event, error) {
	t.Helper()
	api, err := mail.New(mail.Config{URL: "http://127.0.0.1:1", Key: clients.NewSecret("key")}, clients.Transport(&h.upstream))
	if err != nil {
		t.Fatal(err)
	}
	return settle(t, h, messages.Account, messages.AccountRequest{}, (&Account{Upstream: api, Caller: &h.caller}).Handle)
}

// publishedAre compares the events: "page 1, 2 records, total 2, more", and how it ended.
func (h *harness) publishedAre(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, e := range h.log.Events() {
		switch state := messages.StateOf(e.Subject); state {
		case messages.Page:
			b := historytest.Decode[messages.TransactionsPage](t, e)
			line := fmt.Sprintf("page %d, %d records, total %d", b.Page, len(b.Records), b.Total)
			if b.More {
				line += ", more"
			}
			got = append(got, line)
		case messages.Listed:
			b := historytest.Decode[messages.TransactionsListed](t, e)
			got = append(got, fmt.Sprintf("listed %d in %d pages", b.Total, b.Pages))
		default:
			b := historytest.Decode[messages.FailedBody](t, e)
			got = append(got, fmt.Sprintf("%s %s %d", state, b.Reason, b.HTTPStatus))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestAListingPublishesEveryPageOnce(t *testing.T) {
	h := newHarness(answersPages(1))
	h.request = messages.TransactionsRequest{OrderNumber: "DD 1", Status: "3", ExchangeReferenceNumber: "EX", PayerEmail: "p@example.test"}
	if _, err := h.list(t); err != nil {
		t.Fatal(err)
	}
	h.publishedAre(t, "page 1, 2 records, total 2, more", "page 2, 2 records, total 4, more", "page 3, 2 records, total 6",
		"listed 6 in 3 pages")
	const filters = "/v3/mandates/transactions?exchange_reference_number=EX&order_number=DD+1"
	want := []string{filters + "&payer_email=p%40example.test&status=3", filters + "&page=2&payer_email=p%40example.test&status=3",
		filters + "&page=3&payer_email=p%40example.test&status=3"}
	if diff := cmp.Diff(want, h.upstream.asked); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// It would be read for ever.
func TestAListingWhosePagesRepeatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(func(int) (int, string) { return http.StatusOK, `{"data":[{"id":"TX-1"}],"links":{"next":"x"}}` })
		if _, err := h.list(t); err != nil {
			t.Fatal(err)
		}
		h.publishedAre(t, "page 1, 1 records, total 1, more", "failed bad_answer 200")
	})
}

func TestAListingEndsAtMaxPages(t *testing.T) {
	h := newHarness(answersPages(1))
	h.request.MaxPages = 2
	if _, err := h.list(t); err != nil {
		t.Fatal(err)
	}
	h.publishedAre(t, "page 1, 2 records, total 2, more", "page 2, 2 records, total 4, more", "listed 4 in 2 pages")
}

// published stores a page that an earlier delivery published, until whose deadline others wait.
func (h *harness) published(t *testing.T, b messages.TransactionsPage) {
	t.Helper()
	b.Fingerprint, b.Deadline = "f", messages.Time{Time: time.Now().Add(35 * time.Second)}
	b.Records = []json.RawMessage{[]byte(`{}`), []byte(`{}`)}
	body, err := json.Marshal(&b)
	if err != nil {
		t.Fatal(err)
	}
	h.log.Put("mandate.transactions.page.r1", body)
}

func TestAListingGoesOnWithThePageAfterTheLastOne(t *testing.T) {
	for _, c := range []struct {
		what     string
		last     messages.TransactionsPage
		maxPages int
		asked    int
		want     []string // behind the page that is there
	}{
		{"in the middle", messages.TransactionsPage{Page: 2, Total: 4, More: true}, 0, 1,
			[]string{"page 2, 2 records, total 4, more", "page 3, 2 records, total 6", "listed 6 in 3 pages"}},
		{"all pages are published", messages.TransactionsPage{Page: 3, Total: 6}, 0, 0,
			[]string{"page 3, 2 records, total 6", "listed 6 in 3 pages"}},
		{"max_pages are published", messages.TransactionsPage{Page: 2, Total: 4, More: true}, 2, 0,
			[]string{"page 2, 2 records, total 4, more", "listed 4 in 2 pages"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(answersPages(3))
			h.request.MaxPages = c.maxPages
			h.published(t, c.last)
			time.Sleep(35 * time.Second)
			if _, err := h.list(t); err != nil || len(h.upstream.asked) != c.asked {
				t.Errorf("%s: %v, %d calls, want %d", c.what, err, len(h.upstream.asked), c.asked)
			}
			h.publishedAre(t, c.want...)
		})
	}
}

func TestAListingBeginsAgainIfItsLastPageDoesNotSayWhatFollows(t *testing.T) {
	h := newHarness(answersPages(1))
	h.log.Put("mandate.transactions.page.r1", []byte(`{"page":2,"records":[{},{}],"total":4,"fingerprint":"f"}`))
	if _, err := h.list(t); err != nil {
		t.Fatal(err)
	}
	h.publishedAre(t, "page 2, 2 records, total 4", // of a program that did not say so
		"page 1, 2 records, total 2, more", "page 2, 2 records, total 4, more", "page 3, 2 records, total 6", "listed 6 in 3 pages")
}

func TestWhileOneListsAnotherWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(answersPages(3))
		h.published(t, messages.TransactionsPage{Page: 2, Total: 4, More: true})
		_, err := h.list(t)
		later, ok := errors.AsType[*history.RetryLaterError](err)
		if !ok || time.Until(later.At) != 35*time.Second || len(h.upstream.asked) != 0 {
			t.Errorf("got %v after %d calls, want to come back at the page's deadline", err, len(h.upstream.asked))
		}
	})
}

func TestOfTwoListersOfOneIDOnePublishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(nil)
		h.upstream.answer = func(n int) (int, string) {
			if n == 2 { // the other one takes over meanwhile
				h.log.Put("mandate.transactions.page.r1", []byte(`{"page":2}`))
			}
			return http.StatusOK, page(n)
		}
		if _, err := h.list(t); !errors.Is(err, history.ErrFenced) || len(h.upstream.asked) != 2 {
			t.Errorf("got %v after %d calls, want ErrFenced after the second", err, len(h.upstream.asked))
		}
	})
}

// While a lister goes on, no page's deadline passes.
func TestAPageSaysUntilWhenItsListerGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(answersPages(1))
		if _, err := h.list(t); err != nil {
			t.Fatal(err)
		}
		first := historytest.Decode[messages.TransactionsPage](t, h.log.Events()[0])
		if got, want := time.Until(first.Deadline.Time), h.caller.Timeout+retry.Margin; got != want {
			t.Errorf("the deadline is %v ahead, want %v", got, want)
		}
	})
}

func TestAListingStopsBetweenTwoPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(nil)
		h.upstream.answer = func(n int) (int, string) {
			if n == 1 {
				close(h.stop)
			}
			return http.StatusOK, page(n)
		}
		_, err := h.list(t)
		if later, ok := errors.AsType[*history.RetryLaterError](err); !ok || !errors.Is(err, errStopping) || !later.At.Equal(time.Now()) {
			t.Errorf("got %v, want to come back at once", err)
		}
		h.publishedAre(t, "page 1, 2 records, total 2, more")
	})
}

func TestAListingThatWasTakenMakesOneCallWhileTheProgramEnds(t *testing.T) {
	h := newHarness(answersPages(1))
	close(h.stop)
	if _, err := h.list(t); !errors.Is(err, errStopping) {
		t.Errorf("got %v", err)
	}
	h.publishedAre(t, "page 1, 2 records, total 2, more")
}

func TestAReadThatFails(t *testing.T) {
	const refused, busy, broken, denied, nonsense = http.StatusUnprocessableEntity, http.StatusServiceUnavailable,
		http.StatusInternalServerError, http.StatusForbidden, http.StatusOK
	for _, c := range []struct {
		status int
		calls  int
		ended  string        // the event; "": it comes back
		wait   time.Duration // then
	}{
		{refused, 1, "failed refused 422", 0},
		{nonsense, 3, "failed bad_answer 200", 0},
		{busy, 3, "", 10 * time.Second},
		{broken, 3, "", 10 * time.Second},
		{denied, 1, "", 10 * time.Second},
		{http.StatusTooManyRequests, 1, "", 2 * time.Minute},
	} {
		for name, read := range map[string]func(*harness, *testing.T) (messages.Event, error){"account": (*harness).account,
			"list": (*harness).list} {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(func(int) (int, string) { return c.status, `{"error":` })
				_, err := read(h, t)
				if len(h.upstream.asked) != c.calls || h.caller.Slots.Taken() != 0 {
					t.Errorf("%s, %d: %d calls, want %d; %d slots taken", name, c.status, len(h.upstream.asked), c.calls, h.caller.Slots.Taken())
				}
				if c.ended != "" {
					if err != nil {
						t.Errorf("%s, %d: %v", name, c.status, err)
					}
					h.publishedAre(t, c.ended)
					return
				}
				later, ok := errors.AsType[*history.RetryLaterError](err)
				if !ok || time.Until(later.At) != c.wait || later.Cause == nil {
					t.Errorf("%s, %d: got %v, want to come back in %v", name, c.status, err, c.wait)
				}
				h.publishedAre(t)
			})
		}
	}
}

func TestAReadIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(func(int) (int, string) { return http.StatusServiceUnavailable, "" })
		h.giveUp = time.Now().Add(5 * time.Second)
		_, err := h.account(t)
		later, ok := errors.AsType[*history.RetryLaterError](err)
		if !ok || !later.At.Equal(h.giveUp) {
			t.Fatalf("got %v, want to come back at give_up_at", err)
		}
		time.Sleep(time.Until(h.giveUp))
		calls := len(h.upstream.asked)
		if _, err := h.account(t); err != nil || len(h.upstream.asked) != calls+1 {
			t.Errorf("got %v after %d calls, want one last", err, len(h.upstream.asked)-calls)
		}
		h.publishedAre(t, "failed unavailable 503")
	})
}

func TestAReadWaitsWhileItsOperationIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(nil)
		h.upstream.answer = func(n int) (int, string) {
			for _, id := range []string{"one", "two"} {
				permit, err := h.hold.Acquire(t.Context())
				if err != nil {
					t.Error(err)
				} else if permit.Admit(id); n == 1 {
					permit.Observe(hold.Call{Err: &clients.Error{Fate: clients.Held, Status: 403}})
				}
			}
			return http.StatusServiceUnavailable, ""
		}
		_, err := h.account(t)
		if later, ok := errors.AsType[*history.RetryLaterError](err); !ok || time.Until(later.At) != 10*time.Second ||
			len(h.upstream.asked) != 1 {
			t.Errorf("got %v after %d calls", err, len(h.upstream.asked))
		}
	})
}

// What waits for the end of a hold stays in its queue, as the next probe may need it.
func TestAReadThatWasDeniedComesBackSoonHoweverOldItIs(t *testing.T) {
	for status, want := range map[int]time.Duration{http.StatusForbidden: 10 * time.Second, http.StatusServiceUnavailable: 15 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(func(int) (int, string) { return status, "" })
			h.age = time.Hour
			_, err := h.account(t)
			if later, ok := errors.AsType[*history.RetryLaterError](err); !ok || time.Until(later.At) != want {
				t.Errorf("%d: got %v, want to come back in %v", status, err, want)
			}
		})
	}
}

func TestNoReadIsRepeatedAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(nil)
		h.upstream.answer = func(int) (int, string) { close(h.stop); return http.StatusServiceUnavailable, "" }
		began := time.Now()
		if _, err := h.account(t); err == nil || len(h.upstream.asked) != 1 || !time.Now().Equal(began) {
			t.Errorf("got %v after %d calls and %v", err, len(h.upstream.asked), time.Since(began))
		}
	})
}

func TestReadsBeginAndEndAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := http.StatusInternalServerError
		h := newHarness(func(int) (int, string) { return status, page(1) })
		for n := range 3 {
			h.id = fmt.Sprint("l", n)
			if _, err := h.list(t); err == nil || h.hold.Active() != (n == 2) {
				t.Errorf("got %v, held %t by %d requests, want a hold at the third", err, h.hold.Active(), n+1)
			}
		}
		status, h.request.MaxPages = http.StatusOK, 1
		if _, err := h.list(t); err != nil || h.hold.Active() {
			t.Errorf("got %v, held %t, want no hold after an answer", err, h.hold.Active())
		}
	})
}

func TestAnAccountIsReportedWithAllItsFields(t *testing.T) {
	const user = `{"email":"owner@example.test","suspended":false,"is_new":[1]}`
	h := newHarness(func(int) (int, string) {
		return http.StatusOK, `{"error":false,"status_code":200,"message":"OK","data":` + user + `}`
	})
	if _, err := h.account(t); err != nil {
		t.Fatal(err)
	}
	events := h.log.Events()
	got := historytest.Decode[messages.AccountReported](t, events[len(events)-1])
	if len(events) != 1 || string(got.Account) != user || got.Attempt != 1 || got.Fingerprint != "f" {
		t.Errorf("got %d events, %+v", len(events), got)
	}
}
