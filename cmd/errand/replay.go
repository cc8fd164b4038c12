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
			e, sequence, there := s.peek(ctx, f.b)
			if !there || sequence >= ends[s.scan.Stream] {
				break
			}
			s.page = s.page[1:]
			if !s.elsewhere(e) {
				list = append(list, e)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b event) int { return a.at.Compare(b.at) })
	return list
}

// history shows the stored events of all streams together, oldest first, or only the last ones unless last is 0.
func (f *follower) history(ctx context.Context, last uint64, show func(event)) error {
	total := uint64(0)
	for _, s := range f.sources {
		total += s.past
		if err := s.advance(ctx, f.b, false); err != nil {
			return err
		}
	}
	for ; ; total-- {
		var first *source
		for _, s := range f.sources {
			if s.past > 0 && (first == nil || s.head.at.Before(first.head.at)) {
				first = s
			}
		}
		if first == nil {
			return nil
		}
		if (last == 0 || total <= last) && !first.elsewhere(first.head) {
			show(first.head)
		}
		if err := first.advance(ctx, f.b, true); err != nil {
			return err
		}
	}
}

// advance replaces the head by the next message, if any.
func (s *source) advance(ctx context.Context, b broker, shown bool) error {
	if shown {
		s.past--
	}
	if s.past == 0 {
		return nil
	}
	e, left, err := s.next(ctx, b)
	s.head, s.past = e, min(s.past, left) // some may have been removed
	return err
}

// maxEmpty is how many empty answers in a row mean that messages were removed. A replica that lags gives some too.
const maxEmpty = 10

// next returns the next message, and how many messages there are from it on: 0 if they were removed. It waits while no
// server answers, which the connection reports.
func (s *source) next(ctx context.Context, b broker) (event, uint64, error) {
	e, _, there := s.peek(ctx, b)
	for ; !there; e, _, there = s.peek(ctx, b) {
		if s.empty >= maxEmpty {
			return event{}, 0, nil
		}
		if !retry.Pause(ctx, retry.Follow) {
			return event{}, 0, ctx.Err()
		}
	}
	pending := s.page[0].Pending
	s.page = s.page[1:]
	return e, pending + 1, nil
}

// peek returns the next message and its sequence, if it is stored yet.
func (s *source) peek(ctx context.Context, b broker) (e event, sequence uint64, there bool) {
	if len(s.page) == 0 {
		page, err := s.scan.Next(ctx, b.nc)
		switch {
		case err != nil: // tried again
		case len(page) == 0:
			s.empty++
		default:
			s.page, s.empty = page, 0
		}
	}
	if len(s.page) == 0 {
		return e, 0, false
	}
	m := s.page[0]
	return event{at: m.Time, subject: m.Subject, header: m.Header, data: m.Data}, m.Sequence, true
}

// elsewhere reports whether an earlier source shows the event.
func (s *source) elsewhere(e event) bool {
	return slices.ContainsFunc(s.earlier, func(pattern string) bool { return messages.MatchSubject(pattern, e.subject) })
}

// ended returns err unless it only says that ctx ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return nil
	}
	return err
}
