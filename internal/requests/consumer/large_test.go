package consumer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// Requests of a megabyte are in flight sixteen at a time; small ones pass them by, and one
// that is larger than all room is alone.
func TestLargeRequestsShareTheirRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mega, all = 1 << 20, 17
		l := &lane{}
		c := &Consumer[messages.EnrollRequest]{lanes: []*lane{l}, lease: lease{every: time.Minute}}
		admit := func(ctx context.Context, bytes int) (int, error) {
			r := &bus.Request{Data: make([]byte, bytes), Acker: new(nats.Msg)}
			if isLarge(r) {
				l.large.waiting.Add(1)
			}
			return c.admitLarge(ctx, taken{r, l})
		}
		taking := make(chan int, all)
		for range all {
			go func() {
				bytes, err := admit(t.Context(), mega)
				if err != nil {
					t.Error(err)
				}
				taking <- bytes
			}()
		}
		synctest.Wait()
		if len(taking) != all-1 {
			t.Fatalf("%d requests of a megabyte are in flight, want %d", len(taking), all-1)
		}
		if bytes, err := admit(t.Context(), largeBytes-1); bytes != 0 || err != nil {
			t.Errorf("a small request took %d bytes, %v", bytes, err)
		}
		for range all {
			l.large.room.Free(<-taking)
		}
		bytes, err := admit(t.Context(), 100*mega)
		if bytes != 100*mega || err != nil {
			t.Errorf("a request larger than all room took %d bytes, %v", bytes, err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := admit(ctx, mega); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a request beside it: %v", err)
		}
		l.large.room.Free(bytes)
		if l.large.waiting.Wait(); !l.large.room.Try(roomForLarge, roomForLarge) || c.lease.count() != 0 {
			t.Errorf("something stays taken, or %d are leased", c.lease.count())
		}
	})
}
