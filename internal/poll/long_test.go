package poll

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// prepend inserts n old rows before those of the log, this far apart.
func (u *upstream) prepend(n int, apart time.Duration) {
	recent := u.rows
	u.rows = nil
	u.add(n)
	for i, r := range u.rows {
		r.created = time.Now().Add(-time.Duration(n-i) * apart).Truncate(time.Millisecond)
	}
	u.rows = append(u.rows, recent...)
}

// A sweep remembers a day of the log and what it saw last, however long the log is. A
// sweep after a crash has learned what was published, and forgets it as it goes on.
func TestALongLogIsSweptInTheMemoryOfADay(t *testing.T) {
	const rows, aDay = 10_000, 288 // five minutes apart
	for _, o := range []order{newestFirst, oldestFirst, unordered} {
		for _, died := range []int{0, rows / 2} {
			t.Run(fmt.Sprintf("%s, died after %d", o, died), func(t *testing.T) {
				inWorld(t, o, 0, func(w *world) {
					w.prepend(rows, 5*time.Minute)
					first := &sink{store: w.store, stop: func() {}, crash: func() bool { return len(w.events) == died }}
					if _, err := w.upstream.poller(w, first, 20).sweep(w.Context(), &memory{seen: map[ID]stamp{}}); err == nil {
						t.Fatal("it did not die")
					}
					p := w.upstream.poller(w, w.sink, 20)
					m := &memory{seen: map[ID]stamp{}}
					most := 0
					w.sink.crash = func() bool { // runs while memory is not being written
						most = max(most, len(m.seen)+len(m.justForgotten))
						return false
					}
					for range 3 {
						if _, err := p.sweep(w.Context(), m); err != nil {
							t.Fatal(err)
						}
					}
					w.checkComplete(w.T, w.store)
					limit := 4*aDay + 2*spare*20
					if o == unordered { // the whole log is read again and again
						limit = rows
					}
					if died > 0 {
						most = 0
					}
					if most > limit || len(m.seen) > limit {
						t.Errorf("up to %d states were remembered, %d in the end, want at most %d", most, len(m.seen), limit)
					}
					if w.sink.fullReads > 1 {
						t.Errorf("all published events were learned %d times", w.sink.fullReads)
					}
				})
			})
		}
	}
}

// What a sweep forgot is not published again, whatever the log does meanwhile.
func TestALongLogThatMisbehavesIsToldOnce(t *testing.T) {
	for _, o := range []order{newestFirst, oldestFirst} {
		for seed := range seeds() {
			t.Run(fmt.Sprintf("%s %d", o, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { model(t, o, 1000+seed, 1000) })
			})
		}
	}
}

// During a sweep the log grows twice by more than the sweep remembers, so that the next
// page begins with rows that were forgotten.
func TestForgottenRowsAreNotPublishedAgain(t *testing.T) {
	inWorld(t, newestFirst, 0, func(w *world) {
		w.prepend(3000, time.Hour)
		w.busy = func(u *upstream) {
			if n := len(u.calls); n == 100 || n == 250 {
				u.add(1900)
			}
		}
		p := w.upstream.poller(w, w.sink, 20)
		m := &memory{seen: map[ID]stamp{}}
		for again := true; again; {
			var err error
			if again, err = p.sweep(w.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		w.checkComplete(w.T, w.store)
		if w.sink.fullReads != 2 {
			t.Errorf("everything was learned %d times, want twice: at the start and when the sweep lost its place", w.sink.fullReads)
		}
	})
}
