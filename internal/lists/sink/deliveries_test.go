package sink_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/lists"
	"errand/internal/lists/sink"
	"errand/internal/lists/sweep"
	"errand/internal/sandbox/devkit/devtest"
	"errand/internal/sandbox/devkit/inshort"
	"errand/pkg/messages"
)

// newSink opens another sink over nc.
func newSink(t testing.TB, nc *nats.Conn) *sink.Store {
	t.Helper()
	s, _ := newSinkAndPublisher(t, nc)
	return s
}

func newSinkAndPublisher(t testing.TB, nc *nats.Conn) (*sink.Store, *bus.Publisher) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	p, err := bus.NewPublisher(nc)
	if err != nil {
		t.Fatal(err)
	}
	return sink.New(js, p, "/errand/test", sink.SendingLog), p
}

func idOf(n int) (id sweep.ID) {
	copy(id[:], fmt.Sprintf("%016d", n))
	return id
}

func textOf(n int) string {
	id := idOf(n)
	return hex.EncodeToString(id[:])
}

func delivered(n int) messages.Event {
	return messages.Event{Operation: messages.Delivery, State: messages.Delivered, ID: messages.Unmatched, Body: &messages.DeliveryBody{
		Common: messages.Common{At: messages.Time{Time: time.Now()}}, EventID: textOf(n),
		Entry: json.RawMessage(`{"envelope_id":"` + strconv.Itoa(n) + `"}`), Match: messages.Match{Confidence: messages.MatchNone}}}
}

func rows(from, to int) (events []messages.Event) {
	for n := from; n < to; n++ {
		events = append(events, delivered(n))
	}
	return events
}

func learn(t testing.TB, d *sink.Store) map[sweep.ID]int {
	t.Helper()
	ids := map[sweep.ID]int{}
	if err := count(ids, d); err != nil {
		t.Fatal(err)
	}
	return ids
}

// count adds what d learns, once it leads, to ids.
func count(ids map[sweep.ID]int, d *sink.Store) error {
	if err := lead(d); err != nil {
		return err
	}
	return follow(ids, d)
}

// lead takes the leadership, also from one that took it from d.
func lead(d *sink.Store) error {
	err := d.Lead(context.Background())
	if errors.Is(err, sweep.ErrLed) {
		err = d.Lead(context.Background())
	}
	return err
}

// follow adds what d learns to ids.
func follow(ids map[sweep.ID]int, d *sink.Store) error {
	return d.Learn(context.Background(), func(told lists.Stored) error {
		if id, isRow := sweep.ParseID(told.ID); isRow {
			ids[id]++
		}
		return nil
	})
}

// publish stores events and waits for that.
func publish(d *sink.Store, events []messages.Event) (int, error) {
	return d.Publish(context.Background(), events)()
}

func store(t testing.TB, d *sink.Store, events []messages.Event) {
	t.Helper()
	if n, err := publish(d, events); err != nil || n != len(events) {
		t.Fatalf("Publish of %d events: %d, %v", len(events), n, err)
	}
}

func TestWhatWasPublishedIsLearnedByTheNextPoller(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	first := newSink(t, nc)
	if got := learn(t, first); len(got) != 0 {
		t.Errorf("an empty stream gave %v", got)
	}
	store(t, first, rows(0, 2500))

	next := newSink(t, nc)
	want := map[sweep.ID]int{}
	for n := range 2500 {
		want[idOf(n)] = 1
	}
	if diff := cmp.Diff(want, learn(t, next)); diff != "" {
		t.Errorf("learned (-want +got):\n%s", diff)
	}
	store(t, next, rows(2500, 2501))
	if got := learn(t, next); len(got) != 1 || got[idOf(2500)] != 1 {
		t.Errorf("the second time %d ids were learned, want the one since", len(got))
	}
}

// What a poller learns of an event is what the one that stored it knows: rows and summaries are not published again.
func TestEveryEventOfADeliveryIsLearned(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	d := newSink(t, nc)
	learn(t, d)
	row := delivered(1)
	row.ID, row.Body.(*messages.DeliveryBody).Recipient = "m1", "1.2"
	summary := messages.Event{Operation: messages.Delivery, State: messages.Summary, ID: "m1", Body: &messages.SummaryBody{
		Common: messages.Common{At: messages.Time{Time: time.Now()}}, Recipients: 1, Accepted: 1, Delivered: 1, Final: true}}
	store(t, d, []messages.Event{row, delivered(2), summary})
	if err := d.Mark(t.Context(), sweep.Mark{At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	var got []lists.Stored
	err := newSink(t, nc).Learn(t.Context(), func(e lists.Stored) error {
		e.At = time.Time{}
		got = append(got, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []lists.Stored{lists.StoredAt(row, time.Time{}), lists.StoredAt(delivered(2), time.Time{}), lists.StoredAt(summary, time.Time{})}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("learned (-want +got):\n%s", diff)
	}
}

func TestWhoLostTheLeadershipStoresNothing(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	first, second := newSink(t, nc), newSink(t, nc)
	if _, err := publish(first, rows(0, 1)); !errors.Is(err, sweep.ErrBehind) {
		t.Errorf("storing before learning: %v, want ErrBehind", err)
	}
	learn(t, first)
	store(t, first, rows(0, 3))
	learn(t, second)
	if n, err := publish(first, rows(3, 8)); n != 0 || !errors.Is(err, sweep.ErrBehind) {
		t.Errorf("Publish = %d, %v, want 0 and ErrBehind", n, err)
	}
	store(t, second, rows(3, 4))
	if got := learn(t, first); got[idOf(3)] != 1 || len(got) != 4 {
		t.Errorf("learned %d ids, want its own three and the one of the other", len(got))
	}
	store(t, first, rows(4, 8))
}

func TestTheLastMarkIsFoundAgain(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	d := newSink(t, nc)
	if m, err := d.LastMark(t.Context()); err != nil || !reflect.DeepEqual(m, sweep.Mark{}) {
		t.Fatalf("the last mark of an empty stream: %+v, %v", m, err)
	}
	learn(t, d)
	at := time.UnixMilli(1767240000123).UTC()
	var want sweep.Mark
	for n := range 2 {
		want = sweep.Mark{At: at.Add(time.Minute), CompleteThrough: at.Add(time.Duration(n) * time.Second), Total: 7, New: n,
			Anchor: []uint64{1, 1<<63 + 5}}
		if err := d.Mark(t.Context(), want); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := newSink(t, nc).LastMark(t.Context()); err != nil || !reflect.DeepEqual(m, want) {
		t.Errorf("the last mark is %+v, %v; want %+v", m, err, want)
	}
}

func TestEventsCarryTheirHeaders(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	d := newSink(t, nc)
	learn(t, d)
	e := delivered(1)
	store(t, d, []messages.Event{e})
	js, _ := jetstream.New(nc)
	s, err := js.Stream(t.Context(), bus.MailDeliveries)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(t.Context(), "mail.delivery.delivered.unmatched")
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(m.Header, func(name string, _ []string) bool { return strings.HasPrefix(name, "Nats-") && name != nats.MsgIdHdr })
	want := nats.Header{"ce-id": {textOf(1)}, "ce-type": {"mail.delivery.delivered"}, "content-type": {"application/json"}}
	if diff := cmp.Diff(want, m.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if body, _ := e.Encode(); !bytes.Equal(m.Data, body) {
		t.Errorf("body = %s, want %s", m.Data, body)
	}
}

// race lets sweepers publish the same rows, each in another order and three pages
// at a time, and returns how often each id was stored.
func race(t *testing.T, conns []*nats.Conn, sweepers, rows, page int) map[string]int {
	t.Helper()
	var wg sync.WaitGroup
	for w := range sweepers {
		d, order := newSink(t, conns[w%len(conns)]), rand.New(rand.NewPCG(1, uint64(w))).Perm(rows)
		wg.Go(func() {
			if _, err := storeMissing(d, map[sweep.ID]int{}, order, page); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return storedIDs(t, conns[0])
}

// storeMissing stores the rows that are not in seen, as a sweeper does: three pages are under way, and after an error
// it learns and begins again with what is missing. It returns how many events it is certain to have stored.
func storeMissing(d *sink.Store, seen map[sweep.ID]int, rows []int, page int) (stored int, err error) {
	for {
		n, err := storeOnce(d, seen, rows, page)
		stored += n
		if !errors.Is(err, sweep.ErrBehind) {
			return stored, err
		}
		err = errors.New("not tried yet")
		for try := 0; try < 10 && err != nil; try++ {
			<-time.After(rand.N(20 * time.Millisecond))
			err = count(seen, d)
		}
		if err != nil {
			return stored, err
		}
	}
}

// storeOnce stores the rows that are not in seen, up to the first error.
func storeOnce(d *sink.Store, seen map[sweep.ID]int, rows []int, page int) (stored int, first error) {
	type underWay struct {
		events []messages.Event
		wait   func() (int, error)
	}
	var pages []underWay
	end := func() {
		n, err := pages[0].wait()
		for _, e := range pages[0].events[:n] {
			id, _ := sweep.ParseID(e.Body.(*messages.DeliveryBody).EventID)
			seen[id]++
		}
		stored += n
		if first == nil {
			first = err
		}
		pages = pages[1:]
	}
	for chunk := range slices.Chunk(rows, page) {
		var events []messages.Event
		for _, row := range chunk {
			if seen[idOf(row)] == 0 {
				events = append(events, delivered(row))
			}
		}
		pages = append(pages, underWay{events, d.Publish(context.Background(), events)})
		if len(pages) == inFlight {
			end()
		}
		if first != nil {
			break
		}
	}
	for len(pages) > 0 {
		end()
	}
	return stored, first
}

// inFlight is how many pages are under way, one more than a sweeper has.
const inFlight = 3

// storedIDs counts the ids of the events in the stream.
func storedIDs(t *testing.T, nc *nats.Conn) map[string]int {
	t.Helper()
	js, _ := jetstream.New(nc)
	s, err := js.Stream(t.Context(), bus.MailDeliveries)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]int{}
	for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		if id, ok := sweep.ParseID(m.Header.Get("ce-id")); ok {
			ids[hex.EncodeToString(id[:])]++
		}
	}
	return ids
}

func TestPollersThatRaceNeverStoreAnEventTwice(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	withoutDuplicateWindow(t, nc)
	rows := inshort.Choose(t, 10_000, 2000)
	once(t, race(t, []*nats.Conn{nc}, 3, rows, 100), rows)
}

// withoutDuplicateWindow leaves the fence alone with the work.
func withoutDuplicateWindow(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, _ := jetstream.New(nc)
	s, err := js.Stream(t.Context(), bus.MailDeliveries)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.Duplicates = 100 * time.Millisecond // the least there is
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

func once(t *testing.T, ids map[string]int, rows int) {
	t.Helper()
	if len(ids) != rows {
		t.Errorf("%d ids were stored, want %d", len(ids), rows)
	}
	for id, n := range ids {
		if n != 1 {
			t.Errorf("%s was stored %d times", id, n)
		}
	}
}

// A row that fits into no message must not stop those behind it.
func TestARowLargerThanAMessageIsPublishedAbridged(t *testing.T) {
	n := devtest.Configured(t, "max_payload: 64KB")
	nc, err := n.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if err := devtest.Provision(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	d := newSink(t, nc)
	learn(t, d)
	large := delivered(1)
	large.Body.(*messages.DeliveryBody).Entry = []byte(`{"to":"a@example.test","status":"` + strings.Repeat("x", 100<<10) + `"}`)
	store(t, d, []messages.Event{large, delivered(2)})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), bus.MailDeliveries)
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.GetMsg(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(first.Data); !strings.Contains(text, `"to":"a@example.test"`) || !strings.Contains(text, `"abridged":true`) {
		t.Errorf("published: %.300s", text)
	}
}
