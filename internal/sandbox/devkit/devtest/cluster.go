package devtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit"
)

// Cluster is three servers in this process and a connection to each, named n0 to n2.
type Cluster struct {
	Conns []*nats.Conn

	t       testing.TB
	opts    []server.Options
	servers []*server.Server
}

// NewCluster starts the servers, which are stopped when the test ends. With -short the test is skipped.
func NewCluster(t testing.TB) *Cluster {
	t.Helper()
	Full(t)
	c := &Cluster{t: t, servers: make([]*server.Server, 3)}
	var routes []*url.URL
	ports := free(t, 6)
	for _, port := range ports[:3] {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprint("127.0.0.1:", port)})
	}
	for i := range c.servers {
		c.opts = append(c.opts, server.Options{ServerName: fmt.Sprint("n", i), Host: "127.0.0.1", Port: ports[3+i], JetStream: true,
			StoreDir: t.TempDir(),
			NoLog:    true, NoSigs: true, Routes: routes, Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: ports[i]}})
		c.Start(i)
		t.Cleanup(func() { c.Stop(i) })
		nc, err := nats.Connect(c.servers[i].ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
			nats.Timeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		c.Conns = append(c.Conns, nc)
	}
	return c
}

// free returns n free ports, that stay free while a server is stopped.
func free(t testing.TB, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := devkit.Loopback()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // not before the end, so that the ports differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// Start starts server i; after a Stop it continues with its data.
func (c *Cluster) Start(i int) {
	c.t.Helper()
	opts := c.opts[i] // a copy: the server writes to its options
	s, err := server.NewServer(&opts)
	if err != nil {
		c.t.Fatal(err)
	}
	c.servers[i] = s
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		c.t.Fatal("server is not ready")
	}
}

// Stop stops server i and keeps its data.
func (c *Cluster) Stop(i int) {
	c.servers[i].Shutdown()
	c.servers[i].WaitForShutdown()
}

// Replicate creates streams of the topology on all three servers, as soon as these are ready.
func (c *Cluster) Replicate(names ...string) jetstream.JetStream {
	c.t.Helper()
	js, err := jetstream.New(c.Conns[0])
	if err != nil {
		c.t.Fatal(err)
	}
	limits := Limits(c.Conns[0])
	limits.Replicas = 3
	for _, cfg := range bus.Streams(limits) {
		if !slices.Contains(names, cfg.Name) {
			continue
		}
		for began := time.Now(); ; <-time.After(50 * time.Millisecond) {
			if _, err = js.CreateStream(c.t.Context(), cfg); err == nil {
				break
			}
			if time.Since(began) > time.Minute {
				c.t.Fatal(err)
			}
		}
	}
	return js
}

// Leader is the number of the server that leads a stream.
func (c *Cluster) Leader(js jetstream.JetStream, stream string) (i int) {
	c.t.Helper()
	for began := time.Now(); ; <-time.After(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		s, err := js.Stream(ctx, stream)
		cancel()
		if err == nil {
			_, err = fmt.Sscanf(s.CachedInfo().Cluster.Leader, "n%d", &i)
		}
		if err == nil {
			return i
		}
		if time.Since(began) > time.Minute {
			c.t.Fatal(err)
		}
	}
}
