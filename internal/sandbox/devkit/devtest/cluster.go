package devtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit"
)

// Cluster is three servers in this process and a connection to each, named n0 to n2.
type Cluster struct {
	Conns []*nats.Conn

	t       testing.TB
	servers []*devkit.NATS
}

// NewCluster starts the servers, which are stopped when the test ends. With -short the test is skipped.
func NewCluster(t testing.TB) *Cluster {
	t.Helper()
	Full(t)
	routes, err := devkit.Addresses(3)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{t: t}
	for i, route := range routes {
		n := Configured(t, fmt.Sprintf("server_name: n%d\ncluster { name: devkit, listen: %q, routes: [nats://%s] }", i, route,
			strings.Join(routes, ", nats://")))
		nc, err := n.Connect()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		c.servers, c.Conns = append(c.servers, n), append(c.Conns, nc)
	}
	return c
}

// Start starts server i again, with its data.
func (c *Cluster) Start(i int) {
	c.t.Helper()
	if err := c.servers[i].Restart(); err != nil {
		c.t.Fatal(err)
	}
}

// Stop stops server i and keeps its data.
func (c *Cluster) Stop(i int) { c.servers[i].Stop() }

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
