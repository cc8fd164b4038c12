package send

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"errand/internal/history"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/hold"
	"errand/internal/retry"
	"errand/internal/wire/mailkey"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// nowhere is a log that remembers only how often it was written.
type nowhere struct {
	history.Log // none: what is not said below is not asked
	mu          sync.Mutex
	events      map[string]int
	keys        []*messages.SecretKeys // of calls
}

func (n *nowhere) Append(_ context.Context, r history.Record) (uint64, error) {
	body, err := r.Event.Encode()
	if err != nil {
		return 0, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.events == nil {
		n.events = map[string]int{}
	}
	n.events[r.Event.Type()]++
	if keys := history.KeysIn(messages.ParseSubject(r.Event.Subject()), body); keys != nil {
		n.keys = append(n.keys, keys)
	}
	return r.Last + 1, nil
}

func (n *nowhere) Last(context.Context, messages.Operation, string) (history.Entry, error) {
	return history.Entry{}, nil
}

func (n *nowhere) Leader(context.Context, messages.Operation, string) (history.Entry, error) {
	return history.Entry{}, nil
}

// upstream answers at once, and keeps who was sent to.
type upstream struct {
	mu    sync.Mutex
	sizes []int
	to    map[string]int
}

func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	n := bytes.Count(body, []byte("@example.test"))
	if u.to != nil {
		var m struct {
			To []string `json:"to"`
		}
		if err := json.Unmarshal(body, &m); err != nil {
			return nil, err
		}
		u.mu.Lock()
		u.sizes = append(u.sizes, len(m.To))
		for _, a := range m.To {
			u.to[a]++
		}
		u.mu.Unlock()
	}
	answer := fmt.Appendf(nil, `{"error":false,"status_code":200,"message":"OK","data":{"total_recipient":%d}}`, n)
	return &http.Response{StatusCode: 200, Header: http.Header{}, ContentLength: int64(len(answer)),
		Body: io.NopCloser(bytes.NewReader(answer)), Request: r}, nil
}

// answers answers every message with a status.
type answers int

func (status answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: int(status), Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

func request(t testing.TB, log history.Log, to []string) attempt.Request[messages.SendRequest] {
	t.Helper()
	body, err := json.Marshal(map[string]any{"to": to, "subject": "s", "content": "c"})
	if err != nil {
		t.Fatal(err)
	}
	r, meta, err := messages.Decode[messages.SendRequest](body)
	if err != nil {
		t.Fatal(err)
	}
	return attempt.Request[messages.SendRequest]{Body: r, Delivery: attempt.Delivery{GiveUpAt: time.Now().Add(time.Hour), Permit: permit(t),
		History: &history.History{Log: log, Operation: messages.Send, ID: "r1", Fingerprint: meta.Fingerprint}}}
}

// permit is one of a hold that is open.
func permit(t testing.TB) *hold.Permit {
	t.Helper()
	p, err := (&hold.Hold{Interval: time.Second}).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func handler(t testing.TB, u http.RoundTripper) *Handler {
	t.Helper()
	api, err := mail.New(mail.Config{URL: "http://127.0.0.1:1", Key: clients.NewSecret("key")}, clients.Transport(u))
	if err != nil {
		t.Fatal(err)
	}
	return &Handler{Upstream: api,
		Caller: &attempt.Caller{Policy: retry.Policy{Tries: 1}, Timeout: time.Minute, Slots: admission.NewSlots(8)},
		Size:   1000, Parallel: 4, MaxRecipients: 5_000_000, Secret: mailkey.NewSecret("secret")}
}

func many(n int) []string {
	to := make([]string, n)
	for i := range to {
		to[i] = fmt.Sprintf("somebody.with.a.name-%d@example.test", i)
	}
	return to
}

func TestEveryRecipientIsInExactlyOneBatch(t *testing.T) {
	for _, n := range []int{1, 2, 999, 1000, 1001, 1999, 2000, 2001, 5500} {
		u := &upstream{to: map[string]int{}}
		to := many(n)
		ev, err := handler(t, u).Handle(t.Context(), request(t, &nowhere{}, append(to, to...))) // each twice
		if err != nil || ev.State != messages.Accepted {
			t.Fatalf("%d: %v %v", n, ev.State, err)
		}
		if got := len(u.sizes); got != (n+999)/1000 {
			t.Errorf("%d: %d calls", n, got)
		}
		for _, size := range u.sizes {
			if size > 1000 {
				t.Errorf("%d: a call with %d recipients", n, size)
			}
		}
		for _, a := range to {
			if u.to[a] != 1 {
				t.Fatalf("%d: %s was sent to %d times", n, a, u.to[a])
			}
		}
		if b := ev.Body.(*messages.SendOutcome); b.Recipients != n || b.Accepted != n || b.Duplicates != n {
			t.Errorf("%d: %+v", n, b)
		}
	}
}

func TestOutcomeOfVeryManyUnsettledBatchesFitsAMessage(t *testing.T) {
	m := &message{request: attempt.Request[messages.SendRequest]{Delivery: attempt.Delivery{History: &history.History{Operation: messages.Send,
		ID: "r1"}}}}
	m.plan.batches = 10_000
	o := &outcome{}
	for i := range 10_000 {
		o.add(result{batch: batch{number: i + 1}, count: 1000, Result: attempt.Result[int]{Verdict: attempt.Refused,
			Reason:  messages.ReasonRefused,
			Message: string(bytes.Repeat([]byte("é"), 500))}})
	}
	for range messages.ListedInvalid {
		m.plan.invalid = append(m.plan.invalid, messages.InvalidAddress{Address: string(bytes.Repeat([]byte("é"), 500)), Reason: "no address"})
	}
	body, err := m.end(o).Encode()
	if err != nil || len(body) > 900<<10 {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
}

func BenchmarkHundredThousandRecipients(b *testing.B) {
	r := request(b, &nowhere{}, many(100_000))
	h := handler(b, &upstream{})
	b.ReportAllocs()
	for b.Loop() {
		r.History = &history.History{Log: &nowhere{}, Operation: messages.Send, ID: "r1"}
		if ev, err := h.Handle(b.Context(), r); err != nil || ev.State != messages.Accepted {
			b.Fatal(ev.State, err)
		}
	}
}

// The sending log may show an address in another case than the request has: the keys find it, and what is sent stays as it is.
func TestACallsKeysFindItsRecipientsInAnyCase(t *testing.T) {
	to := []string{"Ann@example.test", "ann@example.test", "bob@example.test"}
	for _, size := range []int{1000, 3} {
		u, log := &upstream{to: map[string]int{}}, &nowhere{}
		h := handler(t, u)
		h.Size = size
		r := request(t, log, append(to, "carl@example.test"))
		r.Body.From = "The Shop <Shop@example.test>"
		if _, err := h.Handle(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		var from mailkey.Key
		var keys []mailkey.Key
		for _, called := range log.keys {
			sender, of := mailkey.Parties(called.Keys)
			from, keys = sender, append(keys, of...)
		}
		want := []mailkey.Key{h.Secret.KeyOf(to[1]), h.Secret.KeyOf(to[1]), h.Secret.KeyOf(to[2]), h.Secret.KeyOf("carl@example.test")}
		slices.Sort(keys) // batches are sent in any order
		slices.Sort(want)
		if from != h.Secret.KeyOf("shop@example.test") || !slices.Equal(keys, want) {
			t.Errorf("%d a batch: the keys are %v and %v, want %v", size, from, keys, want)
		}
		if u.to[to[0]] != 1 || u.to[to[1]] != 1 {
			t.Errorf("%d a batch: sent to %v", size, u.to)
		}
	}
}
