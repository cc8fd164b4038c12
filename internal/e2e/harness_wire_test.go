package e2e

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"errand/internal/programs"
	"errand/internal/sandbox"
	"errand/pkg/clients"
)

// wire is in place of the upstream. It reads each call, has the sandbox do it where the fault lets it through, and
// answers what the fault says, byte by byte: so the sandbox knows what was really done.
type wire struct {
	box     *sandbox.Sandbox
	pick    func(operation string) fault // of each call; it may return nil for no fault
	secure  func(net.Conn) net.Conn      // nil means no TLS
	address string                       // the upstream's URL in the programs' settings; "" leaves it as it is
	config  *tls.Config                  // of the programs
	dial    dial                         // nil is the network

	mu      sync.Mutex
	open    map[net.Conn]bool
	calls   map[string]int // by operation, also those that were not done
	dialled map[string]int // by address
	talking sync.WaitGroup
}

type dial = func(ctx context.Context, network, address string) (net.Conn, error)

// fault is how one call goes; it reports whether the connection goes on.
type fault func(*call) bool

// call is a call of which the wire has read the header.
type call struct {
	*http.Request
	wire *wire
	conn net.Conn
}

// newWire makes a wire that listens until the test ends.
func newWire(t *testing.T, box *sandbox.Sandbox, l net.Listener) *wire {
	t.Helper()
	w := &wire{box: box, open: map[net.Conn]bool{}, calls: map[string]int{}, dialled: map[string]int{}}
	w.talking.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			w.talking.Go(func() { w.talk(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.mu.Lock()
		for conn := range w.open {
			conn.Close()
		}
		w.mu.Unlock()
		w.talking.Wait()
	})
	return w
}

func (w *wire) talk(conn net.Conn) {
	defer conn.Close()
	w.mu.Lock()
	if w.open[conn] = true; w.secure != nil {
		conn = w.secure(conn)
	}
	w.mu.Unlock()
	r := bufio.NewReader(conn)
	for {
		request, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		operation := map[string]string{"/v3/mandates": "enroll", "/v3/mandates/transactions": "transactions",
			"/api/v0/messages": "send"}[request.URL.Path]
		w.mu.Lock()
		w.calls[operation]++
		w.mu.Unlock()
		f := well
		if w.pick != nil {
			if picked := w.pick(operation); picked != nil {
				f = picked
			}
		}
		if !f(&call{request, w, conn}) {
			return
		}
	}
}

// transport is the programs' own, but for where it connects to.
func (w *wire) transport() *http.Transport {
	transport := clients.NewTransport(64, w.config)
	dial := w.dial
	if dial == nil {
		dial = transport.DialContext
	}
	transport.Proxy = nil
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		w.mu.Lock()
		w.dialled[address]++
		w.mu.Unlock()
		return dial(ctx, network, address)
	}
	return transport
}

// wantOnly fails if anything but address was connected to.
func (w *wire) wantOnly(t *testing.T, address string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for other, n := range w.dialled {
		errorIf(t, other != address, "%d connections to %s, which is not the upstream", n, other)
	}
}

// answer is what the sandbox answered.
type answer struct {
	status int
	kind   string // Content-Type
	body   string
}

// work has the sandbox do what the call asks for.
func (c *call) work() answer {
	recorded := httptest.NewRecorder()
	c.wire.box.ServeHTTP(recorded, c.Request)
	return answer{recorded.Code, recorded.Header().Get("Content-Type"), recorded.Body.String()}
}

// head is the answer's header with further lines, each ending in a line break.
func (a answer) head(lines string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: %s\r\n%s\r\n", a.status, http.StatusText(a.status), a.kind, lines)
}

// with is the whole answer with further header lines.
func (a answer) with(lines string) string {
	return a.head(fmt.Sprintf("Content-Length: %d\r\n%s", len(a.body), lines)) + a.body
}

// read takes so many bytes of the body; a negative number is all of it.
func (c *call) read(n int64) {
	if n < 0 {
		n = 1 << 62
	}
	io.CopyN(io.Discard, c.Body, n)
}

// say reports whether the caller still listened.
func (c *call) say(text string) bool {
	_, err := io.WriteString(c.conn, text)
	return err == nil
}

// trickle says text in equal pieces over a time.
func (c *call) trickle(text string, pieces int, over time.Duration) bool {
	for size := max(1, (len(text)+pieces-1)/pieces); len(text) > 0; text = text[min(size, len(text)):] {
		if time.Sleep(over / time.Duration(pieces)); !c.say(text[:min(size, len(text))]) {
			return false
		}
	}
	return true
}

// silence lasts until the caller is gone; what it still says is read.
func (c *call) silence() bool {
	io.Copy(io.Discard, c.conn)
	return false
}

// forever says text again and again until the caller is gone.
func (c *call) forever(text string) bool {
	for c.say(text) {
	}
	return false
}

// reset cuts the connection off without a farewell.
func (c *call) reset() bool {
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.conn.Close()
	return false
}

// well is a call without a fault.
func well(c *call) bool { return c.say(c.work().with("")) && !c.Close }

// once is f for the first call of an operation.
func once(operation string, f fault) func(string) fault { return times(1, operation, f) }

// times is f for the first calls of an operation.
func times(n int, operation string, f fault) func(string) fault {
	var mu sync.Mutex
	return func(asked string) fault {
		mu.Lock()
		defer mu.Unlock()
		if asked != operation || n == 0 {
			return nil
		}
		n--
		return f
	}
}

// What a bubble's programs must not show: their secrets, and in logs the payers and recipients.
var (
	wireSecrets = []string{"token-for-tests", "key-for-tests"}
	wirePayers  = []string{"Test Payer", "900101011234", "0123456789", "@example.test"}
)

func wantNoneOf(t *testing.T, where, text string, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		errorIf(t, strings.Contains(text, secret), "%s shows %s: %s", where, secret, text)
	}
}

// expect is the event that reports a fault, its reason, and how often the work is done in the end.
func (f lineFault) expect(operation, onUnknown string) (state, reason string, done int) {
	well := map[string]string{"enroll": "succeeded", "send": "accepted"}[operation]
	switch {
	case f.reason == "refused":
		return "failed", "refused", 0
	case f.reason == "" || f.reason == "busy" || onUnknown == "retry" && !f.done:
		return well, "", 1
	case operation == "enroll" && f.done:
		return "uncertain", "link_lost", 1
	case f.done:
		return "uncertain", f.reason, 1
	}
	return "uncertain", f.reason, 0
}

// inWire runs f in virtual time with a wire in place of the upstream.
func inWire(t *testing.T, f func(*testing.T, *wire, *bubble)) {
	t.Helper()
	inBubble(t, func(t *testing.T, b *bubble) {
		l := &pipe{make(chan net.Conn), make(chan struct{})}
		w := newWire(t, b.box, l)
		w.dial = l.dial
		f(t, w, b)
		w.wantOnly(t, "127.0.0.1:8085")
		b.wantNoLeaks()
	})
}

// wantNoLeaks looks for the secrets in every event and log line.
func (b *bubble) wantNoLeaks() {
	b.t.Helper()
	for _, e := range append(append(b.events("mandate.>"), b.events("mail.>")...), b.events("dead.>")...) {
		wantNoneOf(b.t, e.Subject, e.Raw, wireSecrets...)
	}
	wantNoneOf(b.t, "the log", b.logs.String(), append(wirePayers, wireSecrets...)...)
}

// run has a program deal with one request r1 and returns its one final event.
func (w *wire) run(b *bubble, operation, onUnknown string) event {
	b.t.Helper()
	transport := w.transport()
	defer transport.CloseIdleConnections()
	filter := "mandate.enroll.*.r1"
	var program programs.Program
	if operation == "enroll" {
		mandates := b.mandates()
		mandates.APIURL = cmp.Or(w.address, mandates.APIURL)
		mandates.Transport, program = transport, mandates
		b.list()
		b.publish("mandate.enroll.requested", enrollment("r1", "on_unknown", onUnknown))
	} else {
		mails := b.mails()
		mails.APIURL = cmp.Or(w.address, mails.APIURL)
		mails.Transport, program = transport, mails
		filter = "mail.send.*.r1"
		b.publish("mail.send.requested", message("r1", 3, "on_unknown", onUnknown))
	}
	b.run(program, 30*time.Minute, b.haveOutcomes(filter, 1))
	ends := slices.DeleteFunc(b.events(filter), func(e event) bool { return !e.final() })
	fatalIf(b.t, len(ends) != 1, "%d final events, want one: %v\n%s", len(ends), ends, b.logs)
	return ends[0]
}

// did is how often the sandbox did the request r1; all its recipients as often.
func (w *wire) did(operation string) int {
	if operation == "enroll" {
		return w.box.Enrolled("order-r1")
	}
	return int(w.box.Oracle(sandbox.Query{}).Mail.Recipients) / 3
}
