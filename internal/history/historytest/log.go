// Package historytest keeps histories in memory, for tests. No program links it.
package historytest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"errand/internal/history"
	"errand/internal/wire"
	"errand/pkg/messages"
)

// Log is a history.Log in memory, fenced as JetStream is. The zero value is empty.
type Log struct {
	// Before is called before each event is stored; an error keeps it from being stored.
	Before func(messages.Event) error
	// Lag is how many events the replica that answers Last has not yet.
	Lag int

	mu     sync.Mutex
	events []history.Entry
	reads  int
}

// Append stores an event over the one that it must follow.
func (l *Log) Append(_ context.Context, r history.Record) (uint64, error) {
	body, err := r.Event.Encode()
	if err == nil && l.Before != nil {
		err = l.Before(r.Event)
	}
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if last(r.Event.Operation.Filter(r.Event.ID), l.events).Sequence != r.Last {
		return 0, history.ErrFenced
	}
	return l.put(r.Event.Subject(), body), nil
}

// Last returns the last event under a filter that the replica has.
func (l *Log) Last(_ context.Context, _ messages.Operation, filter string) (history.Entry, error) {
	return l.read(filter, l.Lag), nil
}

// Leader returns the last event under a filter.
func (l *Log) Leader(_ context.Context, _ messages.Operation, filter string) (history.Entry, error) {
	return l.read(filter, 0), nil
}

func (l *Log) read(filter string, lag int) history.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	return last(filter, l.events[:max(len(l.events)-lag, 0)])
}

// Next returns the first event under a filter at or behind a sequence.
func (l *Log) Next(_ context.Context, _ messages.Operation, filter string, from uint64) (history.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	for _, e := range l.events {
		if e.Sequence >= from && wire.MatchSubject(filter, e.Subject) {
			return e, nil
		}
	}
	return history.Entry{}, nil
}

func last(filter string, events []history.Entry) history.Entry {
	for _, e := range slices.Backward(events) {
		if wire.MatchSubject(filter, e.Subject) {
			return e
		}
	}
	return history.Entry{}
}

// Put stores an event without asking for a fence, and calls no Before.
func (l *Log) Put(subject string, body []byte) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.put(subject, body)
}

func (l *Log) put(subject string, body []byte) uint64 {
	sequence := uint64(len(l.events) + 1)
	l.events = append(l.events, history.Entry{Subject: subject, Sequence: sequence, At: time.Now(), Body: body})
	return sequence
}

// Events are all that are stored, in order.
func (l *Log) Events() []history.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// States are the states of all events, in order.
func (l *Log) States() []messages.State {
	var states []messages.State
	for _, e := range l.Events() {
		states = append(states, messages.StateOf(e.Subject))
	}
	return states
}

// Reads is how often it was read.
func (l *Log) Reads() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads
}

// Decode reads the body of an event.
func Decode[B any](t testing.TB, e history.Entry) B {
	t.Helper()
	var body B
	if err := messages.DecodeEvent(e.Body, &body); err != nil {
		t.Fatalf("%s: %v", e.Subject, err)
	}
	return body
}

// Corrects is for a history whose request may correct another.
func Corrects(context.Context) (bool, error) { return true, nil }
