package sweep

import (
	"context"
	"time"

	"errand/internal/retry"
)

// head reads from the first page on, to one that is wholly known.
func (r *run[T]) head(ctx context.Context) (size int, err error) {
	h := r.newReading(time.Time{})
	first := r.known.empty() // then the rest is left to scan
	err = r.follow(ctx, h, func(news int, newest time.Time) bool {
		if h.pages <= 1 && r.seen.head.IsZero() {
			r.seen.head, r.state.Total = newest, h.total
		}
		return first || news == 0
	})
	if err == nil && h.state == whole {
		r.seen.whole = h.pages <= 1
		if err = r.collect(ctx, 0); err == nil {
			r.ended(h)
		}
	}
	return h.size, err
}

// tail reads from the last page back to one that is wholly known, and from there to the end: backwards a row is missed
// when another one is added before it, forwards when one is removed. It does so when the list has grown and head did
// not find by what, and now and then.
func (r *run[T]) tail(ctx context.Context, size int) error {
	found := r.stored - r.seen.stored + len(r.pending)
	last := (r.state.Total + size - 1) / size
	grown := r.state.Total-r.total > found || r.state.Order == OldestFirst
	if r.total = r.state.Total; last < 2 || !grown && r.seen.began.Sub(r.tailedAt) < retry.TailEvery {
		return nil
	}
	r.tailedAt = r.seen.began
	for number, step := last, -1; number > 1; number += step {
		page, err := r.page(ctx, window{number, size})
		if err != nil {
			return err
		}
		unknown, news := r.look(page.Rows)
		if err := r.publish(ctx, unknown); err != nil {
			return err
		}
		switch {
		case page.Limit > 0 && page.Limit < size && page.Limit >= len(page.Rows): // it begins elsewhere
			size = page.Limit
			last = (r.state.Total + size - 1) / size
			number, step = last+1, -1
		case step > 0 && len(page.Rows) < size, r.known.empty(), number > last && len(unknown) == 0:
			return nil // some upstreams answer the last page again for any page behind it
		case step < 0 && (news == 0 || number == 2):
			step = 1
		}
	}
	return nil
}
