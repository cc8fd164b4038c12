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
	ledger  *ledger // nil: nothing is matched
	seen    map[ID]stamp
	learned bool
	since   time.Time // seen holds what was told since then; zero: everything
	oldest  time.Time // when the oldest event in seen was stored; zero: there is none
	came    int       // rows come by since something was forgotten last

	forgot time.Time       // rows created before that the sweep at hand came by may be in seen no more; zero: all are
	passed map[ID]struct{} // of them those that were forgotten last

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

// stamp is when the row of a state was created; while none was come by, when its event
// was stored. Minutes since 1970, twice; and one for an event.
type stamp uint32

func stampOf(t time.Time, event bool) stamp {
	s := stamp(min(max(t.Unix()/60, 0), 1<<31-1)) << 1
	if event {
		s++
	}
	return s
}

// before reports whether all of the minute lies before t.
func (s stamp) before(t time.Time) bool { return int64(s>>1)*60+60 <= t.Unix() }

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
	anew := !m.learned || since.Before(m.since) // also what was given before and forgotten
	for told, err := range sink.Learn(ctx, m.ledger.reach(since), anew) {
		if err != nil {
			return fmt.Errorf("poll: learn what was told: %w", err)
		}
		m.ledger.learn(told)
		if told.ID == (ID{}) || !since.IsZero() && told.At.Before(since) {
			continue
		}
		if _, ok := m.passed[told.ID]; !ok {
			m.add(told.ID, stampOf(told.At, true))
		}
		if m.oldest.IsZero() || told.At.Before(m.oldest) {
			m.oldest = told.At
		}
	}
	m.since, m.learned = since, true
	return m.ledger.learned(ctx)
}

// add remembers id. Of two times the later one counts, that of a row more than that of
// an event.
func (m *memory) add(id ID, at stamp) {
	was, known := m.seen[id]
	if !known {
		m.heard++
	}
	if at&1 == 0 {
		m.came++
	}
	if known && (was&1 == at&1 && was > at || was&1 < at&1) {
		return
	}
	m.seen[id] = at
}

// knows reports whether id was told, and keeps it from being forgotten before at is.
func (m *memory) knows(id ID, at time.Time) bool {
	if _, passed := m.passed[id]; passed {
		return true
	}
	if _, told := m.seen[id]; !told {
		return false
	}
	m.add(id, stampOf(at, false))
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

// forget drops what was created before bound, at most once for half as many rows come by
// as there are in seen, and half of spare. What was come by since it did so the last time
// is still known in passed.
func (m *memory) forget(bound time.Time, spare int) {
	if 2*m.came < len(m.seen)+spare {
		return
	}
	m.passed = map[ID]struct{}{}
	for id, at := range m.seen {
		if at.before(bound) {
			m.passed[id] = struct{}{}
			delete(m.seen, id)
		}
	}
	m.came, m.forgot = 0, later(m.forgot, bound)
}

// recall owns up to what was forgotten: whoever needs to know more must learn it again.
func (m *memory) recall() {
	m.since, m.forgot, m.passed = later(m.since, m.forgot), time.Time{}, nil
}
