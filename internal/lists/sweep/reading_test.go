package sweep

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// readList reads a list in pages of one size. change is called before each page, and gives the total that it says.
func readList(list *[]uint64, size int, change func(page int) (total int)) (w *reading, seen map[uint64]bool, pages int) {
	w, seen = newReading(time.Time{}), map[uint64]bool{}
	for ; !w.done && pages < 10_000; pages++ {
		total := change(pages)
		from := min((w.page-1)*size, len(*list))
		keys := slices.Clone((*list)[from:min(from+size, len(*list))])
		for _, k := range keys {
			seen[k] = true
		}
		w.take(keys, total)
	}
	return w, seen, pages
}

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
				if total == size && rows > size {
					continue // it is believed that the first page is all
				}
				list := listOf(rows)
				w, seen, pages := readList(&list, size, func(int) int { return total })
				if len(seen) != rows || w.skipped || pages > rows/size+maxStill+2 {
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
		w, seen, pages := readList(&list, size, func(page int) int {
			for range gone {
				if page == at && len(list) > 1 {
					i := random.IntN(len(list))
					list = slices.Delete(list, i, i+1)
				}
			}
			return len(list)
		})
		missing := slices.IndexFunc(list, func(k uint64) bool { return !seen[k] })
		if !w.done || w.skipped || missing >= 0 || pages > 2*rows/size+10 {
			t.Fatalf("%d of %d rows removed before page %d of %d: skipped %t after %d pages, the row now at %d is missing", gone, rows, at, size,
				w.skipped, pages, missing)
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
				_, seen, pages := readList(&list, size, func(int) int { return rows - by + random.IntN(2*by+1) })
				if len(seen) != rows || pages > (maxRead+1)*(rows/size)+50 {
					t.Fatalf("totals that are wrong by %d, pages of %d: %d of %d rows in %d pages", by, size, len(seen), rows, pages)
				}
			}
		}
	}
}
