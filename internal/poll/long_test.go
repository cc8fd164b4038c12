package poll

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// grown puts n old rows before those of the log, apart from each other.
func (u *upstream) grown(n int, apart time.Duration) {
	young := u.rows
	u.rows = nil
	u.add(n)
	for i, r := range u.rows {
		r.created = time.Now().Add(-time.Duration(n-i) * apart).Truncate(time.Millisecond)
	}
	u.rows = append(u.rows, young...)
}

// A sweep remembers a day of the log and what it came by last, however long the log is.
// One that follows upon a death has learned what was told, and forgets it on its way.
func TestALongLogIsSweptInTheMemoryOfADay(t *testing.T) {
	const rows, aDay = 10_000, 288 // five minutes apart
	for _, o := range []order{newestFirst, oldestFirst, unordered} {
		for _, died := range []int{0, rows / 2} {
			t.Run(fmt.Sprintf("%s, died after %d", o, died), func(t *testing.T) {
				inWorld(t, o, 0, func(w *world) {
					w.grown(rows, 5*time.Minute)
					first := &desk{store: w.store, stop: func() {}, crash: func() bool { return len(w.events) == died }}
					if _, err := w.upstream.poller(w, first, 20).sweep(w.Context(), &memory{seen: map[ID]stamp{}}); err == nil {
						t.Fatal("it did not die")
					}
					p := w.upstream.poller(w, w.desk, 20)
					m := &memory{seen: map[ID]stamp{}}
					most := 0
					w.desk.crash = func() bool { // it is asked where memory is not written
						most = max(most, len(m.seen)+len(m.passed))
						return false
					}
					for range 3 {
						if _, err := p.sweep(w.Context(), m); err != nil {
							t.Fatal(err)
						}
					}
					w.complete(w.T, w.store)
					limit := 4*aDay + 2*spare*20
					if o == unordered { // the whole log is read again and again
						limit = rows
					}
					if died > 0 {
						most = 0
					}
					if most > limit || len(m.seen) > limit {
						t.Errorf("up to %d states were in mind, %d are left, want %d at most", most, len(m.seen), limit)
					}
					if w.desk.anew > 1 {
						t.Errorf("everything that was told was learned %d times", w.desk.anew)
					}
				})
			})
		}
	}
}

// What a sweep forgot is not told again, whatever the log does meanwhile.
func TestALongLogThatMisbehavesIsToldOnce(t *testing.T) {
	for _, o := range []order{newestFirst, oldestFirst} {
		for seed := range *modelSeeds {
			t.Run(fmt.Sprintf("%s %d", o, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { model(t, o, 1000+seed, 1000) })
			})
		}
	}
}

// In the middle of a sweep the log grows, twice, by more than the sweep remembers, so
// that its next page begins with rows that were forgotten.
func TestRowsThatWereForgottenAreNotToldAgain(t *testing.T) {
	inWorld(t, newestFirst, 0, func(w *world) {
		w.grown(3000, time.Hour)
		w.busy = func(u *upstream) {
			if n := len(u.calls); n == 100 || n == 250 {
				u.add(1900)
			}
		}
		p := w.upstream.poller(w, w.desk, 20)
		m := &memory{seen: map[ID]stamp{}}
		for again := true; again; {
			var err error
			if again, err = p.sweep(w.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		w.complete(w.T, w.store)
		if w.desk.anew != 2 {
			t.Errorf("everything was learned %d times, want twice: at the start and when the sweep lost its way", w.desk.anew)
		}
	})
}
