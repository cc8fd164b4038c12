package sweep

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// readList reads a list in pages of one size. change is called before each page, and gives the total that it says;
// a negative one: it shows nothing, and says one less than that is below zero.
// holes is how often a reading that is not going back has not shown a row in front of one that joined.
func readList(list *[]uint64, size int, change func(page int) (total int)) (w *reading, seen map[uint64]bool, pages, holes int) {
	last := uint64(0)
	w, seen = newReading(time.Time{}, size), map[uint64]bool{}
	for ; !w.done && pages < 10_000; pages++ {
		total := change(pages)
		from := min((w.page-1)*size, len(*list))
		keys := slices.Clone((*list)[from:min(from+size, len(*list))])
		if total < 0 {
			keys, total = nil, -1-total
		}
		for _, k := range keys {
			seen[k] = true
		}
		w.take(keys, total)
		for _, k := range w.last {
			if k < fresh {
				last = max(last, k)
			}
		}
		if !w.rereads() && !w.skipped && slices.ContainsFunc(*list, func(k uint64) bool { return k < last && !seen[k] }) {
			holes++
		}
	}
	return w, seen, pages, holes
}

const fresh = 1000 // the first row that is added

func listOf(n int) (list []uint64) {
	for i := range n {
		list = append(list, uint64(i))
	}
	return list
}

// A reading shows every row of a list and ends soon behind the last one, whether pages say the total or not.
func TestAReadingShowsAllRowsAndEnds(t *testing.T) {
	for _, size := range []int{1, 10, 100} {
		for rows := range 300 {
			for _, total := range []int{rows, 0, rows / 2, rows + 30} {
				list := listOf(rows)
				w, seen, pages, holes := readList(&list, size, func(int) int { return total })
				if holes > 0 || len(seen) != rows || w.skipped != (rows == 0) || pages > rows/size+maxStill+2 {
					t.Fatalf("%d rows of %d, %d a page: %d seen in %d reads", rows, total, size, len(seen), pages)
				}
			}
		}
	}
}

// Rows are removed before the place that is read: those that move to a page that was read already are
// read there, or the reading says that it has not shown all.
func TestAReadingShowsTheRowsThatMoveWhereOthersAreRemoved(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		list, size, at, gone := listOf(1+random.IntN(100)), 4+random.IntN(20), 1+random.IntN(20), 1+random.IntN(40)
		rows := len(list)
		w, seen, pages, holes := readList(&list, size, func(page int) int {
			for range gone {
				if page == at && len(list) > 1 {
					i := random.IntN(len(list))
					list = slices.Delete(list, i, i+1)
				}
			}
			return len(list)
		})
		missing := slices.IndexFunc(list, func(k uint64) bool { return !seen[k] })
		if !w.done || w.skipped || holes > 0 || missing >= 0 || pages > 2*rows/size+10 {
			t.Fatalf("%d of %d rows removed before page %d of %d: skipped %t after %d pages, the row now at %d is missing", gone, rows, at, size,
				w.skipped, pages, missing)
		}
	}
}

// The list loses rows while each page is read, behind it, before it and where it is, and gains some: a reading shows every row that
// stays, or says that it has not; of one that loses its last rows alone it shows all.
func TestAReadingOfAListThatShrinksAllTheTimeShowsAllRows(t *testing.T) {
	for seed := range uint64(4000) {
		random := rand.New(rand.NewPCG(seed, 3))
		list, size := listOf(100+random.IntN(300)), 4+random.IntN(20)
		rows, added, behind := len(list), uint64(fresh), seed%2 == 0
		gone, come := 1+random.IntN(size/2), 0
		if behind {
			come = random.IntN(2) * random.IntN(3)
		}
		w, seen, pages, holes := readList(&list, size, func(page int) int {
			for range gone {
				if at := random.IntN(max(1, len(list))); !behind && len(list) > 1 && random.IntN(3) == 0 {
					list = slices.Delete(list, at, at+1)
				} else if len(list) > 1 {
					list = list[:len(list)-1]
				}
			}
			for range come {
				list = slices.Insert(list, 0, added)
				added++
			}
			return len(list)
		})
		missing := slices.IndexFunc(list, func(k uint64) bool { return k < fresh && !seen[k] })
		if !w.done || holes > 0 || behind && w.skipped || missing >= 0 && !w.skipped || pages > (maxRead+1)*(rows/size+4) {
			t.Fatalf("seed %d: %d rows, %d a page, %d gone and %d come with each: skipped %t after %d pages, the row now at %d is missing", seed,
				rows, size, gone, come, w.skipped, pages, missing)
		}
	}
}

// A row in front is removed, and another one is added before the page is read again that then looks as before: what was read behind
// it is not next to it.
func TestAReadingShowsTheRowThatMovedThereAndBack(t *testing.T) {
	for at := 2; at < 9; at++ {
		list := listOf(100)
		w, seen, _, holes := readList(&list, 10, func(page int) int {
			switch page {
			case at:
				list = slices.Delete(list, 3, 4)
			case at + 1:
				list = slices.Insert(list, 0, fresh)
			}
			return len(list)
		})
		missing := slices.IndexFunc(list, func(k uint64) bool { return k < fresh && !seen[k] })
		if !w.done || w.skipped || holes > 0 || missing >= 0 {
			t.Errorf("removed before read %d: done %t, skipped %t, holes %d, the row now at %d is missing", at, w.done, w.skipped, holes, missing)
		}
	}
}

// The service begins again while the list is read, and says that there is nothing: that is not its end.
func TestAReadingThatMeetsNothingIsNotComplete(t *testing.T) {
	for at := range 11 {
		list := listOf(100)
		w, _, pages, _ := readList(&list, 10, func(page int) int {
			if page >= at {
				list = nil
			}
			return len(list)
		})
		if whole := at == 10; !w.done || w.skipped == whole || pages > 20 {
			t.Errorf("nothing from read %d on: done %t, skipped %t, after %d pages", at, w.done, w.skipped, pages)
		}
	}
}

// A total that is a guess, another one on each page, neither ends a reading early nor makes it endless.
func TestTotalsThatAreGuessesHideNoRow(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, by := range []int{1, 5, 30, 200} {
		for _, size := range []int{4, 20, 50} {
			for range 20 {
				const rows = 500
				list := listOf(rows)
				_, seen, pages, _ := readList(&list, size, func(int) int { return rows - by + random.IntN(2*by+1) })
				if len(seen) != rows || pages > (maxRead+1)*(rows/size)+50 {
					t.Fatalf("totals that are wrong by %d, pages of %d: %d of %d rows in %d pages", by, size, len(seen), rows, pages)
				}
			}
		}
	}
}

// What was added since the anchor is counted from the total of the page that it was on: rows may come while the others are read.
func TestAnAnchorsPlaceIsThatOfTheFirstPage(t *testing.T) {
	w, r := newReading(time.Time{}, 2), &run[int]{}
	w.take([]uint64{4, 3}, 20)
	w.take([]uint64{2, 1}, 30)
	if r.anchor(w); r.listed != 20 {
		t.Errorf("the anchor is counted from a list of %d rows, want 20", r.listed)
	}
}

// Many rows come at once, in front, behind or anywhere, and others go: a reading shows every row that stays, or says that it has not.
// Where rows come in front alone, each time costs it two pages at most, however many they are.
func TestAReadingGoesOnWhereItsRowsWerePushedTo(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 4))
		list, size := listOf(100+random.IntN(300)), 4+random.IntN(20)
		rows, added, where, gone, bursts := len(list), uint64(fresh), random.IntN(4), 0, 0
		if where < 2 { // elsewhere, they hide in the total that others go
			gone = random.IntN(2) * random.IntN(6)
		}
		w, seen, pages, holes := readList(&list, size, func(page int) int {
			if bursts < 20 && page%(2+int(seed%5)) == 1 {
				bursts++
				for range size * random.IntN(12) {
					at := []int{0, 0, len(list), random.IntN(len(list) + 1)}[where]
					list = slices.Insert(list, at, added)
					added++
				}
				for range gone {
					at := random.IntN(len(list))
					list = slices.Delete(list, at, at+1)
				}
			}
			return len(list)
		})
		missing := slices.IndexFunc(list, func(k uint64) bool { return k < fresh && !seen[k] })
		if most := rows/size + 2 + 2*bursts; where < 2 && gone == 0 && (pages > most || w.skipped) || !w.done && pages < 10_000 || holes > 0 ||
			missing >= 0 && !w.skipped {
			t.Fatalf("seed %d: %d rows, %d a page, %d gone each of %d times, kind %d: skipped %t after %d pages, %d holes, missing: %d",
				seed, rows, size, gone, bursts, where, w.skipped, pages, holes, missing)
		}
	}
}

// A page shows nothing for once, and says a total or none, while rows are added in front, behind or are removed: no row is missed.
func TestAPageThatShowsNothingHidesNoRow(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 5))
		list, size := listOf(40+random.IntN(200)), 4+random.IntN(12)
		where, added := random.IntN(3), uint64(fresh)
		w, seen, pages, holes := readList(&list, size, func(page int) int {
			for range min(1, random.IntN(3)) * random.IntN(3*size) {
				switch {
				case where == 2 && len(list) > 1:
					list = list[1+random.IntN(2):]
				case page < 200:
					list = slices.Insert(list, where*len(list)/2, added)
					added++
				}
			}
			switch random.IntN(12) {
			case 0:
				return -1
			case 1:
				return -1 - len(list)
			}
			return len(list)
		})
		missing := slices.IndexFunc(list, func(k uint64) bool { return k < fresh && !seen[k] })
		if skipped := w.skipped || w.short; !w.done || (holes > 0 || missing >= 0) && !skipped {
			t.Fatalf("seed %d: %d a page, where %d: %d holes after %d pages, the row now at %d is missing", seed, size, where, holes, pages, missing)
		}
	}
}

// A row of the page before is listed once more further on, where a wrong total or removed rows lead to: the rows between are read.
func TestARowThatIsListedTwiceHidesNoRow(t *testing.T) {
	for _, again := range []int{125, 45} {
		list := listOf(400)
		list[again] = 25
		w, seen, pages, _ := readList(&list, 10, func(page int) int {
			switch {
			case page == 3 && again == 45:
				list = list[10:]
			case page == 3:
				return len(list) + 100
			}
			return len(list)
		})
		if missing := slices.IndexFunc(list, func(k uint64) bool { return !seen[k] }); !w.done || w.skipped || missing >= 0 || pages > 50 {
			t.Errorf("row 25 is listed again at %d: skipped %t after %d pages, the row now at %d is missing", again, w.skipped, pages, missing)
		}
	}
}

// Where a page's total is far too large for once, the head ends where it always does, and not behind where that led to.
func TestAWrongTotalMakesNoHeadLonger(t *testing.T) {
	inOrderedWorld(t, 10_000, func(w *world) {
		w.sweeper.RoundEvery = 24 * time.Hour
		began, wrong, before := time.Now(), 0, 0
		w.answer = func(number, calls int) error {
			if wrong == 0 && time.Since(began) > 10*time.Minute {
				w.add(170)
				wrong, before = -1, calls
			} else if wrong == -1 && number == 2 {
				wrong = 5000
			}
			return nil
		}
		w.total = func(n int) int {
			if wrong > 0 {
				n, wrong = n+wrong, -2
			}
			return n
		}
		w.sink.onSwept = func(time.Time) {
			if wrong == -2 {
				w.sink.stop()
			}
		}
		w.run(20 * time.Minute)
		if n := w.calls - before; wrong != -2 || n > 40 {
			t.Errorf("the head has read %d pages, wrong %d", n, wrong)
		}
		w.check(time.Time{})
	})
}
