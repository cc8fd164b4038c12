package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"errand/pkg/messages"
)

// retryMax is RETRY_MAX of a bubble's programs: the time between two probes.
const retryMax = 10 * time.Second

// upstream is both services: the sandbox behind a script, and a record of every call.
type upstream struct {
	next   http.Handler         // the sandbox
	script func(exchange) reply // asked about every call, and by several at once; nil leaves all calls to the sandbox

	mu  sync.Mutex
	all []*exchange
}

// exchange is one call and what it was answered.
type exchange struct {
	at        time.Time
	operation string         // enroll, transactions, send, account, logs, otherwise the path
	id        string         // request id of a submission made by enrollment or message
	body      map[string]any // of a submission
	page      string         // of a listing; "" is the first
	order     string         // that a list is narrowed to
	status    int            // 0 means that there was no answer
}

func (x exchange) write() bool { return x.operation == "enroll" || x.operation == "send" }

// reply is what a script answers; the zero reply leaves the call to the sandbox.
type reply struct {
	status int
	body   string // "" is a sentence in the service's own form
	header map[string]string
	hang   bool // no answer until the caller leaves
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller left while writing
	}
	x := exchange{at: time.Now(), operation: r.URL.Path, page: r.URL.Query().Get("page"), order: r.URL.Query().Get("order_number")}
	_ = json.Unmarshal(body, &x.body) // a read has no body
	text := func(field string) string { s, _ := x.body[field].(string); return s }
	switch r.Method + " " + r.URL.Path {
	case "POST /v3/mandates":
		x.operation, x.id = "enroll", strings.TrimPrefix(text("order_number"), "order-")
	case "POST /api/v0/messages":
		x.operation, x.id = "send", strings.TrimPrefix(text("subject"), "story ")
	case "GET /v3/mandates/transactions":
		x.operation = "transactions"
	case "GET /api/v0/user":
		x.operation = "account"
	case "GET /api/v0/logs":
		x.operation = "logs"
	}
	var answer reply
	if u.script != nil {
		answer = u.script(x)
	}
	x.status = answer.status
	u.mu.Lock()
	u.all = append(u.all, &x)
	u.mu.Unlock()
	switch {
	case answer.hang:
		<-r.Context().Done()
	case answer.status == 0:
		r.Body = io.NopCloser(bytes.NewReader(body))
		seen := &statusWriter{w, http.StatusOK}
		u.next.ServeHTTP(seen, r)
		u.mu.Lock()
		x.status = seen.status
		u.mu.Unlock()
	default:
		if answer.body == "" {
			answer.body = `{"message":"` + http.StatusText(answer.status) + `"}`
		}
		for name, value := range answer.header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(answer.status)
		_, _ = io.WriteString(w, answer.body) // a caller may have left
	}
}

// statusWriter remembers the status that was answered.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// exchanges are the calls that pick picks, in the order of their beginning; nil picks all.
func (u *upstream) exchanges(pick func(exchange) bool) (out []exchange) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, x := range u.all {
		if pick == nil || pick(*x) {
			out = append(out, *x)
		}
	}
	slices.SortStableFunc(out, func(a, b exchange) int { return a.at.Compare(b.at) })
	return out
}

// of are the calls of an operation.
func (u *upstream) of(operation string) []exchange {
	return u.exchanges(func(x exchange) bool { return x.operation == operation })
}

// writes are the submissions for a request; "" is for all requests.
func (u *upstream) writes(id string) []exchange {
	return u.exchanges(func(x exchange) bool { return x.write() && (id == "" || x.id == id) })
}

// lookUps are the looks at the list for one order number, from a time on.
func (u *upstream) lookUps(from time.Time) []exchange {
	return u.exchanges(func(x exchange) bool { return x.operation == "transactions" && x.order != "" && !x.at.Before(from) })
}

// timeline is the calls in order, each with its second.
func (u *upstream) timeline() string {
	var out []string
	for _, x := range u.exchanges(nil) {
		out = append(out, fmt.Sprintf("%s at %.1fs", x.operation, x.at.Sub(epoch).Seconds()))
	}
	return strings.Join(out, ", ")
}

// failing answers so to the calls that hits picks, until a time; nil picks all.
func failing(answer reply, until time.Time, hits func(exchange) bool) func(exchange) reply {
	return func(x exchange) reply {
		if x.at.Before(until) && (hits == nil || hits(x)) {
			return answer
		}
		return reply{}
	}
}

// at is when an event was written.
func (e event) at(t *testing.T) time.Time {
	t.Helper()
	text, _ := e.Body["at"].(string)
	at, err := time.Parse(time.RFC3339, text)
	fatalIf(t, err != nil, "%s: %v: %s", e.Subject, err, e.Raw)
	return at
}

// ask publishes a request, and notes by when it must have ended.
func (b *bubble) ask(o *operation, id string, due map[string]time.Time, by time.Time) {
	b.t.Helper()
	due[id] = by
	b.publish(o.Requested(), o.request(id))
}

// wantBy wants each of these requests to have ended in a state by its time, and says how many did not.
func wantBy(t *testing.T, ends map[string]event, due map[string]time.Time, state messages.State) {
	t.Helper()
	missing, other, late, worst := 0, 0, 0, time.Duration(0)
	for _, id := range slices.Sorted(maps.Keys(due)) {
		e, ok := ends[id]
		switch {
		case !ok:
			missing++
			continue
		case e.state() != state:
			if other++; other <= 3 {
				t.Errorf("%s is %s: %.300s", id, e.state(), e.Raw)
			}
			continue
		}
		if by := e.at(t).Sub(due[id]); by > 0 {
			late++
			worst = max(worst, by)
		}
	}
	errorIf(t, missing+other+late > 0,
		"of %d requests %d have no outcome, %d another one than %s, and %d came late (by up to %v)", len(due), missing, other, state, late, worst)
}

// refuse is a script that answers status to the requests whose id begins with bad.
func refuse(status int) func(exchange) reply {
	return func(x exchange) reply {
		if strings.HasPrefix(x.id, "bad") {
			return reply{status: status}
		}
		return reply{}
	}
}

// meter says when the upstream was called.
type meter struct {
	*upstream
	began time.Time
}

// newMeter counts calls from now on.
func newMeter(u *upstream) *meter { return &meter{u, time.Now()} }

// at are the calls until now, since the meter began.
func (m *meter) at() (all []time.Duration) {
	for _, x := range m.exchanges(func(x exchange) bool { return !x.at.Before(m.began) }) {
		all = append(all, x.at.Sub(m.began))
	}
	return all
}

// between counts the calls from one time to another.
func (m *meter) between(from, to time.Duration) (n int) {
	for _, at := range m.at() {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// most is the largest number of calls in any window of a length.
func (m *meter) most(window time.Duration) (most int) {
	all := m.at()
	for i, first := range all {
		end, _ := slices.BinarySearch(all, first+window)
		most = max(most, end-i)
	}
	return most
}

// wantWithin fails the test when a window has more calls than the rate and its burst, a second's calls and one.
func (m *meter) wantWithin(t *testing.T, perSecond float64, windows ...time.Duration) {
	t.Helper()
	for _, window := range windows {
		got, want := m.most(window), int(perSecond*window.Seconds())+1+int(perSecond)
		errorIf(t, got > want, "%d calls in %v, want at most %d", got, window, want)
	}
}

// wantUsed fails the test when less than 95 % of the rate was used.
func (m *meter) wantUsed(t *testing.T, perSecond float64, from, to time.Duration) {
	t.Helper()
	got, want := float64(m.between(from, to)), perSecond*(to-from).Seconds()
	if t.Logf("%.1f %% of the rate used from %v to %v", 100*got/want, from, to); got < 0.95*want {
		t.Errorf("%v calls from %v to %v, want %v", got, from, to, want)
	}
}
