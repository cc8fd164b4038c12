package deliveries

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"errand/pkg/messages"
)

func (m *model) fault(kind, format string, args ...any) {
	m.Helper()
	if m.tally[kind]++; m.tally[kind] < 2 {
		m.Errorf(kind+": "+format, args...)
	}
}

// made notes a call.
func (m *model) made(id string, number int, c *realCall) {
	m.streams.mu.Lock()
	defer m.streams.mu.Unlock()
	batch := messages.BatchID(id, number)
	m.calls[batch] = append(m.calls[batch], c)
}

// check checks an event of a poller when it is stored.
func (m *model) check(e messages.Event) {
	switch b := e.Body.(type) {
	case *messages.DeliveryBody:
		if m.published[b.EventID]++; m.published[b.EventID] > 1 {
			m.fault("twice", "%s", b.EventID)
		}
		m.tally[string(b.Match.Confidence)]++
		switch b.Match.Confidence {
		case messages.MatchExact:
			m.exact(e.ID, b)
			m.placed(e, b)
		case messages.MatchUnique:
			m.unique(e.ID, b)
			m.placed(e, b)
		case messages.MatchAmbiguous:
			m.ambiguous(b)
		case messages.MatchNone:
			m.none(b)
		}
	case *messages.SummaryBody:
		m.sum(e.ID).last = b
		m.tally["summaries"]++
	}
}

// requestSum is what is known of a request, and its last summary.
type requestSum struct {
	last     *messages.SummaryBody
	accepted int // by its outcome, if that is of all recipients
	places   map[string]messages.State
}

func (m *model) sum(id string) *requestSum {
	if m.sums[id] == nil {
		m.sums[id] = &requestSum{places: map[string]messages.State{}}
	}
	return m.sums[id]
}

// placed notes where a row was published.
func (m *model) placed(e messages.Event, b *messages.DeliveryBody) {
	place := strings.TrimSuffix(b.Recipient, "?")
	at := e.ID + " " + place
	if m.places[at] == nil {
		m.places[at] = map[string]bool{}
	}
	m.places[at][b.EventID[:16]] = true
	if was := m.sum(e.ID).places[place]; was != messages.Delivered {
		m.sum(e.ID).places[place] = e.State
	}
	for other, rows := range m.places {
		if other != at && rows[b.EventID[:16]] {
			m.fault("moved", "a row at %s is now at %s", other, at)
		}
	}
}

// taken reports whether the place of a row has another one's.
func (m *model) taken(r *realRow, id string) bool {
	rows := m.places[fmt.Sprintf("%s %d.%d", r.request, r.batch, r.recipient)]
	return len(rows) > 1 || len(rows) == 1 && !rows[id[:16]]
}

// unique checks that a row of a call is not published as another request's, unless another program's has its place.
func (m *model) unique(id string, b *messages.DeliveryBody) {
	r := m.service.row(b.EventID)
	if r.request != "" && r.request != id && !m.days.crowded && !m.taken(r, b.EventID) && m.sender(r) {
		m.fault("wrong request", "a row of %s is said to be of %s; %s", r.request, id, m.story(messages.BatchID(r.request, r.batch)))
	}
}

// none checks that nothing is known of the call of a row that is said to be of none.
func (m *model) none(b *messages.DeliveryBody) {
	r := m.service.row(b.EventID)
	if r.request != "" && m.streams.events.Age == 0 && !m.taken(r, b.EventID) && m.sender(r) {
		m.fault("not found", "a row is said to be of no request; %s", m.story(messages.BatchID(r.request, r.batch)))
	}
}

// ambiguous checks that a row can be of a call that has no other row of the person, beside its own.
func (m *model) ambiguous(b *messages.DeliveryBody) {
	r := m.service.row(b.EventID)
	for _, id := range b.Match.Candidates {
		if id == r.request {
			continue
		}
		calls, rows := 0, 0
		for number := range 4 {
			for n, c := range m.calls[messages.BatchID(id, number+1)] {
				for i, to := range c.to {
					if oldSecret.KeyOf(to) != oldSecret.KeyOf(r.to) && r.request != "" {
						continue
					}
					if calls++; n == 0 {
						rows += len(m.places[fmt.Sprintf("%s %d.%d", id, number+1, c.first+i)])
					}
				}
			}
		}
		if rows < calls {
			return
		}
	}
	m.fault("ambiguous of one", "a row of %q has the candidates %q, and the others have their rows", r.request, b.Match.Candidates)
}

// sender reports whether a row has the sender of its call: the service may write another, for bounces.
func (m *model) sender(r *realRow) bool {
	return slices.ContainsFunc(m.calls[messages.BatchID(r.request, r.batch)], func(c *realCall) bool {
		return c.reached.Equal(r.accepted) && (c.from == "" || oldSecret.KeyOf(c.from) == oldSecret.KeyOf(r.From))
	})
}

// summedUp checks that requests whose recipients all have a final row have their final summary.
func (m *model) summedUp() {
	for id, s := range m.sums {
		n := 0
		for _, state := range s.places {
			if state == messages.Delivered || state == messages.Bounced {
				n++
			}
		}
		if s.accepted == 0 || n != s.accepted || m.streams.events.Age > 0 || m.days.crowded {
			continue
		}
		if m.tally["summed up"]++; s.last == nil || !s.last.Final || s.last.Accepted != n || s.last.Delivered+s.last.Bounced != n {
			m.fault("not summed up", "%s has %d final rows, and its last summary is %+v", id, n, s.last)
		}
	}
}

// exact checks whose a row is that is said to be certainly of a request.
func (m *model) exact(id string, b *messages.DeliveryBody) {
	m.service.mu.Lock()
	defer m.service.mu.Unlock()
	r := m.service.byID[b.EventID]
	_, recipient, _ := strings.Cut(b.Recipient, ".")
	n, _ := strconv.Atoi(recipient)
	for _, c := range m.calls[messages.BatchID(id, b.Match.Batch)] {
		i := n - c.first
		if r.request == id && r.batch == b.Match.Batch && c.reached.Equal(r.accepted) && i >= 0 && i < len(c.to) &&
			oldSecret.KeyOf(c.to[i]) == oldSecret.KeyOf(r.to) {
			return
		}
	}
	if r.request == "" && m.excused(messages.BatchID(id, b.Match.Batch), r) {
		m.tally["excused exact"]++
		return
	}
	m.fault("not exact", "a row of %q accepted at %v is said to be of %s, batch %d, recipient %s; %s", r.request, r.accepted, id,
		b.Match.Batch, recipient, m.story(messages.BatchID(id, b.Match.Batch))+m.story(messages.BatchID(r.request, r.batch)))
}

// excused reports whether a row of another program looks like one of a batch: it is by the same sender, and was
// accepted in the very seconds of a call, give or take what the clock has drifted since.
func (m *model) excused(batch string, r *realRow) bool {
	off := time.Second + time.Duration(math.Abs(m.service.drift)*float64(time.Since(r.accepted)))
	for _, c := range m.calls[batch] {
		from, written := oldSecret.KeyOf(c.from), oldSecret.KeyOf(r.From)
		if r.accepted.After(c.begin.Add(-off)) && r.accepted.Before(c.ended.Add(off)) && (from == 0 || from == written) {
			return true
		}
	}
	return false
}

// proven checks that a batch was sent which rows prove to have been.
func (m *model) proven(id string, b messages.BatchEvidence) {
	batch := messages.BatchID(id, b.Batch)
	for _, c := range m.calls[batch] {
		if !c.reached.IsZero() && b.Seen > 0 {
			return
		}
	}
	m.service.mu.Lock()
	defer m.service.mu.Unlock()
	for _, r := range m.service.rows {
		if r.request == "" && m.excused(batch, r) {
			m.tally["excused proof"]++
			return
		}
	}
	m.fault("not sent", "%s", m.story(batch))
}

func (m *model) resolved(e messages.Event) {
	b := e.Body.(*messages.SendResolved)
	m.tally["resolved "+string(b.Outcome)]++
	if m.published["resolved "+e.ID]++; m.published["resolved "+e.ID] > 1 {
		m.fault("resolved twice", "%s", e.ID)
	}
	for _, batch := range b.Evidence.Batches {
		m.proven(e.ID, batch)
	}
}

// story tells what happened to a batch.
func (m *model) story(batch string) string {
	text := "\n" + batch + " at " + time.Now().Format(time.StampMilli) + ":"
	for _, c := range m.calls[batch] {
		text += "\n\tcall " + c.begin.Format(time.StampMilli) + " to " + c.ended.Format(time.StampMilli) + " by " + c.from
		if !c.reached.IsZero() {
			text += ", accepted " + c.reached.Format(time.StampMilli)
		}
	}
	for _, r := range m.service.rows {
		for _, c := range m.calls[batch] {
			if d := r.accepted.Sub(c.begin); d.Abs() < 20*time.Minute && strings.Contains(strings.Join(c.to, " "), r.to) {
				text += "\n\trow of " + r.request + " by " + r.From + " to " + r.To + ", accepted " + r.accepted.Format(time.StampMilli) +
					", created " + r.created.Format(time.StampMilli) + ", shown " + r.shown.Format(time.StampMilli)
				break
			}
		}
	}
	return text
}

// rest lets a poller read a log that behaves, until all is published, and checks that it is.
func (m *model) rest(watched time.Time) {
	m.service.mu.Lock()
	hidden := m.service.depth > 0
	m.service.pageManners = pageManners{order: m.service.order, takes: m.service.takes, fixed: m.service.fixed}
	m.service.mu.Unlock()
	ctx, stop := context.WithTimeout(m.Context(), 4*time.Hour)
	defer stop()
	m.poll(ctx, m.streams.poller(-1, stop, time.Millisecond), 50)
	m.summedUp()
	age := m.streams.deliveries.Age
	for _, r := range m.service.rows {
		id := text(idOf(r.Entry, statusIn(r.state(time.Now()))))
		changed := r.shown
		for _, s := range r.states {
			if s.since.Before(time.Now()) {
				changed = s.since
			}
		}
		switch {
		case r.CreatedAt.Before(m.since):
		case m.published[id] > 0, hidden, changed.After(time.Now().Add(-3 * time.Hour)), r.created.Before(watched), changed.Before(watched):
		case m.service.kept > 0 && !m.looked(changed, r.created.Add(m.service.kept)):
		case age > 0 && changed.Sub(r.created) > age-4*time.Hour:
		default:
			m.fault("never published", "the row created %v, shown %v, in state %s since %v", r.created, r.shown, r.state(time.Now()), changed)
		}
	}
}

// looked reports whether a poller had the time to see what was listed from a time to another.
func (m *model) looked(from, to time.Time) bool {
	for i := 0; i+1 < len(m.looks); i += 2 {
		if soonest(m.looks[i+1], to).Sub(slices.MaxFunc([]time.Time{m.looks[i], from}, time.Time.Compare)) > 2*time.Hour {
			return true
		}
	}
	return false
}
