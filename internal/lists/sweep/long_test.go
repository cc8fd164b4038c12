package sweep

import (
	"context"
	"encoding/binary"
	"flag"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/retry"
)

var longRows = flag.Int("sweep.rows", 100_000, "rows of the long list that nothing is written to")

// longList is a list whose pages are made when they are read. Its newest row is a day old.
type longList struct {
	rows  int
	every time.Duration // a row was made
	began time.Time
	calls int
	read  []bool // pages of 100 rows, since it was cleared
	open  bool   // the states of rows may change
	deep  int    // reads of row 60,000
	slow  time.Duration
	last  [1000]time.Time // when each hundred rows were read last
}

func (l *longList) Page(_ context.Context, number, limit int) (p Page[int], err error) {
	time.Sleep(5*time.Millisecond + l.slow)
	l.calls++
	p.Total = l.rows
	if from := (number - 1) * limit; from <= 60_000 && 60_000 < from+limit {
		l.deep++
	}
	for i := (number - 1) * limit; i < min(number*limit, l.rows); i++ {
		r := Row[int]{At: l.began.Add(-24*time.Hour - time.Duration(i)*l.every), Final: !l.open}
		binary.BigEndian.PutUint64(r.ID[:], uint64(i))
		binary.BigEndian.PutUint64(r.ID[8:], uint64(i+1)*0x9e3779b97f4a7c15)
		p.Rows = append(p.Rows, r)
		l.read[i/100] = true
		if l.slow > 0 {
			l.last[i/100] = time.Now()
		}
	}
	return p, nil
}

func (l *longList) Earlier(Row[int]) []ID { return nil }

// counter is a sink that counts what is published.
type counter struct{ stored int }

func (*counter) Led(context.Context) (bool, error)              { return false, nil }
func (*counter) Lead(context.Context) error                     { return nil }
func (*counter) Reset()                                         {}
func (*counter) Resign()                                        {}
func (*counter) Learn(context.Context, func(Stored)) error      { return nil }
func (*counter) Kept(context.Context) (at time.Time, err error) { return at, nil }
func (c *counter) Publish(_ context.Context, rows []Row[int]) func() (int, error) {
	c.stored += len(rows)
	return Done(len(rows), nil)
}
func (*counter) Mark(context.Context, Mark) error             { return nil }
func (*counter) LastMark(context.Context) (m Mark, err error) { return m, nil }
func (*counter) Swept(context.Context, time.Time) error       { return nil }

// An idle list is seen again, from its first row to its last, in a second a page and what its newest rows take, which
// is half of the pages at most, by 67 calls a minute; what is known of it takes about 12 bytes a row.
func TestALongIdleListIsSeenAgainAtAPageASecond(t *testing.T) {
	pages := time.Duration(*longRows/100) * time.Second * 115 / 100 // each shows a row of the one before
	for name, c := range map[string]struct{ every, most time.Duration }{
		"few rows in an overlap":  {10 * time.Second, pages * 60 / 55},
		"many rows in an overlap": {250 * time.Millisecond, 2 * pages},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &longList{rows: *longRows, every: c.every, began: time.Now(), read: make([]bool, (*longRows+99)/100)}
				took, calls := l.seenAgain(t)
				t.Logf("all of it again: %v, %.1f calls a minute", took, float64(calls)/took.Minutes())
				if most := c.most + c.most/50 + 2*time.Minute; took > most {
					t.Errorf("it took %v to see all of it again, want %v", took, most)
				}
				if float64(calls) > 67*took.Minutes()+30 {
					t.Errorf("%d calls in %v", calls, took)
				}
			})
		})
	}
}

// seenAgain returns how long it takes after the first reading until each row was read again,
// and the calls in that time.
func (l *longList) seenAgain(t *testing.T) (took time.Duration, calls int) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c, before, began := &counter{}, heap(), time.Time{}
	s := &Sweeper[int]{List: l, Sink: c, Policy: retry.Policy{First: 200 * time.Millisecond, Max: 10 * time.Second, Tries: 5},
		Logger: zerolog.Nop(), Lag: func(time.Duration) {}, Leading: func(bool) {},
		Settings: Settings{Name: "list", Interval: 10 * time.Second, Limit: 100, Overlap: 15 * time.Minute}}
	s.Lag = func(time.Duration) {
		switch {
		case c.stored < l.rows || slices.Contains(l.read, false):
		case began.IsZero():
			used := heap() - before
			t.Logf("the first reading: %v, %d calls; then %d bytes a row are in use", time.Since(l.began), l.calls, used/uint64(l.rows))
			if l.rows >= 1<<20 && used > 14*uint64(l.rows) {
				t.Errorf("%d bytes for %d rows", used, l.rows)
			}
			began, l.calls = time.Now(), 0
			clear(l.read)
		default:
			stop()
		}
	}
	s.Run(ctx)
	if c.stored != l.rows {
		t.Errorf("%d rows were published, want %d", c.stored, l.rows)
	}
	return time.Since(began), l.calls
}

// A list that is read seldom is read wholly each time, though its newer rows may change more often:
// any row may. At two calls a second it takes about a second a page, however seldom the newest are looked at.
func TestALongListThatIsReadSeldomIsReadWholly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &longList{rows: 90_000, every: 10 * time.Second, began: time.Now(), read: make([]bool, 900), open: true}
		s := &Sweeper[int]{List: l, Sink: &counter{}, Policy: retry.Policy{First: 200 * time.Millisecond, Max: 10 * time.Second, Tries: 5},
			Logger: zerolog.Nop(), Lag: func(time.Duration) {}, Leading: func(bool) {},
			Settings: Settings{Name: "list", Interval: 30 * time.Second, Limit: 100, Overlap: 15 * time.Minute,
				Recent: time.Hour, RoundEvery: 3 * time.Hour, Pace: 1}}
		l.slow = 500 * time.Millisecond // as with two calls a second
		ctx, stop := context.WithTimeout(t.Context(), 13*time.Hour)
		defer stop()
		s.Run(ctx)
		if took := l.last[880].Sub(l.last[20]); took < 800*time.Second || took > 1500*time.Second {
			t.Errorf("86,000 rows are read in %v", took)
		}
		if l.deep < 5 || l.deep > 6 {
			t.Errorf("in 13 hours rows of a week ago were read %d times, want every 3 hours", l.deep)
		}
	})
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
