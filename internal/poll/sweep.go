package poll

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"errand/internal/failpoint"
	"errand/internal/retry"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// sweep is one pass over the log, as far back as necessary.
type sweep struct {
	*Poller
	memory    *memory
	began     time.Time
	walk      walk
	compass   compass
	newest    time.Time // of the rows read
	total     int       // total_record of the last page read
	pages     int       // read
	published int       // events stored
	wide      bool      // read the whole log, whatever was read before
	first     time.Time // the newest row of the first page
	onPage    map[ID]struct{}
	lostPlace bool // a page did not overlap with the previous one
}

// sweep reads the log and publishes new states. again: there are rows that it has not seen.
func (p *Poller) sweep(ctx context.Context, m *memory) (again bool, err error) {
	began := time.Now()
	page, err := p.read(ctx, window{1, p.Limit})
	if err != nil {
		return false, err
	}
	if err := m.start(ctx, p.Sink, p.Since); err != nil {
		return false, err
	}
	s := &sweep{Poller: p, memory: m, began: began, total: page.TotalRecord, wide: m.searches >= wideSearch, onPage: map[ID]struct{}{},
		walk: start(page, p.Limit), compass: compass{tolerance: p.Overlap / 2}}
	for ask := s.walk.asked; ask.page > 0; {
		news, times, err := s.findNew(ctx, page)
		if err != nil {
			return false, err
		}
		ask, err = s.walk.next(page, s.order(), news.len() == 0 && s.behind(times), m.known() && !s.wide)
		if err != nil {
			return false, err
		}
		failpoint.Here(failpoint.Page)
		if page, err = s.publishAndRead(ctx, news, ask); err != nil {
			return false, err
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
	}
	return s.finish(ctx)
}

func (p *Poller) read(ctx context.Context, ask window) (mail.LogPage, error) {
	return retry.Read(ctx, nil, p.Policy, func(ctx context.Context) (mail.LogPage, error) {
		return p.Upstream.LogPage(ctx, ask.page, ask.limit)
	})
}

func (s *sweep) order() order {
	if s.memory.unordered {
		return unordered
	}
	return s.compass.order()
}

// findNew finds the new states on a page. times are those of its rows, nil if no row has
// one.
func (s *sweep) findNew(ctx context.Context, page mail.LogPage) (*news, []time.Time, error) {
	s.pages++
	now := time.Now()
	times := timesOf(page.Entries, now)
	if times == nil && len(page.Entries) > 0 {
		s.compass.notNewest, s.compass.notOldest = true, true
	}
	fresh, joined := s.walk.arrive(page)
	s.compass.add(times[min(fresh, len(times)):], joined)
	s.total = page.TotalRecord
	order := s.order()
	s.forget(order)
	if reach := s.memory.reach(order, s.Overlap, s.wide); !s.memory.learned || reach.Before(s.memory.since) {
		if err := s.memory.learn(ctx, s.Sink, reach); err != nil {
			return nil, nil, err
		}
	}
	horizon := s.memory.horizon(order, s.Overlap, s.wide)
	found, rows := &news{}, []mail.Entry(nil)
	clear(s.onPage)
	for i, row := range page.Entries {
		at := now
		if times != nil {
			at = times[i]
		}
		if at.After(s.newest) {
			s.newest = at
		}
		reply := parseReply(row.Response)
		status := statusOf(row, reply)
		id := idOf(row, status)
		if _, twice := s.onPage[id]; twice || s.memory.knows(id, at) || times != nil && at.Before(horizon) {
			continue
		}
		s.onPage[id] = struct{}{}
		found.add(eventOf(row, id, status, reply, now), id, at)
		rows = append(rows, row)
	}
	if s.first.IsZero() {
		s.first = s.newest
	}
	return found, times, s.memory.tracker.match(ctx, s.memory.complete, found.events, rows)
}

// spare is twice the number of pages that a sweep reads before it forgets something again.
const spare = 40

// forget drops old rows that the first sweep has published, so that it needs no more
// memory for a long log than for a short one. It may do so while each page overlaps with
// the previous one: any other page may have rows that were forgotten, and after it there
// may be rows that were seen before.
func (s *sweep) forget(o order) {
	m := s.memory
	mayForget := m.complete.IsZero() && !m.swept
	switch {
	case s.walk.before == nil:
		if mayForget { // a sweep that failed may have seen anything
			clear(m.seen)
			m.learned = false
		}
	case !s.walk.overlaps:
		s.lostPlace = true
		m.recall()
	case !o.found():
		m.recall()
	case !s.lostPlace && mayForget:
		m.forget(s.through(o, time.Now()).Add(-s.Overlap-keep), spare*s.walk.size)
	}
}

// through is how far the log is published if the sweep ends now.
func (s *sweep) through(o order, now time.Time) time.Time {
	through := s.newest
	switch { // rows that were added to a part that was read already were not published
	case o == newestFirst:
		through = s.first
	case o != oldestFirst && s.pages > 1: // a row is late by at most Overlap
		through = earlier(s.newest, later(s.memory.newest, s.began.Add(-s.Overlap)))
	}
	return later(earlier(through, now), s.memory.complete)
}

// behind reports whether all rows of a page are older than what a sweep reads again, and
// the sweep has seen a row that is not.
func (s *sweep) behind(times []time.Time) bool {
	bound := s.memory.bound(s.Overlap, s.wide)
	if bound.IsZero() || s.newest.Before(bound) {
		return false
	}
	return len(times) > 0 && !slices.ContainsFunc(times, func(t time.Time) bool { return !t.Before(bound) })
}

// publishAndRead publishes what is new and, at the same time, reads the next page if there
// is one.
func (s *sweep) publishAndRead(ctx context.Context, news *news, ask window) (page mail.LogPage, err error) {
	if ask.page == 0 {
		return mail.LogPage{}, s.publish(ctx, news)
	}
	if news.len() == 0 {
		return s.read(ctx, ask)
	}
	ahead, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	var unread error
	go func() {
		defer close(done)
		page, unread = s.read(ahead, ask)
	}()
	if err = s.publish(ctx, news); err != nil {
		stop() // the next sweep reads it again
	}
	<-done
	if err != nil {
		return mail.LogPage{}, err
	}
	return page, unread
}

// maxTries is how often other pollers may take the leadership before a sweep fails.
const maxTries = 20

// publish stores what is new, even if other pollers publish too.
func (s *sweep) publish(ctx context.Context, n *news) error {
	for try := 1; n.len() > 0; try++ {
		// When ctx ends, the events under way are waited for: they would have to be learned again.
		failpoint.Here(failpoint.BeforePublish)
		stored, err := s.Sink.Publish(context.WithoutCancel(ctx), n.events)
		failpoint.Here(failpoint.AfterPublish)
		s.stored(n, stored)
		if err == nil {
			continue
		}
		if err := s.relearn(ctx, "publish", err, try); err != nil {
			return err
		}
		n.drop(s.memory)
	}
	return nil
}

// relearn learns what another poller published after it took the leadership. The error
// says why publishing again would be useless.
func (s *sweep) relearn(ctx context.Context, what string, err error, try int) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !errors.Is(err, ErrBehind) || try == maxTries:
		return fmt.Errorf("poll: %s: %w", what, err)
	}
	// Two pollers must not take the leadership from each other for ever.
	retry.Pause(ctx, rand.N(time.Duration(min(try, 10))*retry.RelearnStep))
	return s.memory.learn(ctx, s.Sink, s.memory.since)
}

// stored removes the first events from n: they were stored.
func (s *sweep) stored(n *news, stored int) {
	counts := map[messages.State]int{}
	for i, e := range n.events[:stored] {
		if e.Operation == messages.Delivery {
			s.memory.add(n.ids[i], stampOf(n.at[i], false))
			s.memory.tracker.published(e)
			counts[e.State]++
			s.published++
		}
	}
	n.events, n.ids, n.at = n.events[stored:], n.ids[stored:], n.at[stored:]
	if s.Published != nil {
		for status, c := range counts {
			s.Published(string(status), c)
		}
	}
}

// finish ends a sweep that has read everything it had to.
func (s *sweep) finish(ctx context.Context) (again bool, err error) {
	m, now := s.memory, time.Now()
	through := s.through(s.order(), now)
	if !through.IsZero() && (s.published > 0 || through.Sub(m.marked) > time.Minute || now.Sub(m.markedAt) > time.Hour) {
		if err := s.mark(ctx, through, now); err != nil {
			return false, err
		}
	}
	again = m.reconcile(s.total, s.total > s.walk.total, s.wide, now)
	m.published = s.published
	m.complete, m.newest, m.total, m.swept = through, later(m.newest, s.newest), s.total, true
	m.unordered = s.compass.order() == unordered
	if s.order().found() {
		m.forget(through.Add(-s.Overlap-keep), spare*s.walk.size)
	}
	m.recall()
	s.Logger.Debug().Stringer("order", s.order()).Int("new", s.published).Int("total_record", s.total).Time("complete_through", through).Msg("poll: swept")
	return again, s.report(ctx, again)
}

// mark publishes how far the log was read. An idle poller does so every hour: the stream
// drops old events, and a log without a watermark is published again.
func (s *sweep) mark(ctx context.Context, through, now time.Time) error {
	n, m := &news{}, s.memory
	n.add(messages.Event{Operation: messages.Log, State: messages.Marked, Body: &messages.Watermark{
		Common:          messages.Common{At: messages.Time{Time: now}},
		CompleteThrough: messages.Time{Time: through},
		TotalRecord:     s.total,
		New:             s.published,
		By:              s.by(),
		Since:           m.publishedSince(),
	}}, ID{}, now)
	failpoint.Here(failpoint.BeforeMark)
	if err := s.publish(ctx, n); err != nil {
		return err
	}
	failpoint.Here(failpoint.AfterMark)
	m.marked, m.markedAt = through, now
	return nil
}

// by says how it is known that everything was published.
func (s *sweep) by() messages.Known {
	switch o := s.order(); {
	case s.walk.whole && !s.walk.fromEnd:
		return messages.ByWholeLog
	case o == oldestFirst:
		return messages.ByOldestFirst
	}
	return messages.ByNewestFirst
}

// news are events to publish, with the ids and the times of their rows.
type news struct {
	events []messages.Event
	ids    []ID
	at     []time.Time
}

func (n *news) len() int { return len(n.events) }

func (n *news) add(e messages.Event, id ID, at time.Time) {
	n.events, n.ids, n.at = append(n.events, e), append(n.ids, id), append(n.at, at)
}

// drop removes what m knows.
func (n *news) drop(m *memory) {
	rest := news{events: n.events[:0], ids: n.ids[:0], at: n.at[:0]}
	for i := range n.events {
		if !m.knows(n.ids[i], n.at[i]) {
			rest.add(n.events[i], n.ids[i], n.at[i])
		}
	}
	*n = rest
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
