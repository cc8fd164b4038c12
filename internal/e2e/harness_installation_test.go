package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
)

// The secrets that the programs have and must not show. The rest of it is in the requests of these tests: see leaks.
const (
	secretMark     = "that-nobody-may-see" // every secret ends with it
	mandateToken   = "token-" + secretMark
	portalKey      = "portal-key-" + secretMark
	checksumSecret = "checksum-secret-" + secretMark
	mailKey        = "mail-key-" + secretMark
)

// leaks are the texts that no output of a program may hold: the secrets, and who the
// payers and recipients of enrollment and message are.
var leaks = []string{secretMark, "@example.test", "Test Payer", "900101011234", "0123456789"}

// installation is everything in real time: the programs as processes, configured by environment variables
// alone; the sandbox in this process, where it outlives whatever is killed, and so the JetStream server, unless the
// test is about brokers.
type installation struct {
	world
	nats     *devkit.NATS // nil where brokers are processes
	web      *httptest.Server
	inFlight atomic.Int64 // upstream calls at work, also of dead programs
	changing atomic.Int64 // of them, the ones that are not reads
	programs string       // the directory of the programs
	env      []string

	mu      sync.Mutex
	running []*process // all that were started, the dead too
}

// ackWait is how soon the requests of a killed program are delivered again.
const ackWait = 2 * time.Second

// install makes an installation for one test, which runs beside the other tests of
// this kind: they mostly wait. env is appended to the programs' environment.
func install(t *testing.T, env ...string) *installation {
	t.Helper()
	return installWith(t, releaseBuild, env...)
}

// installWith is install with programs of one's own choice.
func installWith(t *testing.T, b *build, env ...string) *installation {
	t.Helper()
	dir := b.programs(t)
	parallel(t)
	n := securedServer(t)
	in := installAt(t, dir, n.URL, 1, env...)
	in.nats = n
	return in
}

// parallel lets the test run at the same time as others.
func parallel(t *testing.T) {
	t.Helper()
	t.Parallel()
	// nats.go keeps timers in a sync.Pool, and one that a bubble left there is fatal
	// outside of it: two collections empty the pool.
	runtime.GC()
	runtime.GC()
}

// installAt makes an installation over servers that run: the streams with as many
// replicas, the sandbox, and the environment of the programs in dir.
func installAt(t *testing.T, dir, url string, replicas int, env ...string) *installation {
	t.Helper()
	in := newInstallation(t, dir, url, env...)
	var err error
	in.js, err = jetstream.New(connect(t, url))
	must(t, err)
	_, in.producer = connectAs(t, url, "producer")
	provisioner, _ := connectAs(t, url, "provisioner")
	in.provision(provisioner, replicas)
	t.Cleanup(in.close)
	return in
}

// newInstallation makes an installation with all that does not need NATS; who calls it has end run
// first of all cleanups.
func newInstallation(t *testing.T, dir, url string, env ...string) *installation {
	t.Helper()
	in := &installation{world: world{t: t}, programs: dir}
	in.lastOutput = in.outputs
	in.box = sandbox.New(sandbox.Options{MandateToken: mandateToken, PortalKey: portalKey, ChecksumSecret: checksumSecret, MailKey: mailKey})
	in.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in.inFlight.Add(1)
		defer in.inFlight.Add(-1)
		if r.Method == http.MethodPost {
			in.changing.Add(1)
			defer in.changing.Add(-1)
		}
		in.box.ServeHTTP(w, r)
	}))
	t.Cleanup(in.web.Close)
	t.Cleanup(in.box.Close) // first, so that no call sits in a delay
	in.env = append([]string{
		"NATS_URL=" + url, "ADMIN_ADDR=127.0.0.1:0", "LOG_LEVEL=debug", "LOG_FORMAT=json",
		"UPSTREAM_TIMEOUT=2s", "LIST_SETTLE=1s", "RETRY_FIRST=50ms", "RETRY_MAX=1s", "CONCURRENCY=16", "SHUTDOWN_GRACE=20s",
		"MANDATE_API_URL=" + in.web.URL, "MANDATE_API_TOKEN=" + mandateToken, "MANDATE_PORTAL_KEY=" + portalKey,
		"MANDATE_CHECKSUM_SECRET=" + checksumSecret, "MAIL_API_URL=" + in.web.URL, "MAIL_API_KEY=" + mailKey,
		"POLL_INTERVAL=200ms",
	}, env...)
	return in
}

func (in *installation) provision(nc *nats.Conn, replicas int) {
	in.t.Helper()
	limits := devtest.Limits(nc)
	limits.AckWait, limits.Replicas = ackWait, replicas
	js, err := jetstream.New(nc)
	must(in.t, err)
	plan, err := bus.Plan(in.t.Context(), js, limits)
	if err == nil {
		err = bus.Apply(in.t.Context(), plan, false, func(bus.Change) {})
	}
	must(in.t, err)
}

// close kills what still runs and looks for leaks in the output of all programs.
func (in *installation) close() {
	for _, p := range in.processes() {
		p.kill()
		p.wantNoLeaks()
		p.wantNoViolations()
	}
	if in.nats != nil {
		for _, line := range in.nats.Violations() {
			in.t.Errorf("nats-server refused somebody: %s", line)
		}
		in.wantNoLeaksInEvents()
	}
}

func (in *installation) processes() []*process {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.running)
}

// start starts a program; ready waits until it works.
func (in *installation) start(program string, env ...string) *process {
	in.t.Helper()
	p, err := in.launch(program, env...)
	must(in.t, err)
	return p
}

// launch is start for goroutines that may not end the test.
func (in *installation) launch(program string, env ...string) (*process, error) {
	user := []string{"NATS_USER=" + program, "NATS_PASSWORD=" + password(program)}
	p, err := launch(in.t, in.programs, program, slices.Concat(user, in.env, env))
	if err != nil {
		return nil, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.running = append(in.running, p)
	return p, nil
}

// until waits for something to be so. A program that ends in between without having being asked to ends the test.
func (in *installation) until(what string, within time.Duration, is func() bool) {
	in.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(within); !is(); <-tick.C {
		for _, p := range in.processes() {
			if p.exitedUnexpectedly() {
				in.t.Fatalf("%s ended by itself with %d, waiting for %s\n%s", p.name, p.status, what, p.lastOutput())
			}
		}
		if time.Now().After(end) {
			in.t.Fatalf("%v passed without %s\n%s", within, what, in.lastOutput())
		}
	}
}

// clients names those connected to NATS; the server forgets one when it has read all that came from it.
func (in *installation) clients() (names []string) {
	connections, err := in.nats.Server.Connz(nil)
	must(in.t, err)
	for _, c := range connections.Conns {
		names = append(names, c.Name)
	}
	return names
}

// outputs is the last output of the programs started last.
func (in *installation) outputs() string {
	all := in.processes()
	var b strings.Builder
	for _, p := range all[max(0, len(all)-4):] {
		fmt.Fprintf(&b, "-- %s said last:\n%s", p.name, p.lastOutput())
	}
	return b.String()
}
