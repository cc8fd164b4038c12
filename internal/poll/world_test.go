package poll

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// row is one row of a sending log, in the states that it was in.
type row struct {
	envelope, to string
	created      time.Time
	states       []messages.State // the last one is the current one
	place        uint64           // in a log without order

	text string // the row's JSON
	of   int    // the number of states when it was made
}

func (r *row) state() messages.State { return r.states[len(r.states)-1] }

// json writes a row in any of the forms that a row may have.
func (r *row) json() string {
	if r.of == len(r.states) {
		return r.text
	}
	reply, delivered := "250 2.0.0 OK", 0
	switch r.state() {
	case messages.Delivered:
		delivered = 1
	case messages.Deferred:
		reply = "451 4.7.1 later"
	case messages.Bounced:
		reply = "550 5.1.1 no"
	}
	status := fmt.Sprintf(`,"status":{"response":%q}`, reply)
	switch {
	case r.place%3 == 0:
		status = fmt.Sprintf(`,"status":%q`, fmt.Sprintf(`{"response":%q}`, reply))
	case r.place%3 == 1 && reply[0] == '2':
		status = ""
	}
	form := []string{`%d`, `"%d"`, `%t`}[r.place%7%3]
	shown := any(delivered)
	if form == `%t` {
		shown = delivered == 1
	}
	r.of, r.text = len(r.states), fmt.Sprintf(`{"created_at":%q,"envelope_id":%q,"to":%q,"delivered":`+form+`%s}`,
		r.created.UTC().Format(time.RFC3339Nano), r.envelope, r.to, shown, status)
	return r.text
}

// upstream is a sending log that grows and changes, also between two pages.
type upstream struct {
	mu          sync.Mutex // guards everything here; not held while a read sleeps
	order       order
	rows        []*row // oldest first
	made        int    // number of rows made so far
	gone        []*row // rows that were removed
	random      *rand.Rand
	busy        func(*upstream)    // runs before each page is served
	answer      func() (int, bool) // returns a status to answer with instead of a page
	maxRows     int                // maximum rows of a page; 0: as many as requested
	wrong       int                // added to total_record
	noTotals    bool               // there is no total at all
	pages       int                // added to total_page
	fixed       bool               // a page has maxRows, whatever is requested
	overlapping int                // reads that began during another read of the same poller
	latency     time.Duration
	calls       []string

	shown   []*row
	shownAs order
}

// add adds n rows to the log, the newest created now.
func (u *upstream) add(n int) {
	for range n {
		i := u.made
		u.made++
		state := []messages.State{messages.Delivered, messages.Delivered, messages.Deferred, messages.Bounced, messages.Unknown}[u.random.IntN(5)]
		u.rows = append(u.rows, &row{envelope: fmt.Sprintf("%018x", i/3), to: fmt.Sprintf("payer%d@Example.test", i%3),
			created: time.Now().Truncate(time.Millisecond), states: []messages.State{state}, place: u.random.Uint64()})
		n := len(u.rows) - 1
		if n > 0 && !u.rows[n].created.After(u.rows[n-1].created) && u.random.IntN(4) > 0 {
			u.rows[n].created = u.rows[n-1].created.Add(time.Millisecond)
		}
	}
	u.shown = nil
}

// late adds a row that is up to a minute old.
func (u *upstream) late() {
	u.add(1)
	n := len(u.rows) - 1
	r := u.rows[n]
	r.created = r.created.Add(-time.Duration(u.random.IntN(60_000)) * time.Millisecond)
	at, _ := slices.BinarySearchFunc(u.rows[:n], r, func(a, b *row) int { return a.created.Compare(b.created) })
	u.rows = slices.Insert(u.rows[:n], at, r)
}

// remove removes n random rows.
func (u *upstream) remove(n int) {
	for range min(n, len(u.rows)) {
		at := u.random.IntN(len(u.rows))
		u.gone = append(u.gone, u.rows[at])
		u.rows = slices.Delete(u.rows, at, at+1)
	}
	u.shown = nil
}

// settle changes deferred rows that are younger than within.
func (u *upstream) settle(n int, within time.Duration) {
	for range n {
		if len(u.rows) == 0 {
			return
		}
		r := u.rows[len(u.rows)-1-u.random.IntN(min(len(u.rows), 60))]
		if r.state() == messages.Deferred && time.Since(r.created) < within {
			r.states = append(r.states, []messages.State{messages.Delivered, messages.Bounced}[u.random.IntN(2)])
		}
	}
}

func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	time.Sleep(u.latency)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls = append(u.calls, r.URL.Query().Get("page"))
	if u.answer != nil {
		if status, ok := u.answer(); !ok {
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{}`)), Request: r}, nil
		}
	}
	if u.busy != nil {
		u.busy(u)
	}
	page, _ := strconv.Atoi(r.URL.Query().Get("page"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	if u.maxRows > 0 && (limit > u.maxRows || u.fixed) {
		limit = u.maxRows
	}
	rows := u.listing()
	var list []string
	for i := (page - 1) * limit; i < min(page*limit, len(rows)); i++ {
		list = append(list, rows[i].json())
	}
	total := len(rows) + u.wrong
	rest := fmt.Sprintf(`,"total_record":%d,"total_page":%d,"current_page":%d,"limit":%d`, total, (total+limit-1)/limit+u.pages, page, limit)
	if u.noTotals {
		rest = ""
	}
	body := fmt.Sprintf(`{"error":false,"status_code":200,"message":"OK","data":{"data":[%s]%s}}`, strings.Join(list, ","), rest)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r}, nil
}

// listing is the log in its order.
func (u *upstream) listing() []*row {
	if u.shown != nil && len(u.shown) == len(u.rows) && u.shownAs == u.order {
		return u.shown
	}
	u.shown, u.shownAs = slices.Clone(u.rows), u.order
	switch u.order {
	case newestFirst:
		slices.Reverse(u.shown)
	case unordered:
		slices.SortFunc(u.shown, func(a, b *row) int { return cmp.Compare(a.place, b.place) })
	}
	return u.shown
}

// store is a stream of events in memory; sink is one poller's view of it.
type store struct {
	mu     sync.Mutex
	events []stored
	leader int
	marks  []messages.Watermark
}

type stored struct {
	messages.Event
	at time.Time
}

// stored is what a poller learns about the event.
func (e stored) s() (s StoredEvent, ok bool) {
	s = StoredEvent{At: e.at, State: e.State, Request: e.ID}
	switch b := e.Body.(type) {
	case *messages.DeliveryBody:
		s.ID, _ = ParseID(b.EventID)
		s.Note = b.Recipient
	case *messages.OverdueBody:
		s.Note = Place(b.Batch, b.Recipient)
	case *messages.SummaryBody, *messages.ConcludedBody:
		s.Note = NoteOf(e.Event)
	default:
		return StoredEvent{}, false
	}
	return s, true
}

type sink struct {
	*store
	leader, next int
	since        time.Time
	crash        func() bool // called before each event is stored; true: the process dies
	stop         context.CancelFunc
	published    []int  // number of events of each complete Publish
	beforeLearn  func() // runs once, before the leadership is taken
	learned      int    // number of learned events
	fullReads    int    // how often everything was learned
}

var errCrash = errors.New("the process died")

func (d *sink) Learn(_ context.Context, since time.Time, again bool) iter.Seq2[StoredEvent, error] {
	return func(yield func(StoredEvent, error) bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.beforeLearn != nil {
			d.beforeLearn()
			d.beforeLearn = nil
		}
		d.store.leader++
		leader := d.store.leader
		if again {
			d.next, d.since = 0, since
			d.fullReads++
		}
		for ; d.next < len(d.events); d.next++ {
			e := d.events[d.next]
			stored, ok := e.s()
			if !ok || e.at.Before(d.since) {
				continue
			}
			if d.learned++; !yield(stored, nil) {
				return
			}
		}
		d.leader = leader
	}
}

func (d *sink) Publish(ctx context.Context, events []messages.Event) (int, error) {
	for i, e := range events {
		if ctx.Err() != nil {
			return i, ErrBehind
		}
		if err := d.append(e); err != nil {
			return i, err
		}
		time.Sleep(100 * time.Microsecond) // other pollers may write in between
	}
	d.published = append(d.published, len(events))
	return len(events), nil
}

func (d *sink) append(e messages.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leader != d.store.leader {
		return ErrBehind
	}
	if d.crash != nil && d.crash() {
		d.stop()
		return errCrash
	}
	d.events = append(d.events, stored{e, time.Now()})
	if w, ok := e.Body.(*messages.Watermark); ok {
		d.marks = append(d.marks, *w)
	}
	return nil
}

func (d *sink) Watermark(context.Context) (messages.Watermark, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.marks) == 0 {
		return messages.Watermark{}, nil
	}
	return d.marks[len(d.marks)-1], nil
}

// delivered counts the events by row and state.
func (s *store) delivered(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, e := range s.events {
		b, ok := e.Body.(*messages.DeliveryBody)
		if !ok {
			continue
		}
		var entry struct {
			EnvelopeID string `json:"envelope_id"`
			To         string `json:"to"`
		}
		if err := json.Unmarshal(b.Entry, &entry); err != nil {
			t.Fatal(err)
		}
		counts[entry.EnvelopeID+" "+entry.To+" "+string(e.State)]++
	}
	return counts
}

// checkComplete fails unless every state was published at most once, no other state was,
// and the current state of every row was.
func (u *upstream) checkComplete(t *testing.T, s *store) {
	t.Helper()
	counts := s.delivered(t)
	for what, n := range counts {
		if n > 1 {
			t.Errorf("%s was published %d times", what, n)
		}
	}
	for i, r := range u.rows {
		for j, state := range r.states {
			key := r.envelope + " " + r.to + " " + string(state)
			if j == len(r.states)-1 && counts[key] == 0 {
				t.Errorf("row %d of %d, created %v ago: %s was not published", i, len(u.rows), time.Since(r.created), key)
			}
			delete(counts, key)
		}
	}
	for _, r := range u.gone {
		for _, state := range r.states {
			delete(counts, r.envelope+" "+r.to+" "+string(state))
		}
	}
	for what := range counts {
		t.Errorf("%s was published but never existed", what)
	}
}

// countingTransport is one poller's connection to the upstream.
type countingTransport struct {
	*upstream
	reads atomic.Int32 // under way
}

func (l *countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.reads.Add(1) > 1 {
		l.mu.Lock()
		l.overlapping++
		l.mu.Unlock()
	}
	defer l.reads.Add(-1)
	return l.upstream.RoundTrip(r)
}

func (u *upstream) poller(t testing.TB, d *sink, limit int) *Poller {
	t.Helper()
	api, err := mail.New(mail.Config{URL: "http://127.0.0.1", Key: clients.NewSecret("key")}, clients.Transport(&countingTransport{upstream: u}))
	if err != nil {
		t.Fatal(err)
	}
	return &Poller{Upstream: api, Sink: d, Policy: retry.Policy{First: 200 * time.Millisecond, Max: 10 * time.Second, Tries: 5},
		Interval: 10 * time.Second, Limit: limit, Overlap: 3 * time.Minute, Logger: zerolog.Nop()}
}
