package deliveries

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// pageOrder is the order in which pages show rows.
type pageOrder int

const (
	unordered pageOrder = iota
	newestFirst
	oldestFirst // which the sweeper takes for none
)

// realCall is a call that the mail consumer made, and what really became of it.
type realCall struct {
	from         string // "": the request names no sender
	to           []string
	first        int       // index of the first recipient in the request
	begin, until time.Time // as announced
	ended        time.Time // when its caller had left
	reached      time.Time // when the service accepted it; zero: never
}

// realRow is a row of the log, and what it is really of. Its times are by our clock.
type realRow struct {
	mail.Entry                     // as the log writes it
	of                             // whose it is
	accepted, created time.Time    // when the message was accepted, and when the row was made
	counted, shown    time.Time    // since when the totals count it, and pages show it
	states            []stateSince // in order
	place             uint64       // in a log without order
}

// of is a recipient of a request.
type of struct {
	request          string // "": of another program
	batch, recipient int
	to               string // as the request spells it
}

type stateSince struct {
	messages.State
	since time.Time
}

// state is that at a time.
func (r *realRow) state(at time.Time) messages.State {
	s := r.states[0].State
	for _, next := range r.states {
		if !next.since.After(at) {
			s = next.State
		}
	}
	return s
}

// rowManners are how rows come into the log.
type rowManners struct {
	spelled bool          // addresses and senders are spelled otherwise
	late    time.Duration // they are shown up to that late
	owed    time.Duration // some are counted in time and shown up to that late
	kept    time.Duration // they are shown for that long; 0: for ever
	opaque  bool          // some envelope_ids hold no time
	untimed bool          // none holds one
	retried bool          // rows change for days
}

// pageManners are how the log is read.
type pageManners struct {
	order  pageOrder
	empty  int           // one of that many pages is empty; 0: none
	depth  int           // rows beyond are never shown; 0: all are
	fixed  int           // rows of a page, whatever is requested; 0: what is requested
	silent bool          // pages do not say how long they are
	totals string        // how they lie
	takes  time.Duration // the longest answer
	fails  int           // one of that many answers is an error
}

// service is the email service. What it did is the truth.
type service struct {
	mu     sync.Mutex // guards what is below; not held while a read sleeps
	random *rand.Rand
	rowManners
	pageManners
	serviceClock
	rows    []*realRow
	byID    map[string]*realRow // by the ids of their states
	stalled []time.Time         // when the log begins to stall, and when it ends
	listing listing
}

// serviceClock is how the service's clock differs from ours.
type serviceClock struct {
	began time.Time
	ahead time.Duration
	drift float64 // by how much it runs faster
}

// listing is what the log shows until a time.
type listing struct {
	rows   []*realRow
	until  time.Time
	cached int // total
	fresh  time.Time
}

// clock is the service's time at one of ours.
func (s *serviceClock) clock(t time.Time) time.Time {
	return t.Add(s.ahead + time.Duration(s.drift*float64(t.Sub(s.began)))).Truncate(time.Millisecond)
}

func (s *service) upTo(d time.Duration) time.Duration {
	return time.Duration(s.random.Int64N(int64(d) + 1))
}

// accept takes a message at a time, of a call or of another program.
func (s *service) accept(at time.Time, c *realCall, request string, batch int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	envelope := fmt.Sprintf("%011x%07x", s.clock(at).UnixMilli(), s.random.IntN(1<<28))
	if s.opaque && (s.untimed || s.random.IntN(8) == 0) {
		envelope = fmt.Sprintf("q-%d", s.random.Uint64())
	}
	name := func(to string) string { return string(identity(nil, mail.Entry{EnvelopeID: envelope, To: to})) }
	named := map[string]int{} // recipients: each has an entry of its own, however it is spelled
	for i, to := range c.to {
		named[name(to)] = i
	}
	for i, to := range c.to {
		r := &realRow{of: of{request, batch, c.first + i, to}, accepted: at, created: at.Add(s.upTo(20 * time.Second)), place: s.random.Uint64()}
		if s.random.IntN(10) == 0 {
			r.created = at.Add(s.upTo(10 * time.Minute))
		}
		r.Entry = mail.Entry{CreatedAt: s.clock(r.created), EnvelopeID: envelope, To: to, From: cmp.Or(c.from, "default@service.test"),
			Raw: []byte(`{}`)}
		if s.spelled {
			r.To, r.From = s.spell(r.To, false), s.spell(r.From, true)
			if n, taken := named[name(r.To)]; taken && n != i {
				r.To = to
			}
			named[name(r.To)] = i
		}
		s.add(r)
	}
}

// row is the row that has an id in one of its states.
func (s *service) row(id string) *realRow {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

func (s *service) add(r *realRow) {
	r.shown = r.created
	if s.late > 0 && s.random.IntN(4) == 0 {
		r.shown = r.created.Add(s.upTo(s.late))
	}
	r.counted = r.shown
	if s.owed > 0 && (r.request != "" && s.random.IntN(5) == 0 || s.random.IntN(40) == 0) {
		r.shown = r.created.Add(s.upTo(s.owed))
	}
	for i := 0; i+1 < len(s.stalled); i += 2 {
		if r.shown.After(s.stalled[i]) && r.shown.Before(s.stalled[i+1]) {
			r.shown = s.stalled[i+1]
		}
		if r.counted.After(s.stalled[i]) && r.counted.Before(s.stalled[i+1]) {
			r.counted = s.stalled[i+1]
		}
	}
	r.states = []stateSince{{messages.Delivered, r.shown}}
	switch s.random.IntN(8) {
	case 0:
		r.states[0].State = messages.Bounced
	case 1, 2:
		r.states[0].State = messages.Deferred
		until := 3 * time.Hour
		if s.retried {
			until = 4 * 24 * time.Hour
		}
		r.states = append(r.states, stateSince{[]messages.State{messages.Delivered, messages.Bounced}[s.random.IntN(2)],
			r.shown.Add(s.upTo(until))})
	}
	s.rows = append(s.rows, r)
	for _, state := range r.states {
		s.byID[text(idOf(r.Entry, statusIn(state.State)))] = r
	}
	s.listing.until = time.Time{}
}

// spell writes an address in another way.
func (s *service) spell(address string, sender bool) string {
	at := strings.LastIndexByte(address, '@')
	local, domain := address[:at], address[at+1:]
	switch n := s.random.IntN(10); {
	case n == 0:
		return strings.ToLower(address)
	case n == 1:
		return strings.ToUpper(local) + "@" + strings.ToUpper(domain)
	case n == 2:
		return address + "."
	case n == 3:
		return `"` + local + `"@` + domain
	case n == 4:
		return "Some Body <" + address + ">"
	case n == 5:
		return local + "@" + strings.ReplaceAll(domain, "bücher", "xn--bcher-kva")
	case n == 6:
		return local + "@" + strings.ReplaceAll(domain, "xn--bcher-kva", "bücher")
	case n == 7 && sender:
		return fmt.Sprintf("bounces+%d@service.test", s.random.IntN(100))
	}
	return address
}

// list is what pages show now.
func (s *service) list(now time.Time) []*realRow {
	if now.Before(s.listing.until) {
		return s.listing.rows
	}
	rows, until := s.listing.rows[:0], now.Add(time.Hour)
	for _, r := range s.rows {
		gone := r.created.Add(s.kept)
		switch {
		case s.kept > 0 && !gone.After(now):
			continue
		case r.shown.After(now):
			until = soonest(until, r.shown)
			continue
		case s.kept > 0:
			until = soonest(until, gone)
		}
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b *realRow) int {
		switch s.order {
		case newestFirst:
			return b.created.Compare(a.created)
		case oldestFirst:
			return a.created.Compare(b.created)
		}
		return cmp.Compare(a.place, b.place)
	})
	s.listing.rows, s.listing.until = rows, until
	return rows
}

// total is what a page says.
func (s *service) total(now time.Time) int {
	n := 0
	for _, r := range s.rows {
		if !r.counted.After(now) && (s.kept == 0 || r.created.Add(s.kept).After(now)) {
			n++
		}
	}
	switch s.totals {
	case "none":
		return 0
	case "capped":
		return min(n, s.depth)
	case "too low":
		return max(0, n-7)
	case "too high":
		return n + 90
	case "cached":
		if now.Before(s.listing.fresh) {
			return s.listing.cached
		}
		s.listing.cached, s.listing.fresh = n, now.Add(10*time.Minute)
	}
	return n
}

// page answers like the service's client.
func (s *service) page(ctx context.Context, number, limit int) (p mail.LogPage, err error) {
	s.mu.Lock()
	before, after := s.upTo(s.takes/2), s.upTo(s.takes/2)
	failed := s.fails > 0 && s.random.IntN(s.fails) == 0
	s.mu.Unlock()
	time.Sleep(before)
	defer time.Sleep(after)
	if ctx.Err() != nil {
		return p, ctx.Err()
	}
	if failed {
		return p, &clients.Error{Fate: clients.Busy, Status: 503}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	rows := s.list(now)
	if s.fixed > 0 {
		limit = s.fixed
	}
	p = mail.LogPage{TotalRecord: s.total(now), Limit: limit, Date: s.clock(now).Truncate(time.Second)}
	if s.silent {
		p.Limit = 0
	}
	if s.depth > 0 {
		rows = rows[:min(len(rows), s.depth)]
	}
	if s.empty > 0 && s.random.IntN(s.empty) == 0 {
		return p, nil
	}
	for i := (number - 1) * limit; i < min(number*limit, len(rows)); i++ {
		e := rows[i].Entry
		state := rows[i].state(now)
		e.Delivered, e.Response = state == messages.Delivered, replies[state]
		p.Entries = append(p.Entries, e)
	}
	return p, nil
}

var replies = map[messages.State]string{messages.Delivered: "250 2.0.0 OK", messages.Deferred: "451 4.7.1 later",
	messages.Bounced: "550 5.1.1 no"}

func soonest(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }
