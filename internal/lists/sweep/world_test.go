package sweep

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/retry"
)

// row is a row of the list, in the states that it was in.
type row struct {
	key     uint64
	created time.Time
	states  int // it was in the states 1 to states
	final   bool
	place   uint64 // in a list without order
}

// id is different for each state of each row, and spread like a hash.
func (r *row) id(state int) (id ID) {
	binary.BigEndian.PutUint64(id[:8], r.key)
	binary.BigEndian.PutUint64(id[8:], (r.key<<8|uint64(state))*0x9e3779b97f4a7c15)
	return id
}

// row is the row as a page shows it.
func (r *row) row() Row[int] {
	shown := Row[int]{ID: r.id(r.states), At: r.created, Final: r.final, Item: r.states}
	if r.states > 1 && !r.final { // of a row that may change at any age
		shown.Before = r.id(r.states - 1)
	}
	return shown
}

// Order is the order in which a list shows its rows.
type Order int

const (
	Unordered Order = iota
	NewestFirst
	oldestFirst // which the sweeper takes for none
)

// list is a list that grows and changes, also between two pages, and that lies.
type list struct {
	mu      sync.Mutex // guards everything here; not held while a read sleeps
	order   Order
	rows    []*row // oldest first
	made    uint64 // number of rows made so far
	gone    []*row // rows that were removed
	random  *rand.Rand
	busy    func(*list)               // runs before each page is served
	answer  func(number, n int) error // instead of a page
	total   func(rows int) int        // what the page says
	maxRows int                       // maximum rows of a page; 0: as many as requested
	clamped bool                      // a page behind the last one is the last one
	fixed   bool                      // a page has maxRows, whatever is requested
	depth   int                       // rows beyond are never shown; 0: there is no such limit
	empty   func() bool               // whether a page is empty for once
	latency time.Duration
	calls   int
	deepest int // page
	shown   []*row
}

// add adds n rows, the newest created now.
func (l *list) add(n int) {
	for range n {
		l.made++
		r := &row{key: l.made, created: time.Now().Truncate(time.Millisecond), states: 1, final: l.random.IntN(5) > 0, place: l.random.Uint64()}
		if last := len(l.rows) - 1; last >= 0 && !r.created.After(l.rows[last].created) && l.random.IntN(4) > 0 {
			r.created = l.rows[last].created.Add(time.Millisecond)
		}
		l.rows = append(l.rows, r)
	}
	l.shown = nil
}

// late adds a row that is up to this old, where it belongs.
func (l *list) late(age time.Duration) *row {
	l.add(1)
	n := len(l.rows) - 1
	r := l.rows[n]
	r.created = time.Now().Add(-age).Truncate(time.Millisecond)
	at, _ := slices.BinarySearchFunc(l.rows[:n], r, func(a, b *row) int { return a.created.Compare(b.created) })
	l.rows = slices.Insert(l.rows[:n], at, r)
	l.shown = nil
	return r
}

// remove removes n random rows.
func (l *list) remove(n int) {
	for range min(n, len(l.rows)) {
		at := l.random.IntN(len(l.rows))
		l.gone = append(l.gone, l.rows[at])
		l.rows = slices.Delete(l.rows, at, at+1)
	}
	l.shown = nil
}

// settle changes rows that are not final and not very old.
func (l *list) settle(n int) {
	for range min(n, len(l.rows)) {
		if r := l.rows[l.random.IntN(len(l.rows))]; !r.final && time.Since(r.created) < 40*time.Hour {
			r.states++
			r.final = l.random.IntN(3) > 0
		}
	}
}

// change changes the list under its lock.
func (l *list) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	l.shown = nil
}

func (l *list) Page(ctx context.Context, number, limit int) (p Page[int], err error) {
	if err := ctx.Err(); err != nil {
		return p, err
	}
	time.Sleep(l.latency)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	l.deepest = max(l.deepest, number)
	if l.answer != nil {
		if err := l.answer(number, l.calls); err != nil {
			return p, err
		}
	}
	if l.busy != nil {
		l.busy(l)
	}
	if l.maxRows > 0 && (limit > l.maxRows || l.fixed) {
		limit = l.maxRows
	}
	rows := l.listing()
	if last := (len(rows) + limit - 1) / limit; l.clamped && number > last {
		number = last
	}
	if p.Total = len(rows); l.total != nil {
		p.Total = l.total(len(rows))
	}
	if l.depth > 0 {
		rows = rows[:min(len(rows), l.depth)]
	}
	if l.empty != nil && l.empty() {
		return p, nil
	}
	for i := (number - 1) * limit; i < min(number*limit, len(rows)); i++ {
		p.Rows = append(p.Rows, rows[i].row())
	}
	return p, nil
}

// listing is the list in its order.
func (l *list) listing() []*row {
	if l.shown == nil {
		l.shown = slices.Clone(l.rows)
		switch l.order {
		case NewestFirst:
			slices.Reverse(l.shown)
		case Unordered:
			slices.SortFunc(l.shown, func(a, b *row) int { return cmp.Compare(a.place, b.place) })
		}
	}
	return l.shown
}

// store is a stream of events in memory; sink is one sweeper's view of it.
type store struct {
	mu      sync.Mutex
	events  []Stored
	dropped int // events that have aged out
	leader  int
	answers *sink // the one that says that it leads
	marks   []Mark
	last    time.Time     // when the last event was stored
	age     time.Duration // of the oldest event that is kept; 0: all are
	told    map[ID]int
}

func (s *store) expire() {
	for s.age > 0 && len(s.events) > 0 && time.Since(s.events[0].At) > s.age {
		s.events = s.events[1:]
		s.dropped++
	}
	for s.age > 0 && len(s.marks) > 0 && time.Since(s.marks[0].At) > s.age {
		s.marks = s.marks[1:]
	}
}

type sink struct {
	*store
	leader, next int
	led          bool
	deaf         func() bool // whether nobody answers it
	behind       bool        // a write failed, and those behind it may be stored
	crash        func() bool // called before each event is stored; true: the process dies
	unheard      func() bool // called after a row's is; true: its acknowledgement is lost
	stop         context.CancelFunc
	pages        []int // events of each Publish
	swept        []time.Time
	onSwept      func(time.Time)
	before       func(what string) // a page or a mark is stored
	onMark       func(Mark)
}

var errCrash = errors.New("the process died")

func (d *sink) Led(context.Context) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.answers != nil && d.answers != d && (d.deaf == nil || !d.deaf()), nil
}

func (d *sink) Lead(context.Context) error {
	d.at("turn")
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.led && d.leader != d.store.leader {
		d.led = false
		d.resign()
		return ErrLed
	}
	d.store.leader++
	d.leader, d.led, d.answers, d.behind = d.store.leader, true, d, false
	return nil
}

func (d *sink) Resign() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resign()
}

func (d *sink) Reset() { d.next = 0 }

func (d *sink) resign() {
	if d.answers == d {
		d.answers = nil
	}
}

func (d *sink) Learn(_ context.Context, take func(Stored)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expire()
	for d.next = max(d.next, d.dropped); d.next < d.dropped+len(d.events); d.next++ {
		take(d.events[d.next-d.dropped])
	}
	return nil
}

func (d *sink) Kept(context.Context) (time.Time, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expire()
	switch {
	case d.dropped == 0:
		return time.Time{}, nil
	case len(d.events)+len(d.marks) == 0:
		return d.last.Add(time.Minute), nil
	}
	since := time.Now().Add(max(time.Hour, d.age/60) - d.age)
	if n := len(d.marks); n > 0 {
		first := d.marks[0].At
		if len(d.events) > 0 {
			first = earlier(first, d.events[0].At)
		}
		since = later(since, earlier(first.Add(time.Hour), d.marks[n-1].CompleteThrough))
	}
	return since, nil
}

// Publish stores events while the caller goes on.
func (d *sink) Publish(_ context.Context, rows []Row[int]) func() (int, error) {
	d.at("page")
	if d.behind {
		return Done(0, ErrBehind)
	}
	n, done := 0, make(chan error, 1)
	go func() {
		var failed error
		for _, row := range rows {
			time.Sleep(50 * time.Microsecond) // others may write in between
			var unheard error
			err := d.append(func() {
				d.events = append(d.events, Stored{row.ID, time.Now(), !row.Final})
				d.told[row.ID]++
				if d.unheard != nil && d.unheard() {
					unheard = ErrBehind
				}
			})
			if failed = cmp.Or(failed, err, unheard); failed == nil {
				n++
			}
		}
		done <- failed
	}()
	return func() (int, error) {
		err := <-done
		d.behind = d.behind || err != nil
		d.pages = append(d.pages, n)
		return n, err
	}
}

func (d *sink) append(f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leader != d.store.leader {
		return ErrBehind
	}
	if d.crash != nil && d.crash() {
		d.stop()
		return errCrash
	}
	f()
	d.last = time.Now()
	return nil
}

func (d *sink) at(what string) {
	if d.before != nil {
		d.before(what)
	}
}

func (d *sink) Mark(_ context.Context, m Mark) error {
	d.at("mark")
	if d.onMark != nil {
		d.onMark(m)
	}
	return d.append(func() { d.marks = append(d.marks, m) })
}

func (d *sink) LastMark(context.Context) (m Mark, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expire()
	if n := len(d.marks); n > 0 {
		m = d.marks[n-1]
	}
	return m, nil
}

func (d *sink) Swept(_ context.Context, through time.Time) error {
	d.mu.Lock()
	d.swept = append(d.swept, through)
	d.mu.Unlock()
	if d.onSwept != nil {
		d.onSwept(through)
	}
	return nil
}

// lastSwept is up to when all rows were published by the last sweep.
func (d *sink) lastSwept() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.swept[len(d.swept)-1]
}

// world is a list, and the events about it.
type world struct {
	*testing.T
	*list
	*store
	sink    *sink
	sweeper *Sweeper[int]
}

// newWorld has a list of n rows, a minute apart, whose newest is a day old. It must be made in a bubble.
func newWorld(t *testing.T, o Order, n int) *world {
	w := &world{T: t, sink: &sink{}, list: &list{order: o, random: rand.New(rand.NewPCG(3, uint64(n))), latency: 5 * time.Millisecond},
		store: &store{told: map[ID]int{}}}
	for range n {
		w.add(1)
		time.Sleep(time.Minute)
	}
	time.Sleep(24 * time.Hour)
	w.sweeper = w.list.sweeper(nil, 50)
	return w
}

func (l *list) sweeper(d *sink, limit int) *Sweeper[int] {
	return &Sweeper[int]{List: l, Sink: d, Policy: retry.Policy{First: 200 * time.Millisecond, Max: 10 * time.Second, Tries: 5},
		Logger: zerolog.Nop(), Lag: func(time.Duration) {}, Leading: func(bool) {},
		Settings: Settings{Name: "list", Interval: 10 * time.Second, Limit: limit, Overlap: 3 * time.Minute}}
}

// run sweeps for d, in a new process, and returns the number of pages that were read.
func (w *world) run(d time.Duration) int {
	w.Helper()
	w.sink = &sink{store: w.store, crash: w.sink.crash, onSwept: w.sink.onSwept, before: w.sink.before}
	w.sweeper.Sink = w.sink
	before := w.called()
	ctx, stop := context.WithTimeout(w.Context(), d)
	defer stop()
	w.sink.stop = stop
	w.sweeper.Run(ctx)
	return w.called() - before
}

// called is the number of pages that were read so far.
func (l *list) called() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

// check fails unless each state was published at most once and the current state of every
// row was, if it was made since a time.
func (w *world) check(since time.Time) {
	w.Helper()
	checkTold(w.T, w.list, w.store, since)
}

func checkTold(t *testing.T, l *list, s *store, since time.Time) {
	t.Helper()
	missing, twice := 0, 0
	for _, r := range l.rows {
		if s.told[r.id(r.states)] == 0 && !r.created.Before(since) {
			if missing++; missing < 5 {
				t.Errorf("state %d of the row made at %v was not published", r.states, r.created)
			}
		}
	}
	for id, n := range s.told {
		if n > 1 {
			if twice++; twice < 5 {
				t.Errorf("%x was published %d times", id, n)
			}
		}
	}
	if missing > 0 || twice > 0 {
		t.Errorf("%d states of %d rows were not published, %d twice", missing, len(l.rows), twice)
	}
}
