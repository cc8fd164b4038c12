package bus_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
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

// replicated makes streams on three servers, as soon as they are able to.
func replicated(t *testing.T, nc *nats.Conn, names ...string) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	limits := devtest.Limits(nc)
	limits.Replicas = 3
	for _, cfg := range bus.Streams(limits) {
		if !slices.Contains(names, cfg.Name) {
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
	replicated(t, conns[0], bus.MailDeliveries)
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

// reading is what a poller was given by Requests so far, and how often.
type reading struct {
	*bus.Deliveries
	given map[string]int
	early []string // outcomes that came before the record of their call
}

func readingOf(t *testing.T, nc *nats.Conn) *reading {
	return &reading{Deliveries: teller(t, nc), given: map[string]int{}}
}

// read takes what is new; while there is no leader it tries again.
func (r *reading) read(t *testing.T) {
	t.Helper()
	for began := time.Now(); ; <-time.After(50 * time.Millisecond) {
		err := r.once(t.Context())
		if err == nil {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatal(err)
		}
	}
}

func (r *reading) once(ctx context.Context) error {
	for record, err := range r.Requests(ctx, time.Time{}) {
		if err != nil {
			return err
		}
		r.given[record.Subject]++
		if id, ok := strings.CutPrefix(record.Subject, "mail.send.accepted."); ok && r.given["mail.log.sent."+id+".1"] == 0 {
			r.early = append(r.early, id)
		}
	}
	return nil
}

// Records and outcomes are stored by way of one server and meanwhile read by way of the
// others, by one who reads on and by one who begins; leaders step down all the while.
// What was stored before a reading is given by it, once, an outcome after its record.
func TestAPollerOnAnotherServerSeesEveryRecord(t *testing.T) {
	conns := cluster(t)
	js := replicated(t, conns[0], bus.MailDeliveries, bus.MailEvents)
	var mu sync.Mutex
	var stored []string
	writing := make(chan struct{})
	go func() {
		defer close(writing)
		for n := range 150 {
			for _, subject := range []string{"mail.log.sent.r%d.1", "mail.send.started.r%d", "mail.delivery.delivered.r%d", "mail.send.accepted.r%d"} {
				subject = fmt.Sprintf(subject, n)
				for t.Context().Err() == nil { // there may be no leader
					if _, err := js.Publish(t.Context(), subject, []byte(`{}`), jetstream.WithMsgID(subject)); err == nil {
						break
					}
				}
				if !strings.HasPrefix(subject, "mail.delivery.") { // which nobody asks for
					mu.Lock()
					stored = append(stored, subject)
					mu.Unlock()
				}
			}
		}
	}()
	steady, changes := readingOf(t, conns[1]), 0
	for round, last := 0, false; !last; round++ {
		if round%6 == 0 {
			stream := []string{bus.MailDeliveries, bus.MailEvents}[round/6%2]
			if _, err := conns[2].Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, 2*time.Second); err == nil {
				changes++
			}
		}
		select {
		case <-writing:
			last = true
		default:
		}
		readers := []*reading{steady}
		if round%6 == 0 || last {
			readers = append(readers, readingOf(t, conns[2]))
		}
		for _, r := range readers {
			mu.Lock()
			want := slices.Clone(stored)
			mu.Unlock()
			r.read(t)
			for _, subject := range want {
				if r.given[subject] == 0 {
					t.Errorf("round %d: %s was stored before, and not given", round, subject)
				}
			}
			for subject, n := range r.given {
				if n > 1 {
					t.Errorf("round %d: %s was given %d times", round, subject, n)
				}
			}
			if len(r.early) > 0 || t.Failed() {
				t.Fatalf("round %d: outcomes before the records of their calls: %v", round, r.early)
			}
		}
	}
	if changes == 0 || len(stored) != 450 || len(steady.given) != 450 {
		t.Errorf("the leaders were changed %d times, %d records were stored and %d given", changes, len(stored), len(steady.given))
	}
}
