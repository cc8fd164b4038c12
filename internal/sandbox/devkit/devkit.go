// Package devkit runs a nats-server inside this process, for the demo and for tests. Apart from tests only it links the server.
//
//	Start ─► server on a free loopback port ◄─ programs, the nats tool
//	InProcess ─► server without a port ◄─ this process only, also inside a bubble
package devkit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// startWait is how long a server may take to become ready: 10 ms with an empty store; a large one is read first.
const startWait = 2 * time.Minute

// NATS is a running server with JetStream.
type NATS struct {
	URL    string // "" if it has no port
	Server *server.Server

	opts        server.Options
	config      string // added to opts, in the server's own language
	removeStore bool   // Close removes the store
	log         serverLog

	mu sync.Mutex // guards Server, which reconnecting connections read
}

// Start starts a server that keeps its data in dir and listens on a free loopback port. If dir is "", the data is in a
// temporary directory that Close removes. The error contains the server's message.
func Start(dir string) (*NATS, error) { return Configured(dir, "") }

// Configured is Start with a configuration in the server's language, for accounts, TLS and the like.
func Configured(dir, config string) (*NATS, error) {
	addresses, err := Addresses(1)
	if err != nil {
		return nil, err
	}
	return start(dir, server.Options{}, "listen: "+addresses[0]+"\n"+config)
}

// Ports are given out in turn, from a random one on, so that no server gets the port of another that is away.
var firstPort, ports = rand.Uint32N(20_000), new(atomic.Uint32)

// Addresses returns n free loopback addresses, below the ports that the system chooses: they stay free while a server is away.
func Addresses(n int) (free []string, err error) {
	for range 100 * n {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10_000+(firstPort+ports.Add(1))%20_000))
		if err != nil {
			continue
		}
		defer func() { _ = l.Close() }() // not before the end, so that the ports differ
		if free = append(free, l.Addr().String()); len(free) == n {
			return free, nil
		}
	}
	return nil, fmt.Errorf("devkit: %d addresses are free, want %d", len(free), n)
}

// InProcess starts a server without a port: it is reached only by Connect and with nats.InProcessServer(n). Inside a bubble
// of testing/synctest no other kind works.
func InProcess(dir string) (*NATS, error) {
	return start(dir, server.Options{DontListen: true, Host: "127.0.0.1", Port: server.RANDOM_PORT}, "")
}

// Listen opens a free loopback port of a server that InProcess started; the port is closed when the server stops.
func (n *NATS) Listen() (url string, err error) {
	n.Server.AcceptLoop(make(chan struct{}))
	if why := n.log.takeFatal(); why != "" {
		return "", fmt.Errorf("devkit: %s", why)
	}
	return n.Server.ClientURL(), nil
}

func start(dir string, opts server.Options, config string) (*NATS, error) {
	n := &NATS{opts: opts, config: config, removeStore: dir == ""}
	if n.removeStore {
		made, err := os.MkdirTemp("", "errand-nats-")
		if err != nil {
			return nil, fmt.Errorf("devkit: %w", err)
		}
		dir = made
	}
	n.opts.ServerName, n.opts.StoreDir, n.opts.JetStream = "errand-devkit", dir, true
	n.opts.JetStreamMaxStore = 1 << 40 // what streams may reserve does not depend on how full this disk is
	n.opts.NoSigs = true               // the program handles signals itself
	n.opts.NoLog = true
	if err := n.Restart(); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// Restart stops the server and starts it again with the same store and port; connections that reconnect find it.
func (n *NATS) Restart() error {
	n.Stop()
	opts := n.opts // a copy: the server writes to its options
	if n.config != "" {
		if err := opts.ProcessConfigString(n.config); err != nil {
			return fmt.Errorf("devkit: configuration: %w", err)
		}
	}
	s, err := server.NewServer(&opts)
	if err != nil {
		return fmt.Errorf("devkit: %w", err)
	}
	s.SetLoggerV2(&n.log, false, false, false)
	s.Start()
	n.mu.Lock()
	n.Server = s
	n.mu.Unlock()
	for began := time.Now(); !s.ReadyForConnections(100 * time.Millisecond); {
		if why := n.log.takeFatal(); why != "" {
			n.Stop()
			return fmt.Errorf("devkit: nats-server in %s: %s", n.opts.StoreDir, why)
		}
		if time.Since(began) > startWait {
			n.Stop()
			return fmt.Errorf("devkit: nats-server in %s is not ready after %v", n.opts.StoreDir, startWait)
		}
	}
	if !n.opts.DontListen {
		n.URL = s.ClientURL()
		n.opts.Host, n.opts.Port = "127.0.0.1", s.Addr().(*net.TCPAddr).Port // the same after a restart
	}
	return nil
}

// Reconfigure is Restart with a different configuration.
func (n *NATS) Reconfigure(config string) error {
	n.config = config
	return n.Restart()
}

// Stop stops the server and keeps its data.
func (n *NATS) Stop() {
	if n.Server != nil {
		if n.opts.DontListen { // Shutdown sleeps with JetStream's lock held: whoever waits for that lock would stop a bubble's clock
			_ = n.Server.DisableJetStream()
		}
		n.Server.Shutdown()
		n.Server.WaitForShutdown()
	}
}

// Close stops the server and removes a temporary store.
func (n *NATS) Close() {
	n.Stop()
	if n.removeStore {
		_ = os.RemoveAll(n.opts.StoreDir) // what cannot be removed is in the system's temporary directory
	}
}

// InProcessConn implements nats.InProcessConnProvider: a connection that reconnects after a Restart reaches the new server.
func (n *NATS) InProcessConn() (net.Conn, error) {
	n.mu.Lock()
	s := n.Server
	n.mu.Unlock()
	return s.InProcessConn()
}

// Connect opens a connection that reconnects until it is closed.
func (n *NATS) Connect() (*nats.Conn, error) {
	opts := []nats.Option{nats.Name("devkit"), nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond), nats.Timeout(startWait)}
	if n.URL == "" {
		opts = append(opts, nats.InProcessServer(n))
	}
	nc, err := nats.Connect(n.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("devkit: %w", err)
	}
	return nc, nil
}

// Violations returns the server's messages about clients that lacked a permission.
func (n *NATS) Violations() []string {
	n.log.mu.Lock()
	defer n.log.mu.Unlock()
	return slices.Clone(n.log.violations)
}

// serverLog is the server's logger. It keeps permission violations and fatal messages, which would otherwise end the process.
type serverLog struct {
	mu                 sync.Mutex
	fatals, violations []string
}

func (c *serverLog) takeFatal() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	why := strings.Join(c.fatals, "; ")
	c.fatals = nil
	return why
}

// Fatalf keeps the reason why the server stops.
func (c *serverLog) Fatalf(format string, v ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fatals = append(c.fatals, fmt.Sprintf(format, v...))
}

// Errorf keeps violations of permissions.
func (c *serverLog) Errorf(format string, v ...any) {
	if text := fmt.Sprintf(format, v...); strings.Contains(text, "Violation") {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.violations = append(c.violations, text)
	}
}

func (*serverLog) Noticef(string, ...any) {}
func (*serverLog) Warnf(string, ...any)   {}
func (*serverLog) Debugf(string, ...any)  {}
func (*serverLog) Tracef(string, ...any)  {}
