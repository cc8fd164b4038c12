package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net"
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

// upstream is both services in a bubble: the sandbox behind a script, and a record of
// every exchange with it.
type upstream struct {
	box    http.Handler
	script func(exchange) reply

	mu        sync.Mutex
	exchanges []exchange
}

// exchange is one call and what it was answered.
type exchange struct {
	at        time.Time
	operation string // enroll, transactions, send, account, or the path if it is none of theirs
	id        string // request id of a submission made by enrollment or message
	page      string // of a listing; "" is the first
	status    int    // 0: there was no answer
}

func (x exchange) write() bool { return x.operation == "enroll" || x.operation == "send" }

// reply is what a script answers; the zero reply leaves the call to the sandbox.
type reply struct {
	status int
	body   string // "" is a sentence in the service's own form
	header map[string]string
	hang   bool // no answer until the caller leaves
}

// upstream puts a script between a program and the sandbox. The script is asked about
// every call and may be asked by several at once.
func (b *bubble) upstream(script func(exchange) reply) *upstream {
	return &upstream{box: b.box, script: script}
}

// transport gives a program the upstream. It ends with the test.
func (u *upstream) transport(b *bubble) *http.Transport {
	listener := &pipe{make(chan net.Conn), make(chan struct{})}
	server, served := &http.Server{Handler: u}, make(chan struct{})
	go func() { _ = server.Serve(listener); close(served) }()
	transport := &http.Transport{DialContext: listener.dial, MaxIdleConnsPerHost: 64, IdleConnTimeout: 4 * time.Second}
	b.t.Cleanup(func() { transport.CloseIdleConnections(); _ = server.Close(); <-served })
	return transport
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller left while writing
	}
	x := exchange{at: time.Now(), page: r.URL.Query().Get("page")}
	var fields struct {
		OrderNumber string `json:"order_number"`
		Subject     string `json:"subject"`
	}
	_ = json.Unmarshal(body, &fields) // a read has no body
	switch x.operation = r.URL.Path; r.Method + " " + r.URL.Path {
	case "POST /v3/mandates":
		x.operation, x.id = "enroll", strings.TrimPrefix(fields.OrderNumber, "order-")
	case "POST /api/v0/messages":
		x.operation, x.id = "send", strings.TrimPrefix(fields.Subject, "story ")
	case "GET /v3/mandates/transactions":
		x.operation = "transactions"
	case "GET /api/v0/user":
		x.operation = "account"
	}
	answer := u.script(x)
	x.status = answer.status
	switch {
	case answer.hang:
		u.record(x)
		<-r.Context().Done()
	case answer.status == 0:
		r.Body = io.NopCloser(bytes.NewReader(body))
		seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		u.box.ServeHTTP(seen, r)
		x.status = seen.status
		u.record(x)
	default:
		u.record(x)
		if answer.body == "" {
			answer.body = `{"message":"` + http.StatusText(answer.status) + `"}`
		}
		for name, value := range answer.header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(answer.status)
		_, _ = io.WriteString(w, answer.body) // a caller that left is its own business
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

func (u *upstream) record(x exchange) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.exchanges = append(u.exchanges, x)
}

// calls gives the exchanges that f picks, in the order of their beginning.
func (u *upstream) calls(f func(exchange) bool) (out []exchange) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, x := range u.exchanges {
		if f(x) {
			out = append(out, x)
		}
	}
	slices.SortStableFunc(out, func(a, b exchange) int { return a.at.Compare(b.at) })
	return out
}

// writes gives the submissions for a request; "" is for all of them.
func (u *upstream) writes(id string) []exchange {
	return u.calls(func(x exchange) bool { return x.write() && (id == "" || x.id == id) })
}

// at is when an event was written.
func (e event) at(t *testing.T) time.Time {
	t.Helper()
	text, _ := e.Body["at"].(string)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatalf("%s: %v: %s", e.Subject, err, e.Raw)
	}
	return at
}

// wantBy wants each of these requests to have ended in a state by its time, and says
// how many did not.
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
	if missing+other+late > 0 {
		t.Errorf("of %d requests %d have no outcome, %d another one than %s, and %d came late (by up to %v)", len(due), missing, other, state, late, worst)
	}
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
