package poll

import (
	"context"
	"fmt"
	"time"

	"errand/pkg/messages"
)

// keep is how much longer than Overlap a told state is remembered. It bears clocks
// and time zones that are wrong by half of it.
const keep = 24 * time.Hour

// memory is what a poller knows of what was told. It is rebuilt from the events.
type memory struct {
	ledger  *ledger       // nil: nothing is matched
	seen    map[ID]uint32 // second since 1970 of the row, or of its event when that is all that is known
	learned bool
	since   time.Time // seen holds what was told since then; zero: everything
	whole   int64     // how often everything was asked for
	oldest  time.Time // when the oldest event in seen was stored; zero: there is none
	pruned  int       // size of seen after it was pruned last

	started   bool      // the last watermark was looked for
	complete  time.Time // every row up to here was told; zero: the log was never read through
	marked    time.Time // complete_through of the last watermark
	markedAt  time.Time
	newest    time.Time // of all rows of all sweeps
	unordered bool      // the last sweep found no order
	swept     bool
	from      time.Time // what was created before is not told; zero: everything is
	total     int       // total_record at the end of the last sweep
	told      int       // events that the last sweep stored
	heard     int       // states that became known since the sweep before
	owed      int       // rows by which the log grew and that no sweep came by; less than 0: it will
	again     int       // how hard they are looked for
	widened   time.Time // when the whole log was read for them
}

// start takes up where the last watermark says that a poller was. The first one
// tells what was created since the time since.
func (m *memory) start(ctx context.Context, sink Sink, since time.Time) error {
	if m.started {
		return nil
	}
	w, err := sink.Watermark(ctx)
	if err != nil {
		return fmt.Errorf("poll: read watermark: %w", err)
	}
	// One from the future, by a wrong clock or a wrong hand, would hide every row until then.
	now := time.Now()
	switch {
	case w.CompleteThrough.IsZero():
		m.from = earlier(since, now)
	case w.Since != nil:
		m.from = earlier(w.Since.Time, now)
	}
	through := earlier(w.CompleteThrough.Time, now)
	m.complete, m.marked, m.markedAt, m.started = through, through, earlier(w.At.Time, now), true
	return nil
}

// learn brings seen up to date, and takes the turn to tell.
func (m *memory) learn(ctx context.Context, sink Sink, since time.Time) error {
	if err := m.ledger.update(ctx, m.complete); err != nil {
		return err
	}
	ask := m.ledger.reach(since)
	if since.IsZero() && (!m.learned || !m.since.IsZero()) {
		m.whole++ // further back than ever: what was given and forgotten is to be given once more
	}
	if since.IsZero() || ask.IsZero() {
		ask = time.Unix(1<<20-m.whole, 0)
	}
	for told, err := range sink.Learn(ctx, ask) {
		if err != nil {
			return fmt.Errorf("poll: learn what was told: %w", err)
		}
		m.ledger.learn(told)
		if told.ID == (ID{}) || !since.IsZero() && told.At.Before(since) {
			continue
		}
		m.add(told.ID, told.At)
		if m.oldest.IsZero() || told.At.Before(m.oldest) {
			m.oldest = told.At
		}
	}
	m.since, m.learned = since, true
	return m.ledger.learned(ctx)
}

// add remembers id; of two times the later one counts.
func (m *memory) add(id ID, at time.Time) {
	second := uint32(min(max(at.Unix(), 0), 1<<32-1))
	was, known := m.seen[id]
	if !known {
		m.heard++
	}
	m.seen[id] = max(was, second)
}

// knows reports whether id was told, and keeps it from being forgotten before at is.
func (m *memory) knows(id ID, at time.Time) bool {
	if _, told := m.seen[id]; !told {
		return false
	}
	m.add(id, at)
	return true
}

// known reports whether the log was read through before, as far back as is asked for.
func (m *memory) known() bool { return !m.complete.IsZero() || !m.from.IsZero() }

// left is before which rows are left out; nil: none are.
func (m *memory) left() *messages.Time {
	if m.from.IsZero() {
		return nil
	}
	return &messages.Time{Time: m.from}
}

// bound is up to where back a sweep reads. Zero: to the end. wide: in any case.
func (m *memory) bound(overlap time.Duration, wide bool) time.Time {
	if wide || m.complete.IsZero() {
		return m.from
	}
	return later(m.complete.Add(-overlap), m.from)
}

// reach is how far back a sweep must know what was told.
func (m *memory) reach(o order, overlap time.Duration, wide bool) time.Time {
	if m.complete.IsZero() || o == unordered || wide {
		return time.Time{}
	}
	return m.complete.Add(-overlap - keep)
}

// horizon is before which a row that is not in seen is not told: it was long ago, or
// need not be. Zero: every row is told.
func (m *memory) horizon(o order, overlap time.Duration, wide bool) time.Time {
	switch {
	case m.complete.IsZero():
		return m.from
	case o == unordered || wide: // everything that the stream still has is known
		return later(m.oldest.Add(-keep/2), m.from)
	}
	return later(m.complete.Add(-overlap-keep/2), m.from)
}

// widest is when the whole log is looked through for rows that are owed.
const widest = 2

// reconcile compares what a sweep came by with the growth of total_record. again:
// there are rows that it did not see, and the next sweep, perhaps a wide one, looks
// for them at once. Rows that came in where it had been already are found by any;
// late ones that stand further back than is read again only by a wide one.
func (m *memory) reconcile(total int, grew, wide bool, now time.Time) (again bool) {
	heard := m.heard
	m.heard = 0
	switch {
	case !m.swept:
		return grew
	case wide: // total_record may count what no page shows
		m.owed, m.again, m.widened = 0, 0, now
		return false
	}
	// What another poller told ahead of the growth counts once more, not for ever.
	if m.owed = max(m.owed+total-m.total-heard, -heard); m.owed <= 0 {
		m.again = 0
		return false
	}
	if m.again+1 == widest && now.Sub(m.widened) < time.Hour {
		return false
	}
	m.again++
	return true
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
