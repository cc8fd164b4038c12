package e2e

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
)

// serverVariable makes this test binary a nats-server with that configuration file: a process that can be killed.
const serverVariable = "ERRAND_E2E_SERVER"

func TestMain(m *testing.M) {
	if file := os.Getenv(serverVariable); file != "" {
		serve(file)
		return
	}
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "8") // they mostly wait; nobody asked for another number
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200) // virtual time is processor time, and much of it is the collector's
	}
	devtest.Main(m)
}

// serve is the whole life of a nats-server. It ends in order at SIGTERM.
func serve(file string) {
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		panic(err)
	}
	s, err := server.NewServer(options)
	if err != nil {
		panic(err)
	}
	s.ConfigureLogger()
	s.Start()
	s.WaitForShutdown()
}

// broker is a nats-server as a separate process, with a store and ports that outlive it.
type broker struct {
	t                   *testing.T
	file, url, monitors string
	*process            // of its last run
}

// brokers starts a nats-server, or a cluster of several, and waits until it works.
// They know the users of the shipped configuration; config is appended to each one's configuration.
func brokers(t *testing.T, n int, config string) []*broker {
	t.Helper()
	full(t)
	free := ports(t, 3*n)
	clients, monitors, routes := free[:n], free[n:2*n], free[2*n:]
	all := make([]*broker, n)
	for i := range all {
		dir := t.TempDir()
		text := fmt.Sprintf("server_name: n%d\nlisten: %s\nhttp: %s\njetstream { store_dir: %q }\n%s\n", i, clients[i], monitors[i], dir, config)
		text += natsConfig(t)
		if n > 1 {
			text += fmt.Sprintf("cluster { name: e2e, listen: %s, no_advertise: true, routes: [%s] }\n", routes[i],
				"nats://"+strings.Join(routes, ", nats://"))
		}
		all[i] = startBroker(t, dir, text, clients[i], monitors[i])
	}
	for _, b := range all {
		b.ready()
	}
	return all
}

// startBroker starts a nats-server with a configuration; ready waits until it works.
func startBroker(t *testing.T, dir, config, client, monitor string) *broker {
	t.Helper()
	b := &broker{t: t, file: filepath.Join(dir, "nats.conf"), url: "nats://" + client, monitors: "http://" + monitor}
	must(t, os.WriteFile(b.file, []byte(config), 0o600))
	b.start()
	return b
}

// ports returns n free addresses on the loopback interface, that stay free while a server is away.
func ports(t *testing.T, n int) []string {
	t.Helper()
	free, err := devkit.Addresses(n)
	must(t, err)
	return free
}

// start starts the server over the store that it had.
func (b *broker) start() {
	b.t.Helper()
	self, err := os.Executable()
	must(b.t, err)
	b.process, err = launch(b.t, filepath.Dir(self), filepath.Base(self), append(os.Environ(), serverVariable+"="+b.file))
	must(b.t, err)
	b.expectEnd() // the test ends it
	p := b.process
	b.t.Cleanup(func() {
		if p.kill(); b.t.Failed() {
			b.t.Logf("the server %s said last:\n%s", b.url, p.lastOutput())
		}
		p.wantNoViolations()
	})
}

// ready waits until the server says that it is healthy: in a cluster, that its streams are up to date.
func (b *broker) ready() {
	b.t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(busy); ; <-tick.C {
		if answer, err := client.Get(b.monitors + "/healthz"); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		if b.exited() || time.Now().After(end) {
			b.t.Fatalf("nats-server is not ready (gone: %v)\n%s", b.exited(), b.lastOutput())
		}
	}
}

// connect returns a connection to the servers that outlives each of them.
func connect(t *testing.T, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append(options, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.Timeout(10*time.Second))...) // a paused server keeps one waiting for so long
	must(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// urls are the addresses of all servers, as NATS_URL has them.
func urls(all []*broker) string {
	var list []string
	for _, b := range all {
		list = append(list, b.url)
	}
	return strings.Join(list, ",")
}

// limitAccount leaves an account no room for more than it has.
func limitAccount(t *testing.T, account *server.Account) (room func()) {
	set := func(store int64) {
		limits := server.JetStreamAccountLimits{MaxMemory: -1, MaxStore: store, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1,
			MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1}
		noError(t, account.UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": limits}))
	}
	set(int64(max(account.JetStreamUsage().Store, 1)))
	return func() { set(-1) }
}

// proxy is the network between a program and its nats-server.
type proxy struct {
	url  string
	dead chan struct{} // closed at the end

	mu     sync.Mutex
	still  chan struct{} // not nil while nothing passes; closed when it passes again
	conns  []net.Conn
	cuts   atomic.Int64
	cutsAt func(sent []byte) bool // whether to cut once the server had this, before it answers
}

// newProxy makes a proxy in front of the server at url.
func newProxy(t *testing.T, url string, cutsAt func([]byte) bool) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := &proxy{url: "nats://" + l.Addr().String(), dead: make(chan struct{}), cutsAt: cutsAt}
	var passers sync.WaitGroup
	passers.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
			if err != nil {
				_ = client.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, client, server)
			w.mu.Unlock()
			passers.Go(func() { w.pass(client, server, w.cutsAt) })
			passers.Go(func() { w.pass(server, client, nil) })
		}
	})
	t.Cleanup(func() {
		close(w.dead)
		_ = l.Close()
		w.mu.Lock()
		for _, c := range w.conns {
			_ = c.Close()
		}
		w.mu.Unlock()
		passers.Wait()
	})
	return w
}

// pass passes what comes from one end on to the other.
func (w *proxy) pass(from, to net.Conn, cutsAt func([]byte) bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if !w.passes() {
			return
		}
		if cutsAt != nil && cutsAt(b[:n]) {
			// The server has it, and its answer goes nowhere.
			_ = from.Close()
			_, _ = to.Write(b[:n])
			w.cuts.Add(1)
			_, _ = io.Copy(io.Discard, to)
			return
		}
		if _, e := to.Write(b[:n]); e != nil || err != nil {
			return
		}
	}
}

// passes waits while nothing passes; false at the end.
func (w *proxy) passes() bool {
	w.mu.Lock()
	still := w.still
	w.mu.Unlock()
	if still == nil {
		return true
	}
	select {
	case <-still:
		return true
	case <-w.dead:
		return false
	}
}

// partition silently lets nothing pass until heal; no end of the connections notices.
func (w *proxy) partition() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.still = make(chan struct{})
}

// tries is how many connections were made.
func (w *proxy) tries() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.conns) / 2
}

func (w *proxy) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.still)
	w.still = nil
}
