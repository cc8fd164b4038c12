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
