package bus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/devkit/devtest"
	"errand/internal/poll"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// teller opens a sink of its own over nc.
func teller(t testing.TB, nc *nats.Conn) *bus.Deliveries {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	p, err := bus.NewPublisher(nc)
	if err != nil {
		t.Fatal(err)
	}
	d, err := bus.NewDeliveries(js, p, "/errand/test")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func idOf(n int) (id poll.ID) {
	copy(id[:], fmt.Sprintf("%016d", n))
	return id
}

func delivered(n int) messages.Event {
	return messages.Event{Operation: messages.Delivery, State: messages.Delivered, ID: messages.Unmatched, Body: &messages.DeliveryBody{
		Common: messages.Common{At: messages.Time{Time: time.Now()}}, EventID: idOf(n).String(),
		Entry: json.RawMessage(`{"envelope_id":"` + strconv.Itoa(n) + `"}`), Match: messages.Match{Confidence: messages.MatchNone}}}
}

func deliveries(from, to int) (events []messages.Event) {
	for n := from; n < to; n++ {
		events = append(events, delivered(n))
	}
	return events
}

func learn(t testing.TB, d *bus.Deliveries, since time.Time) map[poll.ID]int {
	t.Helper()
	ids := map[poll.ID]int{}
	if err := count(ids, d, since); err != nil {
		t.Fatal(err)
	}
	return ids
}

// count adds what d learns to ids.
func count(ids map[poll.ID]int, d *bus.Deliveries, since time.Time) error {
	for told, err := range d.Learn(context.Background(), since) {
		if err != nil {
			return err
		}
		ids[told.ID]++
	}
	return nil
}

func tell(t testing.TB, d *bus.Deliveries, events []messages.Event) {
	t.Helper()
	if n, err := d.Tell(context.Background(), events); err != nil || n != len(events) {
		t.Fatalf("Tell of %d events: %d, %v", len(events), n, err)
	}
}

func TestWhatWasToldIsLearnedByTheNextTeller(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	first := teller(t, nc)
	if got := learn(t, first, time.Time{}); len(got) != 0 {
		t.Errorf("an empty stream taught %v", got)
	}
	tell(t, first, deliveries(0, 2500))

	next := teller(t, nc)
	want := map[poll.ID]int{}
	for n := range 2500 {
		want[idOf(n)] = 1
	}
	if diff := cmp.Diff(want, learn(t, next, time.Time{})); diff != "" {
		t.Errorf("learned (-want +got):\n%s", diff)
	}
	tell(t, next, deliveries(2500, 2501))
	if got := learn(t, next, time.Time{}); len(got) != 1 || got[idOf(2500)] != 1 {
		t.Errorf("the second time %d ids were learned, want the one since", len(got))
	}
}

func TestWhoLostTheTurnStoresNothing(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	first, second := teller(t, nc), teller(t, nc)
	if _, err := first.Tell(t.Context(), deliveries(0, 1)); !errors.Is(err, poll.ErrBehind) {
		t.Errorf("telling before learning: %v, want ErrBehind", err)
	}
	learn(t, first, time.Time{})
	tell(t, first, deliveries(0, 3))
	learn(t, second, time.Time{})
	if n, err := first.Tell(t.Context(), deliveries(3, 8)); n != 0 || !errors.Is(err, poll.ErrBehind) {
		t.Errorf("Tell = %d, %v, want 0 and ErrBehind", n, err)
	}
	tell(t, second, deliveries(3, 4))
	if got := learn(t, first, time.Time{}); got[idOf(3)] != 1 || len(got) != 4 {
		t.Errorf("learned %d ids, want its own three and the one of the other", len(got))
	}
	tell(t, first, deliveries(4, 8))
}

func TestWatermarkIsFoundAgain(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	d := teller(t, nc)
	if w, err := d.Watermark(t.Context()); err != nil || !w.CompleteThrough.IsZero() {
		t.Fatalf("Watermark of an empty stream: %v, %v", w, err)
	}
	learn(t, d, time.Time{})
	at := time.UnixMilli(1767240000123).UTC()
	for n := range 2 {
		tell(t, d, []messages.Event{{Operation: messages.Log, State: messages.Marked, Body: &messages.Watermark{
			Common:          messages.Common{At: messages.Time{Time: at.Add(time.Minute)}},
			CompleteThrough: messages.Time{Time: at.Add(time.Duration(n) * time.Second)}, TotalRecord: 7, New: n}}})
	}
	w, err := teller(t, nc).Watermark(t.Context())
	if err != nil || !w.CompleteThrough.Equal(at.Add(time.Second)) || w.New != 1 || !w.At.Equal(at.Add(time.Minute)) {
		t.Errorf("Watermark = %+v, %v", w, err)
	}
}

func TestEventsCarryTheirHeaders(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	d := teller(t, nc)
	learn(t, d, time.Time{})
	e := delivered(1)
	tell(t, d, []messages.Event{e})
	js, _ := jetstream.New(nc)
	s, err := js.Stream(t.Context(), bus.MailDeliveries)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(t.Context(), "mail.delivery.delivered.unmatched")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"Nats-Msg-Id": idOf(1).String(), "ce-id": idOf(1).String(), "ce-type": "mail.delivery.delivered",
		"ce-source": "/errand/test", "content-type": "application/json"} {
		if got := m.Header.Get(name); got != want {
			t.Errorf("header %s = %q, want %q", name, got, want)
		}
	}
	if body, _ := e.Encode(); !bytes.Equal(m.Data, body) {
		t.Errorf("body = %s, want %s", m.Data, body)
	}
}

// race lets tellers tell the same rows, each in an order of its own, and gives how
// often each id was stored.
func race(t *testing.T, conns []*nats.Conn, tellers, rows, page int) map[string]int {
	t.Helper()
	var wg sync.WaitGroup
	for w := range tellers {
		d, order := teller(t, conns[w%len(conns)]), rand.New(rand.NewPCG(1, uint64(w))).Perm(rows)
		wg.Go(func() {
			seen := map[poll.ID]int{}
			for chunk := range slices.Chunk(order, page) {
				if err := tellMissing(d, seen, chunk); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return storedIDs(t, conns[0])
}

// tellMissing tells those of rows that seen has not, as a poller does.
func tellMissing(d *bus.Deliveries, seen map[poll.ID]int, rows []int) error {
	for {
		var events []messages.Event
		for _, row := range rows {
			if seen[idOf(row)] == 0 {
				events = append(events, delivered(row))
			}
		}
		stored, err := d.Tell(context.Background(), events)
		for _, e := range events[:stored] {
			id, _ := poll.ParseID(e.Body.(*messages.DeliveryBody).EventID)
			seen[id]++
		}
		if !errors.Is(err, poll.ErrBehind) {
			return err
		}
		err = errors.New("not tried yet")
		for try := 0; try < 10 && err != nil; try++ {
			<-time.After(rand.N(20 * time.Millisecond))
			err = count(seen, d, time.Time{})
		}
		if err != nil {
			return err
		}
	}
}

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
		if id, ok := poll.ParseID(m.Header.Get("Nats-Msg-Id")); ok {
			ids[id.String()]++
		}
	}
	return ids
}

func TestTellersThatRaceNeverStoreAnEventTwice(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	withoutDuplicateWindow(t, nc)
	const rows = 10_000
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

// pages is an upstream without latency: every page of a log of rows, newest first,
// rendered before.
type pages struct {
	limit  int
	bodies map[string][]byte
}

func newPages(rows, limit int) *pages {
	p := &pages{limit: limit, bodies: map[string][]byte{}}
	now := time.Now().UTC()
	for page := 1; (page-1)*limit <= rows; page++ {
		b := []byte(`{"error":false,"status_code":200,"message":"OK","data":{"data":[`)
		for i := (page - 1) * limit; i < min(page*limit, rows); i++ {
			if i%limit > 0 {
				b = append(b, ',')
			}
			at := now.Add(-time.Duration(i) * time.Second)
			b = fmt.Appendf(b, `{"created_at":"%s","envelope_id":"%018x","interface":"api","domain":"example.test","from":"sender@example.test","to":"payer%d@example.test","delivered":1,"status":{"delivered":true,"ip":"192.0.2.25","mx":"mx1.example.test","response":"250 2.0.0 OK %x"}}`,
				at.Format(time.RFC3339), at.UnixMilli(), i, i)
		}
		b = fmt.Appendf(b, `],"total_record":%d,"total_page":%d,"current_page":%d,"limit":%d}}`, rows, (rows+limit-1)/limit, page, limit)
		p.bodies[strconv.Itoa(page)] = b
	}
	return p
}

func (p *pages) RoundTrip(r *http.Request) (*http.Response, error) {
	b := p.bodies[r.URL.Query().Get("page")]
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(b)), ContentLength: int64(len(b)), Request: r}, nil
}

func (p *pages) poller(t testing.TB, sink poll.Sink) *poll.Poller {
	t.Helper()
	api, err := mail.New(mail.Config{URL: "http://127.0.0.1", Key: clients.NewSecret("key")}, clients.Transport(p))
	if err != nil {
		t.Fatal(err)
	}
	return &poll.Poller{Upstream: api, Sink: sink, Interval: time.Hour, Limit: p.limit, Overlap: 15 * time.Minute, Logger: zerolog.Nop()}
}

// BenchmarkFirstSweep tells a log of 50,000 rows from the start.
func BenchmarkFirstSweep(b *testing.B) {
	const rows = 50_000
	for _, limit := range []int{100, 1000} {
		b.Run(strconv.Itoa(limit), func(b *testing.B) {
			upstream := newPages(rows, limit)
			for b.Loop() {
				b.StopTimer()
				_, nc := devtest.Provisioned(b)
				ctx, stop := context.WithCancel(b.Context())
				p := upstream.poller(b, teller(b, nc))
				p.Lag = func(time.Duration) { stop() }
				b.StartTimer()
				if err := p.Run(ctx); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if why := p.Fault(); why != "" {
					b.Fatal(why)
				}
				nc.Close()
				b.StartTimer()
			}
			b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkLearn reads 200,000 ids.
func BenchmarkLearn(b *testing.B) {
	const rows = 200_000
	_, nc := devtest.Provisioned(b)
	d := teller(b, nc)
	learn(b, d, time.Time{})
	for n := 0; n < rows; n += 1000 {
		tell(b, d, deliveries(n, n+1000))
	}
	for b.Loop() {
		if got := len(learn(b, teller(b, nc), time.Time{})); got != rows {
			b.Fatalf("learned %d, want %d", got, rows)
		}
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "ids/s")
}
