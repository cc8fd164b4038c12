// Package devkit runs a nats-server inside this process: for the demo and for
// tests. It is the only package that links the server besides tests.
//
//	Start ─► server on a free loopback port ◄─ programs, the nats tool
//	InProcess ─► server without a port ◄─ this process only, also in a bubble
package devkit

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// startWait is how long a server may take to be ready. An empty one takes 10 ms;
// one with a large store reads it first.
const startWait = 30 * time.Second

// NATS is a running server with JetStream.
type NATS struct {
	URL    string // "" when it has no port
	Server *server.Server

	opts      server.Options
	config    string // beside opts, in the server's own language
	temporary bool   // the store goes with the server
	said      complaints

	mu sync.Mutex // of Server, which connections that come back ask for meanwhile
}

// Start starts a server that keeps its data in dir and listens on a free port of
// the loopback interface. With dir "" the data is kept in a temporary folder that
// Close removes. The error is what the server says.
func Start(dir string) (*NATS, error) { return Listen(dir, server.RANDOM_PORT) }

// Listen is Start on a port of the caller's choice.
func Listen(dir string, port int) (*NATS, error) {
	return start(dir, server.Options{Host: "127.0.0.1", Port: port}, "")
}

// Configured is Start with what config says in the server's own language: accounts,
// TLS and the like.
func Configured(dir, config string) (*NATS, error) {
	return start(dir, server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT}, config)
}

// InProcess starts a server that opens no port: only Connect, and connections made
// with nats.InProcessServer of the NATS, reach it. In a bubble of testing/synctest
// it is the only kind that works.
func InProcess(dir string) (*NATS, error) {
	return start(dir, server.Options{DontListen: true}, "")
}

func start(dir string, opts server.Options, config string) (*NATS, error) {
	n := &NATS{opts: opts, config: config, temporary: dir == ""}
	if n.temporary {
		made, err := os.MkdirTemp("", "errand-nats-")
		if err != nil {
			return nil, fmt.Errorf("devkit: %w", err)
		}
		dir = made
	}
	n.opts.ServerName, n.opts.StoreDir, n.opts.JetStream = "errand-devkit", dir, true
	n.opts.NoSigs = true // signals are the program's own business
	n.opts.NoLog = true
	if err := n.Restart(); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// Restart starts the server anew over the same store and port; connections that
// reconnect find it again. A server that still runs is stopped first.
func (n *NATS) Restart() error {
	n.Stop()
	opts := n.opts // the server writes its choices into its options
	if n.config != "" {
		if err := opts.ProcessConfigString(n.config); err != nil {
			return fmt.Errorf("devkit: configuration: %w", err)
		}
	}
	s, err := server.NewServer(&opts)
	if err != nil {
		return fmt.Errorf("devkit: %w", err)
	}
	s.SetLoggerV2(&n.said, false, false, false)
	s.Start()
	n.mu.Lock()
	n.Server = s
	n.mu.Unlock()
	for began := time.Now(); !s.ReadyForConnections(100 * time.Millisecond); {
		if why := n.said.fatal(); why != "" {
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
		n.opts.Port = s.Addr().(*net.TCPAddr).Port // the same one the next time
	}
	return nil
}

// Reconfigure is Restart with another configuration.
func (n *NATS) Reconfigure(config string) error {
	n.config = config
	return n.Restart()
}

// Stop stops the server and keeps its data.
func (n *NATS) Stop() {
	if n.Server != nil {
		n.Server.Shutdown()
		n.Server.WaitForShutdown()
	}
}

// Close stops the server and removes a temporary store.
func (n *NATS) Close() {
	n.Stop()
	if n.temporary {
		_ = os.RemoveAll(n.opts.StoreDir) // what stays lies in the system's temporary folder
	}
}

// InProcessConn makes a NATS an nats.InProcessConnProvider: a connection that
// reconnects after a Restart reaches the new server.
func (n *NATS) InProcessConn() (net.Conn, error) {
	n.mu.Lock()
	s := n.Server
	n.mu.Unlock()
	return s.InProcessConn()
}

// Connect opens a connection that reconnects for as long as it is not closed.
func (n *NATS) Connect() (*nats.Conn, error) {
	opts := []nats.Option{nats.Name("devkit"), nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond)}
	if n.URL == "" {
		opts = append(opts, nats.InProcessServer(n))
	}
	nc, err := nats.Connect(n.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("devkit: %w", err)
	}
	return nc, nil
}

// Violations are what clients tried without the permission to, in the server's words.
func (n *NATS) Violations() []string {
	n.said.mu.Lock()
	defer n.said.mu.Unlock()
	return slices.Clone(n.said.violations)
}

// complaints keep what a server that cannot start says, which would exit otherwise,
// and what it refused its clients.
type complaints struct {
	mu               sync.Mutex
	said, violations []string
}

func (c *complaints) fatal() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	why := strings.Join(c.said, "; ")
	c.said = nil
	return why
}

// Fatalf keeps why the server cannot go on.
func (c *complaints) Fatalf(format string, v ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = append(c.said, fmt.Sprintf(format, v...))
}

// Errorf keeps violations of permissions.
func (c *complaints) Errorf(format string, v ...any) {
	if text := fmt.Sprintf(format, v...); strings.Contains(text, "Violation") {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.violations = append(c.violations, text)
	}
}

// Noticef, Warnf, Debugf and Tracef are the rest of a server's logger.
func (*complaints) Noticef(string, ...any) {}

// Warnf drops.
func (*complaints) Warnf(string, ...any) {}

// Debugf drops.
func (*complaints) Debugf(string, ...any) {}

// Tracef drops.
func (*complaints) Tracef(string, ...any) {}
