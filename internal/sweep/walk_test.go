package sweep

import "testing"

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

// The last page may say how many rows it has itself: it is no shorter page than the others.
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
