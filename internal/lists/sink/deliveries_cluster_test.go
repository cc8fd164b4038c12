package sink_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/lists/sink"
	"errand/internal/lists/sweep"
	"errand/internal/sandbox/devkit/devtest"
)

// replicated runs three servers that have the streams, with the shortest duplicate window
// there is, and gives a connection to each: the fences are alone with the work.
func replicated(t *testing.T, names ...string) []*nats.Conn {
	t.Helper()
	c := devtest.NewCluster(t)
	js := c.Replicate(names...)
	for _, name := range names {
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := s.CachedInfo().Config
		cfg.Duplicates = 100 * time.Millisecond
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	return c.Conns
}

func TestPollersThatRaceInAClusterNeverStoreAnEventTwice(t *testing.T) {
	conns := replicated(t, bus.MailDeliveries)
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

// reading is what a poller was given by Requests so far, by subject and sequence: one
// whose acknowledgement is lost is stored again, since the duplicate window is short.
type reading struct {
	*sink.Store
	given map[string]map[uint64]int
	early []string // outcomes that came before their call
}

func readingOf(t *testing.T, nc *nats.Conn) *reading {
	return &reading{Store: newSink(t, nc), given: map[string]map[uint64]int{}}
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
	return r.Requests(ctx, time.Time{}, func(record history.Entry) error {
		if r.given[record.Subject] == nil {
			r.given[record.Subject] = map[uint64]int{}
		}
		r.given[record.Subject][record.Sequence]++
		if id, ok := strings.CutPrefix(record.Subject, "mail.send.accepted."); ok && r.given["mail.send.started."+id] == nil {
			r.early = append(r.early, id)
		}
		return nil
	})
}

// Calls and outcomes are stored by way of one server and meanwhile read by way of the
// others, by one who reads on and by one who begins; leaders step down all the while.
// What was stored before a reading is given by it, once, an outcome after its call.
func TestAPollerOnAnotherServerSeesEveryCall(t *testing.T) {
	conns := replicated(t, bus.MailEvents)
	js, err := jetstream.New(conns[0])
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var stored []string
	writing := make(chan struct{})
	go func() {
		defer close(writing)
		began := time.Now()
		for n := range 150 {
			for _, subject := range []string{"mail.send.started.r%d", "mail.send.accepted.r%d"} {
				subject = fmt.Sprintf(subject, n)
				for { // there may be no leader
					_, err := js.Publish(t.Context(), subject, []byte(`{}`), jetstream.WithMsgID(subject))
					if err == nil {
						break
					}
					if t.Context().Err() != nil || time.Since(began) > time.Minute {
						return // fewer are stored than must be
					}
				}
				mu.Lock()
				stored = append(stored, subject)
				mu.Unlock()
			}
		}
	}()
	steady, changes := readingOf(t, conns[1]), 0
	var changed time.Time
	for round, last := 0, false; !last; round++ {
		change := time.Since(changed) > 300*time.Millisecond // a round can take less than an election
		if change {
			changed = time.Now()
			if _, err := conns[2].Request("$JS.API.STREAM.LEADER.STEPDOWN."+bus.MailEvents, nil, 2*time.Second); err == nil {
				changes++
			}
		}
		select {
		case <-writing:
			last = true
		default:
		}
		readers := []*reading{steady}
		if change || last {
			readers = append(readers, readingOf(t, conns[2]))
		}
		for _, r := range readers {
			mu.Lock()
			want := slices.Clone(stored)
			mu.Unlock()
			r.read(t)
			for _, subject := range want {
				if r.given[subject] == nil {
					t.Errorf("round %d: %s was stored before, and not given", round, subject)
				}
			}
			for subject, sequences := range r.given {
				for sequence, n := range sequences {
					if n > 1 {
						t.Errorf("round %d: %s at %d was given %d times", round, subject, sequence, n)
					}
				}
			}
			if len(r.early) > 0 || t.Failed() {
				t.Fatalf("round %d: outcomes before the records of their calls: %v", round, r.early)
			}
		}
	}
	if changes == 0 || len(stored) != 300 || len(steady.given) != 300 {
		t.Errorf("the leaders were changed %d times, %d records were stored and %d given", changes, len(stored), len(steady.given))
	}
}

// In a cluster only one fenced write can be in flight. The first page finds that out, and
// after it has been learned what is stored of it all goes in batches.
func TestInAClusterPagesGoInBatches(t *testing.T) {
	conns := replicated(t, bus.MailDeliveries)
	d := newSink(t, conns[0])
	seen := learn(t, d)
	pages, waits := underWay(d, seen, 600, 200)
	behind := false
	for i, wait := range waits {
		n, err := wait()
		behind = behind || errors.Is(err, sweep.ErrBehind)
		if n > len(pages[i]) || err != nil && !errors.Is(err, sweep.ErrBehind) {
			t.Fatalf("page %d: %d, %v", i, n, err)
		}
	}
	if !behind {
		t.Fatal("three pages at once were stored in a cluster: are batches still needed?")
	}
	if err := count(seen, d); err != nil {
		t.Fatal(err)
	}
	pages, waits = underWay(d, seen, 1200, 400)
	for i, wait := range waits {
		if n, err := wait(); n != len(pages[i]) || err != nil {
			t.Fatalf("page %d: %d, %v; want all in a batch", i, n, err)
		}
	}
	once(t, storedIDs(t, conns[0]), 1200)
}
