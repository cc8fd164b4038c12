package sink_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/lists/sink"
	"errand/internal/lists/sweep"
	"errand/internal/sandbox/devkit/devtest"
	"errand/internal/sandbox/devkit/inshort"
	"errand/pkg/messages"
)

// underWay begins to store three pages of what seen has not.
func underWay(d *sink.Store, seen map[sweep.ID]int, all, page int) (pages [][]messages.Event, waits []func() (int, error)) {
	var events []messages.Event
	for row := range all {
		if seen[idOf(row)] == 0 && len(events) < inFlight*page {
			events = append(events, delivered(row))
		}
	}
	for len(events) > 0 {
		n := min(page, len(events))
		pages = append(pages, events[:n])
		waits = append(waits, d.Publish(context.Background(), events[:n]))
		events = events[n:]
	}
	return pages, waits
}

// Two sinks take the leadership from each other while three pages of either are under way. Each publishes what it has
// not learned, until all is stored, and nothing that one of them says is stored was not, or was stored by both.
func TestPagesUnderWayAreStoredOnceWhoeverHasTheLeadership(t *testing.T) {
	n, nc := devtest.Provisioned(t)
	withoutDuplicateWindow(t, nc)
	other, err := n.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	const page = 30
	all := inshort.Choose(t, 5000, 1000)
	sinks, seen := []*sink.Store{newSink(t, nc), newSink(t, other)}, []map[sweep.ID]int{{}, {}}
	certain, lost := map[string]int{}, 0
	learn := func(i int) {
		if err := count(seen[i], sinks[i]); err != nil {
			t.Error(err)
		}
	}
	learn(0)
	for round := 0; len(seen[round%2]) < all && !t.Failed(); round++ {
		active, next := round%2, (round+1)%2
		pages, waits := underWay(sinks[active], seen[active], all, page)
		taken := make(chan struct{})
		go func() {
			learn(next)
			close(taken)
		}()
		if round%4 == 0 { // lost before the last page at the latest, which must not be stored again
			<-taken
			pages, waits = append(pages, pages[0]), append(waits, sinks[active].Publish(context.Background(), pages[0]))
		}
		behind := false
		for i, wait := range waits {
			n, err := wait()
			if err == nil != (n == len(pages[i])) || err != nil && !errors.Is(err, sweep.ErrBehind) {
				t.Fatalf("round %d, page %d: %d of %d stored, %v", round, i, n, len(pages[i]), err)
			}
			behind = behind || err != nil
			for _, e := range pages[i][:n] {
				certain[e.Body.(*messages.DeliveryBody).EventID]++
			}
		}
		if behind {
			lost++
		}
		<-taken
	}
	stored := storedIDs(t, nc)
	once(t, stored, all)
	once(t, certain, len(certain))
	for id := range certain {
		if stored[id] == 0 {
			t.Errorf("%s was said to be stored", id)
		}
	}
	if lost == 0 {
		t.Error("the leadership was never lost with pages under way")
	}
}

// limitMessages makes the stream refuse what is beyond n more messages; negative: nothing.
func limitMessages(t *testing.T, nc *nats.Conn, n int64) {
	t.Helper()
	js, _ := jetstream.New(nc)
	s, err := js.Stream(t.Context(), bus.MailDeliveries)
	if err != nil {
		t.Fatal(err)
	}
	config := s.CachedInfo().Config
	if config.MaxMsgs = n; n >= 0 {
		config.MaxMsgs += int64(s.CachedInfo().State.Msgs)
	}
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

// refuseAll returns when the server has answered all that was written over nc before, at its
// limit: it stores a stream's messages in the order in which they come.
func refuseAll(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, _ := jetstream.New(nc)
	var refused *jetstream.APIError
	if _, err := js.Publish(t.Context(), delivered(0).Subject(), nil); !errors.As(err, &refused) {
		t.Fatalf("one message beyond the limit: %v, want a refusal", err)
	}
}

// Of three pages the server refuses what comes after the middle of the second: each wait
// returns what is stored of its page, and after that the sink must learn.
func TestARefusalInTheMiddleOfAPageLeavesTheCountRight(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	d := newSink(t, nc)
	learn(t, d)
	limitMessages(t, nc, 10+4)
	pages, waits := underWay(d, nil, 30, 10)
	for i, want := range []int{10, 4, 0} {
		if n, err := waits[i](); n != want || errors.Is(err, sweep.ErrBehind) != (want < 10) {
			t.Errorf("page %d: %d of %d, %v; want %d", i, n, len(pages[i]), err, want)
		}
	}
	refuseAll(t, nc)
	limitMessages(t, nc, -1)
	if n, err := publish(d, rows(30, 31)); n != 0 || !errors.Is(err, sweep.ErrBehind) {
		t.Errorf("before it has learned: %d, %v; want ErrBehind", n, err)
	}
	seen := learn(t, d)
	if len(seen) != 14 {
		t.Errorf("learned %d, want the 14 that are stored", len(seen))
	}
	_, waits = underWay(d, seen, 30, 10)
	for _, wait := range waits {
		if _, err := wait(); err != nil {
			t.Fatal(err)
		}
	}
	once(t, storedIDs(t, nc), 30)
}

// A row that the server never takes is an error that learning does not help against: what
// is before it and the other pages are stored.
func TestARowThatIsNeverTakenDoesNotHideWhatIsStored(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js, _ := jetstream.New(nc)
	s, err := js.Stream(t.Context(), bus.MailDeliveries)
	if err != nil {
		t.Fatal(err)
	}
	config := s.CachedInfo().Config
	config.MaxMsgSize = 4 << 10
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	d := newSink(t, nc)
	learn(t, d)
	large := rows(10, 20)
	large[3].Body.(*messages.DeliveryBody).Entry = []byte(`{"to":"` + strings.Repeat("x", 8<<10) + `"}`)
	waits := []func() (int, error){d.Publish(t.Context(), rows(0, 10)), d.Publish(t.Context(), large), d.Publish(t.Context(), rows(20, 30))}
	for i, want := range []int{10, 3, 10} {
		if n, err := waits[i](); n != want || err == nil != (want == 10) || errors.Is(err, sweep.ErrBehind) {
			t.Errorf("page %d: %d, %v; want %d", i, n, err, want)
		}
	}
	if seen := learn(t, d); len(seen) != 10+3+6+10 {
		t.Errorf("learned %d, want all but one", len(seen))
	}
}

// What can never be encoded is not a reason to learn; what is before it is stored.
func TestAnEventThatCannotBeEncodedIsAnError(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	d := newSink(t, nc)
	learn(t, d)
	events := rows(0, 5)
	events[2].Body.(*messages.DeliveryBody).Entry = []byte(`{ `)
	if n, err := publish(d, events); n != 2 || err == nil || errors.Is(err, sweep.ErrBehind) {
		t.Errorf("got %d, %v; want 2 and an error other than ErrBehind", n, err)
	}
	if n, err := publish(d, nil); n != 0 || !errors.Is(err, sweep.ErrBehind) && err != nil {
		t.Errorf("nothing: %d, %v", n, err)
	}
}

// Two sinks publish the same rows, three pages at a time, the server is restarted under
// them, and a third one comes when all is published.
func TestRowsArePublishedOnceThroughARestart(t *testing.T) {
	n, nc := devtest.Provisioned(t)
	withoutDuplicateWindow(t, nc)
	all := inshort.Choose(t, 10_000, 2000)
	order := make([]int, all)
	for i := range order {
		order[i] = i
	}
	var sinks sync.WaitGroup
	for range 2 {
		d := newSink(t, nc)
		sinks.Go(func() {
			if _, err := storeMissing(d, map[sweep.ID]int{}, order, 100); err != nil {
				t.Error(err)
			}
		})
	}
	js, _ := jetstream.New(nc)
	s, err := js.Stream(t.Context(), bus.MailDeliveries)
	for err == nil && s.CachedInfo().State.Msgs < uint64(all/5) {
		_, err = s.Info(t.Context())
	}
	if err == nil {
		err = n.Restart()
	}
	if err != nil {
		t.Fatal(err)
	}
	sinks.Wait()
	third := newSink(t, nc)
	if stored, err := storeMissing(third, learn(t, third), order, 100); stored != 0 || err != nil {
		t.Errorf("a sink that came when all was published stored %d, %v", stored, err)
	}
	once(t, storedIDs(t, nc), all)
}
