package poll

import (
	"context"
	"fmt"
	"time"

	"errand/pkg/messages"
)

// keep is how much longer than Overlap a published state is remembered. Clocks and time
// zones may be wrong by half of it.
const keep = 24 * time.Hour

// memory is what a poller knows about published states. It is rebuilt from the events.
type memory struct {
	tracker  *tracker // nil: nothing is matched
	seen     map[ID]stamp
	learned  bool
	since    time.Time // seen has what was published since then; zero: everything
	oldest   time.Time // when the oldest event in seen was stored; zero: none
	rowsSeen int       // rows seen since the last time that states were forgotten

	forgotBefore  time.Time       // the current sweep may have dropped rows created before this from seen; zero: it dropped none
	justForgotten map[ID]struct{} // the states that were dropped last

	started      bool      // the last watermark was read
	complete     time.Time // every row up to here was published; zero: the log was never read to its end
	marked       time.Time // complete_through of the last watermark
	markedAt     time.Time
	newest       time.Time // of all rows of all sweeps
	unordered    bool      // the last sweep found no order
	swept        bool
	ignoreBefore time.Time // rows created before are not published; zero: all are
	total        int       // total_record at the end of the last sweep
	published    int       // events that the last sweep stored
	newStates    int       // states that became known since the previous sweep
	missing      int       // rows that total_record counts and no sweep saw; negative: total_record is behind
	searches     int       // sweeps in a row that looked for them
	searchedAt   time.Time // when the whole log was last read for them
}

// stamp is when the row of a state was created or, until the row is seen, when its event
// was stored: twice the minutes since 1970, plus one for an event.
type stamp uint32

func stampOf(t time.Time, event bool) stamp {
	s := stamp(min(max(t.Unix()/60, 0), 1<<31-1)) << 1
	if event {
		s++
	}
	return s
}

// before reports whether the whole minute is before t.
func (s stamp) before(t time.Time) bool { return int64(s>>1)*60+60 <= t.Unix() }

// start continues from the last watermark. Without one, rows created since the time since
// are published.
func (m *memory) start(ctx context.Context, sink Sink, since time.Time) error {
	if m.started {
		return nil
	}
	w, err := sink.Watermark(ctx)
	if err != nil {
		return fmt.Errorf("poll: read watermark: %w", err)
	}
	// A watermark in the future, by a wrong clock or by mistake, would hide every row until then.
	now := time.Now()
	switch {
	case w.CompleteThrough.IsZero():
		m.ignoreBefore = earlier(since, now)
	case w.Since != nil:
		m.ignoreBefore = earlier(w.Since.Time, now)
	}
	through := earlier(w.CompleteThrough.Time, now)
	m.complete, m.marked, m.markedAt, m.started = through, through, earlier(w.At.Time, now), true
	return nil
}

// learn brings seen up to date and takes the leadership.
func (m *memory) learn(ctx context.Context, sink Sink, since time.Time) error {
	if err := m.tracker.update(ctx, m.complete); err != nil {
		return err
	}
	again := !m.learned || since.Before(m.since) // also what was learned before and forgotten
	for e, err := range sink.Learn(ctx, m.tracker.reach(since), again) {
		if err != nil {
			return fmt.Errorf("poll: learn published events: %w", err)
		}
		m.tracker.learn(e)
		if e.ID == (ID{}) || !since.IsZero() && e.At.Before(since) {
			continue
		}
		if _, ok := m.justForgotten[e.ID]; !ok {
			m.add(e.ID, stampOf(e.At, true))
		}
		if m.oldest.IsZero() || e.At.Before(m.oldest) {
			m.oldest = e.At
		}
	}
	m.since, m.learned = since, true
	return m.tracker.noteLate(ctx)
}

// add remembers id. The later of two times counts; that of a row counts more than that of
// an event.
func (m *memory) add(id ID, at stamp) {
	was, known := m.seen[id]
	if !known {
		m.newStates++
	}
	if at&1 == 0 {
		m.rowsSeen++
	}
	if known && (was&1 == at&1 && was > at || was&1 < at&1) {
		return
	}
	m.seen[id] = at
}

// knows reports whether id was published. If so, id is not forgotten before at is.
func (m *memory) knows(id ID, at time.Time) bool {
	if _, passed := m.justForgotten[id]; passed {
		return true
	}
	if _, published := m.seen[id]; !published {
		return false
	}
	m.add(id, stampOf(at, false))
	return true
}

// known reports whether the log was read before, as far back as required.
func (m *memory) known() bool { return !m.complete.IsZero() || !m.ignoreBefore.IsZero() }

// publishedSince is the start of what is published; nil: the whole log.
func (m *memory) publishedSince() *messages.Time {
	if m.ignoreBefore.IsZero() {
		return nil
	}
	return &messages.Time{Time: m.ignoreBefore}
}

// bound is how far back a sweep reads; zero: the whole log. wide: also what was read
// before.
func (m *memory) bound(overlap time.Duration, wide bool) time.Time {
	if wide || m.complete.IsZero() {
		return m.ignoreBefore
	}
	return later(m.complete.Add(-overlap), m.ignoreBefore)
}

// reach is how far back a sweep must know what was published.
func (m *memory) reach(o order, overlap time.Duration, wide bool) time.Time {
	if m.complete.IsZero() || o == unordered || wide {
		return time.Time{}
	}
	return m.complete.Add(-overlap - keep)
}

// horizon is the time before which a row that is not in seen is not published: it was
// published long ago, or does not have to be. Zero: every row is published.
func (m *memory) horizon(o order, overlap time.Duration, wide bool) time.Time {
	switch {
	case m.complete.IsZero():
		return m.ignoreBefore
	case o == unordered || wide: // seen has everything that is still in the stream
		return later(m.oldest.Add(-keep/2), m.ignoreBefore)
	}
	return later(m.complete.Add(-overlap-keep/2), m.ignoreBefore)
}

// wideSearch is the number of searches after which the whole log is read for missing rows.
const wideSearch = 2

// reconcile compares the rows that a sweep saw with the growth of total_record. again:
// there are rows that it did not see, and the next sweep looks for them at once; perhaps
// it is a wide one, which reads the whole log. Any sweep finds rows that were added to a
// part that was read already; only a wide one finds late rows beyond the overlap.
func (m *memory) reconcile(total int, grew, wide bool, now time.Time) (again bool) {
	newStates := m.newStates
	m.newStates = 0
	switch {
	case !m.swept:
		return grew
	case wide: // total_record may count what no page shows
		m.missing, m.searches, m.searchedAt = 0, 0, now
		return false
	}
	// What another poller published before the growth counts in the next sweep too, but not for ever.
	if m.missing = max(m.missing+total-m.total-newStates, -newStates); m.missing <= 0 {
		m.searches = 0
		return false
	}
	if m.searches+1 == wideSearch && now.Sub(m.searchedAt) < time.Hour {
		return false
	}
	m.searches++
	return true
}

// forget drops states of rows created before bound. To be cheap, it waits until half as
// many rows have been seen as are in seen, plus half of spare. What it dropped last is
// still in justForgotten.
func (m *memory) forget(bound time.Time, spare int) {
	if 2*m.rowsSeen < len(m.seen)+spare {
		return
	}
	m.justForgotten = map[ID]struct{}{}
	for id, at := range m.seen {
		if at.before(bound) {
			m.justForgotten[id] = struct{}{}
			delete(m.seen, id)
		}
	}
	m.rowsSeen, m.forgotBefore = 0, later(m.forgotBefore, bound)
}

// recall records in since what was forgotten, so that a sweep that needs it learns it
// again.
func (m *memory) recall() {
	m.since, m.forgotBefore, m.justForgotten = later(m.since, m.forgotBefore), time.Time{}, nil
}
