package sweep

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/retry"
	"errand/internal/sandbox/devkit/inshort"
	"errand/pkg/clients"
)

var (
	growthSeeds = flag.Uint64("growth.seeds", 100, "lists that grow while they are read, drawn at random")
	growthFrom  = flag.Uint64("growth.from", 0, "the first seed")
)

// growing is a list that grows while it is read, at its beginning or its end, and drops its oldest rows.
type growing struct {
	mu      sync.Mutex
	random  *rand.Rand
	order   Order
	rows    []growingRow // oldest first
	dropped int
	rate    func(since time.Duration) float64 // rows a second
	still   time.Duration                     // after so long it is 0; 0: never
	began   time.Time
	grown   float64 // rows that are due, or were made
	last    time.Time
	latency time.Duration
	fixed   int           // rows of each page; 0: as many as requested
	noTotal bool          // pages do not say how long the list is
	keep    int           // rows that are listed; 0: all
	drops   int           // oldest rows that are removed a second, but for the last of all
	coarse  bool          // its times are whole seconds
	ahead   time.Duration // its clock
	times   int           // how often each row is listed, if more than once

	changing int           // one row of so many changes
	changes  time.Duration // within
	fails    float64
	late     float64

	looked      int   // rows that hidden has looked at
	unpublished []int // of these, those that were not published when it did
}

type growingRow struct {
	created time.Time
	late    bool
	changed time.Time // to its second state; zero: never
}

func newGrowing(o Order, seed uint64, latency time.Duration) *growing {
	return &growing{random: rand.New(rand.NewPCG(seed, 8)), order: o, began: time.Now(), last: time.Now(), latency: latency,
		changing: 6, changes: 2 * time.Minute}
}

// grow adds what is due by now.
func (g *growing) grow() {
	now := time.Now()
	if g.last.Before(now) && g.still > 0 && g.last.Sub(g.began) > g.still {
		g.last = now
	}
	for step := 10 * time.Millisecond; !g.last.Add(step).After(now); { // whoever read at a time has seen all that was made then
		g.last = g.last.Add(step)
		g.grown += g.rate(g.last.Sub(g.began)) / 100
		for ; g.grown >= 1; g.grown-- {
			r := growingRow{created: g.last.Add(g.ahead)}
			if g.random.Float64() < g.late {
				r.late, r.created = true, r.created.Add(-time.Duration(g.random.IntN(120))*time.Second)
			}
			if g.coarse {
				r.created = r.created.Truncate(time.Second)
			}
			if g.changing > 0 && g.random.IntN(g.changing) == 0 {
				r.changed = g.last.Add(time.Duration(g.random.Int64N(int64(g.changes))))
			}
			g.rows = append(g.rows, r)
		}
	}
	if g.keep > 0 {
		g.dropped = max(g.dropped, len(g.rows)-g.keep)
	}
	g.dropped = max(g.dropped, min(int(now.Sub(g.began).Seconds()*float64(g.drops)), len(g.rows)-100))
}

func growingID(n, state int) (id ID) {
	binary.BigEndian.PutUint64(id[:8], uint64(n+1)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(id[8:], (uint64(n+1)*0x9e3779b97f4a7c15)^uint64(state))
	return id
}

func (g *growing) row(n int, now time.Time) Row[int] {
	r, state := g.rows[n], 1
	if !r.changed.IsZero() && !now.Before(r.changed) {
		state = 2
	}
	id := growingID(n, state)
	return Row[int]{ID: id, At: r.created, Final: r.changed.IsZero() || state == 2, Item: n}
}

func (g *growing) Page(ctx context.Context, number, limit int) (p Page[int], err error) {
	time.Sleep(g.latency)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return p, err
	}
	if g.random.Float64() < g.fails {
		return p, &clients.Error{Fate: clients.Busy, Status: 503}
	}
	g.grow()
	if g.fixed > 0 {
		limit = g.fixed
	}
	now, times := time.Now(), max(1, g.times)
	n := times * (len(g.rows) - g.dropped)
	if !g.noTotal {
		p.Total = n
	}
	p.Rows = make([]Row[int], 0, min(limit, n))
	for i := (number - 1) * limit; i < min(number*limit, n); i++ {
		at := g.dropped + i/times
		if g.order == NewestFirst {
			at = len(g.rows) - 1 - i/times
		}
		p.Rows = append(p.Rows, g.row(at, now))
	}
	return p, nil
}

// overlap is as long as rows may be late, and none for the mark to be strict where it comes from readings of the whole list.
func (g *growing) overlap() time.Duration {
	switch {
	case g.order == NewestFirst:
		return 3 * time.Minute
	case g.coarse:
		return time.Second
	}
	return 0
}

func (g *growing) Earlier(r Row[int]) []ID { return []ID{growingID(r.Item, 1), growingID(r.Item, 2)} }

// hidden is the number of rows that a mark covers though they are not published, but for those that were listed late. It looks
// at each row until it is published.
func (g *growing) hidden(s *store, through time.Time) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; g.looked < len(g.rows); g.looked++ {
		g.unpublished = append(g.unpublished, g.looked)
	}
	g.unpublished = slices.DeleteFunc(g.unpublished, func(at int) bool {
		return at < g.dropped || g.rows[at].late || s.told[growingID(at, 1)]+s.told[growingID(at, 2)] > 0
	})
	for _, at := range g.unpublished {
		if !g.rows[at].created.After(through) {
			n++
		}
	}
	return n
}

// The list grows by up to a thousand rows a second while its pages take up to half a second, in bursts and steadily;
// pollers die, are cut off, refused or unheard and take over at any write, others publish the newest page, pages fail: what a mark covers
// is published, each state is published once, once the list stands still nothing is left out, and no two marks are within ten seconds.
func TestAMarkNeverCoversWhatIsNotPublished(t *testing.T) {
	// Oldest first, of a list that drops as many rows as come; one without a total that grows as fast as it is read.
	seeds := []uint64{31, 7000063}
	for seed := *growthFrom; seed < *growthFrom+inshort.Choose(t, *growthSeeds, 6); seed++ {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { growth(t, seed) }) }) {
			break
		}
	}
}

func growth(t *testing.T, seed uint64) {
	random, ears, refusals := rand.New(rand.NewPCG(seed, 7)), rand.New(rand.NewPCG(seed, 9)), rand.New(rand.NewPCG(seed, 12))
	lost := rand.New(rand.NewPCG(seed, 13))
	pick := func(of ...int) int { return of[random.IntN(len(of))] }
	limit := pick(5, 10, 20, 50)
	g := newGrowing(Order(1+random.IntN(2)), seed, time.Duration(pick(0, 5, 20, 90, 200, 500))*time.Millisecond)
	g.noTotal, g.fails, g.late = random.IntN(8) == 0, []float64{0, 0, 0.02, 0.2}[random.IntN(4)], []float64{0, 0, 0.05}[random.IntN(3)]
	if random.IntN(5) == 0 {
		g.fixed = limit
	}
	if random.IntN(5) == 0 {
		g.keep = limit * (5 + random.IntN(20))
	}
	most := min(1000, float64(limit)/max(g.latency, 10*time.Millisecond).Seconds()) // what can be read at all
	steady, bursts := most*random.Float64()*0.9, random.IntN(3) == 0
	if drops := rand.New(rand.NewPCG(seed, 10)); drops.IntN(5) == 0 {
		g.drops = 1 + int(most*drops.Float64())
	}
	clocks := rand.New(rand.NewPCG(seed, 11))
	if clocks.IntN(6) == 0 {
		g.times = 3
	}
	g.coarse, g.ahead = clocks.IntN(3) == 0, time.Duration(max(0, clocks.IntN(8000)-4000))*time.Millisecond
	quiet := time.Duration(20+random.IntN(40)) * time.Second
	g.still = quiet
	g.rate = func(since time.Duration) float64 {
		switch {
		case since > quiet:
			return 0
		case bursts && int(since.Seconds())%10 != 3:
			return steady / 20
		case bursts:
			return 4 * steady
		}
		return steady
	}
	g.rows = make([]growingRow, random.IntN(20*limit))
	for i := range g.rows {
		g.rows[i].created = g.began.Add(time.Duration(i-len(g.rows)) * time.Minute)
	}
	s := &store{told: map[ID]int{}}
	logger := zerolog.Nop()
	if testing.Verbose() {
		logger = zerolog.New(zerolog.NewTestWriter(t))
	}
	check := func(d *sink) {
		d.onMark = func(m Mark) {
			if n := g.hidden(s, m.CompleteThrough); n > 0 && !t.Failed() {
				t.Errorf("%v: a mark covers %d rows that are not published, up to %v", time.Since(g.began), n, m.CompleteThrough.Sub(g.began))
			}
		}
	}
	sweeper := func(d *sink) *Sweeper[int] { return g.sweeper(d, limit, logger) }
	for time.Since(g.began) < quiet {
		ctx, stop := context.WithTimeout(t.Context(), time.Duration(3+random.IntN(30))*time.Second)
		var all sync.WaitGroup
		deaf := random.IntN(3) == 0
		for range 1 + random.IntN(2) {
			d := &sink{store: s, stop: func() {}}
			check(d)
			of, end := context.WithCancel(ctx)
			d.stop = end
			if random.IntN(3) == 0 { // the process dies
				left := random.IntN(20 * limit)
				d.crash = func() bool { left--; return left < 0 }
			} else if refusals.IntN(3) == 0 { // a write is refused for good, and the process goes on
				d.stop, d.crash = func() {}, func() bool { return refusals.IntN(3*limit) == 0 }
			}
			if lost.IntN(3) == 0 {
				d.unheard = func() bool { return lost.IntN(10*limit) == 0 }
			}
			if deaf {
				d.deaf = func() bool { return ears.IntN(4) == 0 }
			}
			w := sweeper(d)
			if random.IntN(4) == 0 {
				all.Go(func() { g.lookUp(of, w, limit) })
			}
			all.Go(func() {
				defer end()
				w.Run(of)
			})
		}
		all.Wait()
		stop()
		time.Sleep(time.Duration(pick(0, 0, 10, 60)) * time.Second)
	}
	g.fails = 0
	g.grow()
	d := &sink{store: s}
	check(d)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute+8*time.Second*time.Duration(max(1, g.times)*len(g.rows)/limit))
	defer stop()
	d.stop = stop
	sweeper(d).Run(ctx)
	missing, unseen, twice := 0, 0, 0
	for n := g.dropped; n < len(g.rows); n++ {
		if s.told[g.row(n, time.Now()).ID] == 0 {
			if missing++; missing < 10 {
				t.Logf("row %d of %d, made %v, changed %v", n, len(g.rows), g.rows[n].created.Sub(g.began), g.rows[n].changed.Sub(g.began))
			}
			if s.told[growingID(n, 1)] == 0 {
				unseen++
			}
		}
	}
	for _, n := range s.told {
		if n > 1 {
			twice++
		}
	}
	for i := range len(s.marks) - 1 {
		if between := s.marks[i+1].At.Sub(s.marks[i].At); between < retry.MarkMin {
			t.Errorf("%v: the next mark comes after %v", s.marks[i].At.Sub(g.began), between)
		}
	}
	if missing > 0 || twice > 0 {
		t.Errorf("%d of %d rows are not published in their last state, %d in none, %d states twice", missing, len(g.rows)-g.dropped,
			unseen, twice)
	}
	if t.Failed() {
		t.Logf("ended after %v, marks %d, last swept %v", time.Since(g.began), len(s.marks), d.lastSwept())
		t.Logf("order %d, limit %d, fixed %d, %v a call, %.0f rows a second, bursts %t, keep %d, drops %d, fails %v, no total %t", g.order,
			limit, g.fixed, g.latency, steady, bursts, g.keep, g.drops, g.fails, g.noTotal)
	}
}

func (g *growing) sweeper(d *sink, limit int, logger zerolog.Logger) *Sweeper[int] {
	return &Sweeper[int]{List: g, Sink: d, Policy: retry.Policy{First: 200 * time.Millisecond, Max: 2 * time.Second, Tries: 2}, Logger: logger,
		Lag: func(time.Duration) {}, Leading: func(bool) {},
		Settings: Settings{Name: "list", Interval: 10 * time.Second, Limit: limit, Overlap: g.overlap()}}
}

// run sweeps in one process after the other, and returns how late each row's last state was published, in order; what was
// not is as late as it is now.
func (g *growing) run(t *testing.T, limit int, of func(growingRow) time.Time, lives ...time.Duration) (late []time.Duration) {
	s := &store{told: map[ID]int{}}
	for _, d := range lives {
		ctx, stop := context.WithTimeout(t.Context(), d)
		k := &sink{store: s, stop: stop}
		k.onMark = func(m Mark) {
			if n := g.hidden(s, m.CompleteThrough); n > 0 && !t.Failed() {
				t.Errorf("a mark covers %d rows that are not published", n)
			}
		}
		g.sweeper(k, limit, zerolog.Nop()).Run(ctx)
		stop()
	}
	at := map[ID]time.Time{}
	for _, e := range s.events {
		at[e.ID] = e.At
	}
	for n, r := range g.rows {
		if since := of(r); since.After(g.began) {
			published, ok := at[g.row(n, time.Now()).ID]
			if !ok {
				published = time.Now()
			}
			late = append(late, published.Sub(since))
		}
	}
	slices.Sort(late)
	t.Logf("%d rows: the median is published after %v, the last after %v", len(late), late[len(late)/2], late[len(late)-1])
	return late
}

// Rows that come faster than the service answers are published within seconds, and the mark covers what is published; those that
// came before the first reading, too, soon after it has begun.
func TestRowsOfAFastListArePublishedInTime(t *testing.T) {
	for _, c := range []struct {
		rate, burst int // rows a second, or in bursts of so many
		latency     time.Duration
		listed      int
		first       time.Duration // row
		longest     time.Duration
	}{
		{500, 0, 90 * time.Millisecond, 0, 0, 5 * time.Second},
		{150, 0, 200 * time.Millisecond, 0, 0, 5 * time.Second},
		{588, 1000, 90 * time.Millisecond, 3000, time.Second, 6 * time.Second},
		{588, 1000, 90 * time.Millisecond, 0, time.Second, 20 * time.Second}, // seen only after Interval
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGrowing(NewestFirst, 1, c.latency)
				g.rows, g.changing = make([]growingRow, c.listed), 0
				for i := range g.rows {
					g.rows[i].created = g.began.Add(time.Duration(i-len(g.rows)) * time.Minute)
				}
				bursts := 0
				g.rate = func(since time.Duration) float64 {
					switch {
					case c.burst == 0:
						return float64(c.rate)
					case int((since-c.first).Seconds()*float64(c.rate)) >= bursts*c.burst:
						bursts++
						return float64(100 * c.burst) // in one step
					}
					return 0
				}
				late := g.run(t, 100, func(r growingRow) time.Time { return r.created }, inshort.Choose(t, 5*time.Minute, time.Minute))
				if last := late[len(late)-1]; last > c.longest {
					t.Errorf("a row was published after %v, want %v at most", last, c.longest)
				}
			})
		})
	}
}

// A list that was empty gets many rows of one time: what does not show its order yet. A mark is stored with the next sweep but one.
func TestTheFirstMarkComesSoonThoughTheOrderIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, listed := newGrowing(NewestFirst, 1, 5*time.Millisecond), false
		g.changing, g.rate = 0, func(since time.Duration) float64 {
			if listed || since < 15*time.Second {
				return 0
			}
			listed = true
			return 100_600
		}
		s := &store{told: map[ID]int{}}
		ctx, stop := context.WithTimeout(t.Context(), 35*time.Second)
		defer stop()
		g.sweeper(&sink{store: s, stop: stop}, 100, zerolog.Nop()).Run(ctx)
		if len(g.rows) < 1000 || len(s.told) != len(g.rows) || len(s.marks) == 0 {
			t.Errorf("%d of %d rows are published, and %d marks stored", len(s.told), len(g.rows), len(s.marks))
		}
	})
}

// In a log of five days with a row a second the end of a deferred mail is published within minutes, wherever its row is by
// then, also by a process that has not seen it before.
func TestARowThatChangesIsFoundWhereItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrowing(NewestFirst, 1, 5*time.Millisecond)
		g.rate, g.changing, g.changes = func(time.Duration) float64 { return 1 }, 60, 6*time.Hour
		hour := inshort.Choose(t, time.Hour, 15*time.Minute)
		g.rows = make([]growingRow, inshort.Choose(t, 432_000, 43_200))
		for i := range g.rows {
			g.rows[i].created = g.began.Add(time.Duration(i-len(g.rows)) * time.Second)
		}
		late := g.run(t, 100, func(r growingRow) time.Time {
			if r.changed.After(time.Now()) {
				return time.Time{}
			}
			return r.changed
		}, 3*hour, 2*hour)
		if late[len(late)/2] > 10*time.Minute || late[len(late)-1] > time.Hour {
			t.Error("want ten minutes, and an hour at most")
		}
	})
}

// lookUp publishes the newest page again and again, as somebody who looks its rows up.
func (g *growing) lookUp(ctx context.Context, s *Sweeper[int], limit int) {
	for ctx.Err() == nil {
		g.mu.Lock()
		var rows []Row[int]
		for n := max(g.dropped, len(g.rows)-limit); n < len(g.rows); n++ {
			rows = append(rows, g.row(n, time.Now()))
		}
		g.mu.Unlock()
		_ = s.Publish(ctx, rows)
		time.Sleep(300 * time.Millisecond)
	}
}

// A log drops more old rows than come, steadily, as a day after a busier one.
func TestAMarkMovesWhileAListShrinksBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrowing(NewestFirst, 1, 90*time.Millisecond)
		g.rate, g.changing = func(time.Duration) float64 { return 100 }, 0
		g.rows = make([]growingRow, 400_000)
		for i := range g.rows {
			g.rows[i].created = g.began.Add(time.Duration(i-len(g.rows)) * 5 * time.Millisecond)
		}
		ctx, stop := context.WithTimeout(t.Context(), inshort.Choose(t, 20*time.Minute, 8*time.Minute))
		defer stop()
		go func() {
			for ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
				g.mu.Lock()
				g.dropped += 2
				g.mu.Unlock()
			}
		}()
		s := &store{told: map[ID]int{}}
		k := &sink{store: s, stop: stop}
		var mark Mark
		n := 0
		k.onMark = func(m Mark) { n++; mark = m }
		g.sweeper(k, 100, zerolog.Nop()).Run(ctx)
		if behind := time.Since(mark.CompleteThrough); behind > 30*time.Second {
			t.Errorf("%d marks, the last covers what was made until %v ago", n, behind)
		}
	})
}

// The service's clock is ahead by seconds, and rows come so fast that the newest page is all of the future. Then nothing comes, and the
// mark covers all.
func TestAMarkMovesWhereTheListsClockIsAhead(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Second, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			g := newGrowing(NewestFirst, 1, 90*time.Millisecond)
			g.rate, g.changing, g.ahead, g.still = func(time.Duration) float64 { return 500 }, 0, ahead, 2*time.Minute
			ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
			defer stop()
			s := &store{told: map[ID]int{}}
			k := &sink{store: s, stop: stop}
			longest := time.Duration(0)
			k.onMark = func(m Mark) {
				if since := time.Since(g.began); since > 30*time.Second && since < g.still {
					longest = max(longest, time.Since(m.CompleteThrough))
				}
			}
			g.sweeper(k, 100, zerolog.Nop()).Run(ctx)
			if longest > 10*time.Second {
				t.Errorf("%v ahead: a mark is %v behind", ahead, longest)
			}
			if through, newest := s.marks[len(s.marks)-1].CompleteThrough, g.rows[len(g.rows)-1].created; !through.Equal(newest) {
				t.Errorf("%v ahead: the last mark covers what was made until %v before the last row", ahead, newest.Sub(through))
			}
		})
	}
}
