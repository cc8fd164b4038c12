package consumer

import (
	"context"
	"sync"

	"errand/internal/bus"
	"errand/internal/requests/admission"
	"errand/internal/retry"
)

// largeBytes is what a large request has at least. Smaller ones are not counted: all in flight are few.
const largeBytes = 64 << 10

// roomForLarge bounds the bytes of large requests in flight: processing needs several times a request's bytes.
const roomForLarge = 16 << 20

// large is the memory that large requests share. While one of them waits for its part, no more requests are taken.
type large struct {
	waiting sync.WaitGroup  // large requests on their way to a worker, or without room
	room    admission.Share // in bytes
}

func isLarge(r *bus.Request) bool { return len(r.Data) >= largeBytes }

// admitLarge waits for room for a request, and keeps its lease. When the program ends first, the request goes back. The
// caller frees the returned bytes.
func (c *Consumer[R]) admitLarge(ctx context.Context, r *bus.Request) (bytes int, err error) {
	if !isLarge(r) {
		return 0, nil
	}
	defer c.large.waiting.Done()
	c.lease.take(r)
	defer c.lease.drop(r)
	if err := c.large.room.Take(ctx, len(r.Data), roomForLarge); err != nil {
		_ = r.NakWithDelay(retry.PullExpiry) // or one of our own pulls has it again
		return 0, err
	}
	return len(r.Data), nil
}
