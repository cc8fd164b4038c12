package poll

import (
	"context"
	"fmt"
	"time"
)

// keep is how much longer than Overlap a told state is remembered. It bears clocks
// and time zones that are wrong by half of it.
const keep = 24 * time.Hour

// memory is what a poller knows of what was told. It is rebuilt from the events.
type memory struct {
	seen    map[ID]uint32 // second since 1970 of the row, or of its event when that is all that is known
	learned bool
	since   time.Time // seen holds what was told since then; zero: everything
	oldest  time.Time // when the oldest event in seen was stored; zero: there is none
	pruned  int       // size of seen after it was pruned last

	started   bool      // the last watermark was looked for
	complete  time.Time // every row up to here was told; zero: the log was never read through
	marked    time.Time // complete_through of the last watermark
	markedAt  time.Time
	newest    time.Time // of all rows of all sweeps
	unordered bool      // the last sweep found no order
	swept     bool
	total     int // total_record at the end of the last sweep
	again     int // sweeps in a row that were not followed by a pause
}

// start takes up where the last watermark says that a poller was.
func (m *memory) start(ctx context.Context, sink Sink) error {
	if m.started {
		return nil
	}
	w, err := sink.Watermark(ctx)
	if err != nil {
		return fmt.Errorf("poll: read watermark: %w", err)
	}
	// One from the future, by a wrong clock or a wrong hand, would hide every row until then.
	now := time.Now()
	through := earlier(w.CompleteThrough.Time, now)
	m.complete, m.marked, m.markedAt, m.started = through, through, earlier(w.At.Time, now), true
	return nil
}

// learn brings seen up to date, and takes the turn to tell.
func (m *memory) learn(ctx context.Context, sink Sink, since time.Time) error {
	for told, err := range sink.Learn(ctx, since) {
		if err != nil {
			return fmt.Errorf("poll: learn what was told: %w", err)
		}
		m.add(told.ID, told.At)
		if m.oldest.IsZero() || told.At.Before(m.oldest) {
			m.oldest = told.At
		}
	}
	m.since, m.learned = since, true
	return nil
}

// add remembers id; of two times the later one counts.
func (m *memory) add(id ID, at time.Time) {
	second := uint32(min(max(at.Unix(), 0), 1<<32-1))
	m.seen[id] = max(m.seen[id], second)
}

// knows reports whether id was told, and keeps it from being forgotten before at is.
func (m *memory) knows(id ID, at time.Time) bool {
	if _, told := m.seen[id]; !told {
		return false
	}
	m.add(id, at)
	return true
}

// reach is how far back a sweep must know what was told.
func (m *memory) reach(o order, overlap time.Duration) time.Time {
	if m.complete.IsZero() || o == unordered {
		return time.Time{}
	}
	return m.complete.Add(-overlap - keep)
}

// horizon is before which a row that is not in seen was told long ago. Zero: none was.
func (m *memory) horizon(o order, overlap time.Duration) time.Time {
	switch {
	case m.complete.IsZero():
		return time.Time{}
	case o == unordered: // everything that the stream still has is known
		return m.oldest.Add(-keep / 2)
	}
	return m.complete.Add(-overlap - keep/2)
}

// prune forgets what no sweep of an ordered log asks for again.
func (m *memory) prune(overlap time.Duration) {
	if len(m.seen) < 2*m.pruned+1000 {
		return
	}
	bound := m.complete.Add(-overlap - keep)
	for id, second := range m.seen {
		if int64(second)+1 < bound.Unix() {
			delete(m.seen, id)
		}
	}
	m.pruned = len(m.seen)
	if bound.After(m.since) {
		m.since = bound
	}
}
