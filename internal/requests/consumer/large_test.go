package consumer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Requests of a megabyte are in flight sixteen at a time; small ones pass them by, and one
// that is larger than all room is alone.
func TestLargeRequestsShareTheirRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mega, all = 1 << 20, 17
		room := newLarge()
		taken := make(chan int, all)
		for range all {
			go func() {
				units, err := room.take(t.Context(), mega)
				if err != nil {
					t.Error(err)
				}
				taken <- units
			}()
		}
		synctest.Wait()
		if len(taken) != all-1 {
			t.Fatalf("%d requests of a megabyte are in flight, want %d", len(taken), all-1)
		}
		if units, err := room.take(t.Context(), largeUnit-1); units != 0 || err != nil {
			t.Errorf("a small request took %d units, %v", units, err)
		}
		for range all {
			room.free(<-taken)
		}
		units, err := room.take(t.Context(), 100*mega)
		if units != largeUnits || err != nil {
			t.Errorf("a request larger than all room took %d units of %d, %v", units, largeUnits, err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := room.take(ctx, mega); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a request beside it: %v", err)
		}
		room.free(units)
		if len(room.units) != 0 || len(room.taking) != 0 {
			t.Errorf("%d units and %d turns stay taken", len(room.units), len(room.taking))
		}
	})
}
