package bus_test

import (
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/devkit/devtest"
)

// cluster runs three servers in this process and gives a connection to each.
func cluster(t *testing.T) (conns []*nats.Conn) {
	t.Helper()
	var routes []*url.URL
	var ports []int
	var kept []net.Listener
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, l) // so that all ports differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
	}
	for _, l := range kept {
		_ = l.Close()
	}
	for i, port := range ports {
		s, err := server.NewServer(&server.Options{ServerName: fmt.Sprint("n", i), Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(),
			NoLog: true, NoSigs: true, Routes: routes, Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port}})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		if !s.ReadyForConnections(10 * time.Second) {
			t.Fatal("server is not ready")
		}
		nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		conns = append(conns, nc)
	}
	return conns
}

// replicated makes the deliveries stream on three servers, as soon as they are able to.
func replicated(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	limits := devtest.Limits(nc)
	limits.Replicas = 3
	for _, cfg := range bus.Streams(limits) {
		if cfg.Name != bus.MailDeliveries {
			continue
		}
		cfg.Duplicates = 100 * time.Millisecond
		for began := time.Now(); ; <-time.After(50 * time.Millisecond) {
			if _, err = js.CreateStream(t.Context(), cfg); err == nil {
				break
			}
			if time.Since(began) > 20*time.Second {
				t.Fatal(err)
			}
		}
	}
	return js
}

func TestTellersThatRaceInAClusterNeverStoreAnEventTwice(t *testing.T) {
	conns := cluster(t)
	replicated(t, conns[0])
	done := make(chan struct{})
	changes := 0
	go func() { // the leader changes all the time
		defer close(done)
		for range 3 {
			select {
			case <-t.Context().Done():
				return
			case <-time.After(300 * time.Millisecond):
			}
			if _, err := conns[1].Request("$JS.API.STREAM.LEADER.STEPDOWN."+bus.MailDeliveries, nil, 2*time.Second); err == nil {
				changes++
			}
		}
	}()
	const rows = 2000
	ids := race(t, conns, 3, rows, 100)
	<-done
	if changes == 0 {
		t.Error("the leader was never changed")
	}
	once(t, ids, rows)
}
