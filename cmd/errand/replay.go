package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// run shows stored events in the order of time, then new ones until ctx ends, which is no
// error.
func (f *follower) run(ctx context.Context, last uint64, show func(event)) error {
	ctx, stop := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop()
	if err := f.history(ctx, last, show); err != nil {
		return ended(ctx, err)
	}
	failed := make(chan error, len(f.sources))
	for _, s := range f.sources {
		readers.Go(func() { failed <- f.forward(ctx, s) })
	}
	for {
		select {
		case e := <-f.live:
			show(e)
		case err := <-failed:
			return ended(ctx, err)
		case <-ctx.Done():
			return nil
		}
	}
}

// history shows the stored events of all streams together, oldest first; only the last
// ones unless last is 0.
func (f *follower) history(ctx context.Context, last uint64, show func(event)) error {
	total := uint64(0)
	for _, s := range f.sources {
		total += s.past
		if err := s.advance(ctx, false); err != nil {
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
		if last == 0 || total <= last {
			show(first.head)
		}
		if err := first.advance(ctx, true); err != nil {
			return err
		}
	}
}

// advance replaces the head by the next message, if there is one.
func (s *source) advance(ctx context.Context, shown bool) error {
	if shown {
		s.past--
	}
	if s.past == 0 {
		return nil
	}
	e, pending, err := s.next(ctx)
	s.head, s.past = e, min(s.past, pending+1) // some may have been removed meanwhile
	return err
}

// next returns the next message of a stream, and the number of messages after it.
func (s *source) next(ctx context.Context) (event, uint64, error) {
	m, err := s.messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return event{}, 0, fmt.Errorf("read stream %s: %w", s.stream, err)
	}
	meta, err := m.Metadata()
	if err != nil {
		return event{}, 0, fmt.Errorf("read stream %s: %w", s.stream, err)
	}
	return event{at: meta.Timestamp, subject: m.Subject(), header: m.Headers(), data: m.Data()}, meta.NumPending, nil
}

// forward passes on new messages.
func (f *follower) forward(ctx context.Context, s *source) error {
	for {
		e, _, err := s.next(ctx)
		if err != nil {
			return err
		}
		select {
		case f.live <- e:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stop ends what follow has started.
func (f *follower) stop() {
	close(f.done)
	for _, s := range f.subs {
		_ = s.Unsubscribe() // the connection is closed next anyway anyway
	}
	for _, s := range f.sources {
		s.messages.Stop()
	}
}

// ended returns err, unless it only says that ctx ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return nil
	}
	return err
}

// matches reports whether a subject matches a NATS pattern.
func matches(pattern, subject string) bool {
	want, have := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range want {
		switch {
		case token == ">":
			return len(have) > i
		case i >= len(have) || token != "*" && token != have[i]:
			return false
		}
	}
	return len(want) == len(have)
}
