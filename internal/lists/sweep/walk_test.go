package sweep

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A walk shows every row of a list, and ends, whatever the pages say of their size and number, be
// they as long as was asked for or not.
func TestAWalkShowsAllRowsWhateverPagesSayOfTheirSize(t *testing.T) {
	const rows, page = 60, 25
	for _, asked := range []int{10, page, 100} {
		for _, says := range []int{0, 1, page - 1, page, page + 1, 100, 1_000_000_000} {
			for _, total := range []int{rows, 0} {
				w, seen, reads := newWalk(asked), map[uint64]bool{}, 0
				for ; !w.done() && reads < 200; reads++ {
					var keys []uint64
					for i := (w.asked.page - 1) * page; i < min(rows, w.asked.page*page); i++ {
						keys = append(keys, uint64(i))
						seen[uint64(i)] = true
					}
					w.take(keys, total, says)
				}
				if len(seen) != rows || !w.done() {
					t.Errorf("asked for %d, pages that say %d of %d: %d rows seen in %d reads, want %d", asked, says, total, len(seen), reads, rows)
				}
			}
		}
	}
}

// The last page may say how many rows it has itself: it is not a shorter page than the others.
func TestALastPageThatSaysItsOwnRowsEndsTheWalk(t *testing.T) {
	for _, most := range []int{10, 100} { // rows of a page
		for rows := range 300 {
			w, seen, reads := newWalk(100), map[uint64]bool{}, 0
			for ; !w.done() && reads < 1000; reads++ {
				var keys []uint64
				limit := min(w.asked.limit, most)
				for i := (w.asked.page - 1) * limit; i < min(rows, w.asked.page*limit); i++ {
					keys = append(keys, uint64(i))
					seen[uint64(i)] = true
				}
				w.take(keys, rows, len(keys))
			}
			if len(seen) != rows || w.state != whole || reads > 2*rows/most+5 {
				t.Fatalf("%d rows, %d a page: %d seen in %d reads, state %d", rows, most, len(seen), reads, w.state)
			}
		}
	}
}

// walkOf walks a list in pages of one size. change is called before each page, and returns the total that it says.
func walkOf(list *[]uint64, size int, change func(page int) (total int)) (w walk, seen map[uint64]bool, pages int) {
	w, seen = newWalk(50), map[uint64]bool{}
	for ; !w.done() && pages < 10_000; pages++ {
		total := change(pages)
		from := min((w.asked.page-1)*size, len(*list))
		keys := slices.Clone((*list)[from:min(from+size, len(*list))])
		for _, k := range keys {
			seen[k] = true
		}
		w.take(keys, total, size)
	}
	return w, seen, pages
}

func listOf(n int) (list []uint64) {
	for i := range n {
		list = append(list, uint64(i))
	}
	return list
}

// Rows are removed before the place that is read: those that move to a page that was read already are
// read there, or the walk says that it has not shown all.
func TestAWalkShowsTheRowsThatMoveWhereOthersAreRemoved(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		list, size, at, gone := listOf(1+random.IntN(100)), 4+random.IntN(20), 1+random.IntN(20), 1+random.IntN(3)
		rows := len(list)
		w, seen, pages := walkOf(&list, size, func(page int) int {
			for range gone {
				if page == at && len(list) > 1 {
					i := random.IntN(len(list))
					list = slices.Delete(list, i, i+1)
				}
			}
			return len(list)
		})
		missing := slices.IndexFunc(list, func(k uint64) bool { return !seen[k] })
		if w.state != whole || missing >= 0 || pages > rows/size+10 {
			t.Fatalf("%d of %d rows removed before page %d of %d: state %d after %d pages, the row now at %d is missing", gone, rows, at, size,
				w.state, pages, missing)
		}
	}
}

// A total that is a guess, another one on each page, neither ends a walk early nor makes it endless.
func TestTotalsThatAreGuessesHideNoRow(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, by := range []int{1, 5, 30, 200} {
		for _, size := range []int{4, 20, 50} {
			for range 20 {
				const rows = 500
				list := listOf(rows)
				_, seen, pages := walkOf(&list, size, func(int) int { return rows - by + random.IntN(2*by+1) })
				if len(seen) != rows || pages > (maxRead+1)*(rows/size)+50 {
					t.Fatalf("totals that are wrong by %d, pages of %d: %d of %d rows in %d pages", by, size, len(seen), rows, pages)
				}
			}
		}
	}
}

// A list from whose beginning rows are removed while its end is read was not read to its end.
func TestAnEmptyPageOfAListThatShrankIsNotItsEnd(t *testing.T) {
	for _, removed := range []int{15, 20, 40} { // 15 are left to read
		list := make([]uint64, 180)
		for i := range list {
			list[i] = uint64(i + 1)
		}
		read := map[uint64]bool{}
		w := newWalk(20)
		for !w.done() {
			if w.end == 165 && len(list) == 180 {
				list = list[removed:]
			}
			from, to := min(w.asked.from(), len(list)), min(w.asked.to(), len(list))
			for _, key := range list[from:to] {
				read[key] = true
			}
			w.take(list[from:to], len(list), w.asked.limit)
		}
		missing := 0
		for _, key := range list {
			if !read[key] {
				missing++
			}
		}
		if w.state == whole && missing > 0 {
			t.Errorf("%d rows were removed, and the list counts as read to its end without %d of its %d rows", removed, missing, len(list))
		}
	}
}
