package main

import (
	"context"
	"errors"
	"slices"

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// run shows stored events in order of time, then new ones until ctx ends, which is not an error.
func (f *follower) run(ctx context.Context, last uint64, show func(event)) error {
	if err := f.history(ctx, last, show); err != nil {
		return ended(ctx, err)
	}
	for again := true; again; again = retry.Pause(ctx, retry.Follow) {
		for _, e := range f.news(ctx) {
			show(e)
		}
	}
	return nil
}

// news returns the events that were stored since the last call, in order of time. Events that arrive meanwhile wait for the
// next call, so that each stream keeps its order.
func (f *follower) news(ctx context.Context) (list []event) {
	ends := map[string]uint64{}
	for _, s := range f.sources {
		end := bus.Scan{Stream: s.scan.Stream}
		if _, known := ends[end.Stream]; !known && end.ToEnd(ctx, f.b.nc) == nil { // tried again after an error
			ends[end.Stream] = end.From
		}
	}
	for _, s := range f.sources {
		for {
			if len(s.page) == 0 {
				s.page, _ = s.scan.Next(ctx, f.b.nc) // tried again after an error
			}
			if len(s.page) == 0 || s.page[0].Sequence >= ends[s.scan.Stream] {
				break
			}
			if e := s.take(); !s.elsewhere(e) {
				list = append(list, e)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b event) int { return a.Time.Compare(b.Time) })
	return list
}

// history shows the stored events of all streams together, oldest first, or only the last ones unless last is 0.
func (f *follower) history(ctx context.Context, last uint64, show func(event)) error {
	total := uint64(0)
	for _, s := range f.sources {
		total += s.past
	}
	for ; ; total-- {
		var first *source
		for _, s := range f.sources {
			if err := s.fill(ctx, f.b); err != nil {
				return err
			}
			if s.past > 0 && (first == nil || s.page[0].Time.Before(first.page[0].Time)) {
				first = s
			}
		}
		if first == nil {
			return nil
		}
		first.past--
		if e := first.take(); (last == 0 || total <= last) && !first.elsewhere(e) {
			show(e)
		}
	}
}

// maxEmpty is how many empty answers in a row mean that messages were removed. A replica that lags gives some too.
const maxEmpty = 10

// fill reads the next page of stored messages once the one before is shown. It waits while no server answers, which the
// connection reports.
func (s *source) fill(ctx context.Context, b broker) error {
	for empty := 0; s.past > 0 && len(s.page) == 0; {
		page, err := s.scan.Next(ctx, b.nc)
		switch {
		case len(page) > 0:
			s.page, s.past = page, min(s.past, page[0].Pending+1) // some may have been removed
			return nil
		case err == nil:
			empty++
		}
		if empty > maxEmpty {
			s.past = 0
		} else if !retry.Pause(ctx, retry.Follow) {
			return ctx.Err()
		}
	}
	return nil
}

// take removes the first message of the page.
func (s *source) take() event {
	m := s.page[0]
	s.page = s.page[1:]
	return event(m)
}

// elsewhere reports whether an earlier source shows the event.
func (s *source) elsewhere(e event) bool {
	return slices.ContainsFunc(s.earlier, func(pattern string) bool { return messages.MatchSubject(pattern, e.Subject) })
}

// ended returns err unless it only says that ctx ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return nil
	}
	return err
}
