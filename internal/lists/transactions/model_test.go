package transactions

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/history"
	"errand/internal/lists/sweep"
	"errand/internal/retry"
	"errand/internal/sandbox/devkit/inshort"
	"errand/pkg/messages"
)

var modelSeeds = flag.Uint64("transactions.seeds", 1, "lists of each order that are drawn at random")

// The list grows, shifts and changes while it is read, shows pages of 25 records whatever is asked for, one id for an
// application and its deduction, order numbers in any spelling, some of two requests, and wrong totals; pollers crash
// at any point, sometimes there are two of them, and weeks pass without any: each state of each record that was shown
// long enough is published once, and under a request if no other one has its order number.
func TestEachStateOfEachRecordIsPublishedOnceUnderItsRequest(t *testing.T) {
	for order, name := range map[pageOrder]string{unordered: "no order", newestFirst: "newest first",
		oldestFirst: "oldest first"} {
		if inshort.Asked(t) && order != newestFirst {
			continue
		}
		for seed := range *modelSeeds {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { newModel(t, order, seed).run() })
			})
		}
	}
}

// model is the service, what was published of it, and the requests that were made.
type model struct {
	*testing.T
	random                      *rand.Rand
	service                     *service
	stream                      *stream
	requests                    []string               // order numbers, by the number of the request
	refused                     []string               // order numbers of refused requests
	events                      map[string][]published // by record
	shares                      map[messages.Confidence]int
	returns, lookUps, published int
	ran                         []span
	began                       time.Time // of the pollers at work that will not crash; zero: there are none
}

// span is a time in which a poller was at work and did not crash.
type span struct{ from, to time.Time }

const (
	roundEvery = 30 * time.Minute
	soon       = 4 * roundEvery // a state that lasts as long while a poller is at work is seen
	firstLook  = 3 * roundEvery // until every record was looked at, though some came and went meanwhile
)

func newModel(t *testing.T, order pageOrder, seed uint64) *model {
	m := &model{T: t, random: rand.New(rand.NewPCG(seed, uint64(order))), stream: &stream{}, events: map[string][]published{},
		shares: map[messages.Confidence]int{}}
	m.service = &service{mu: &m.stream.mu, order: order, random: rand.New(rand.NewPCG(uint64(order), seed))}
	m.stream.matched, m.stream.published = m.judge, m.count
	m.stream.Age = []time.Duration{0, 72 * time.Hour, 30 * 24 * time.Hour}[(int(seed)+int(order))%3]
	wrong, silent := []int{0, -7, 60}[m.random.IntN(3)], m.random.IntN(4) == 0
	m.service.total = func(n int) int {
		if silent {
			return 0
		}
		return max(0, n+wrong)
	}
	m.service.silent = m.random.IntN(2) == 0
	m.service.busy = m.busy
	for range 30 {
		m.enroll()
		m.other()
	}
	return m
}

func (m *model) run() {
	for life := range 5 {
		m.live(time.Duration(30+m.random.IntN(240))*time.Minute, 1+m.random.IntN(2), life%3 == 1)
		away := []time.Duration{0, time.Minute, 10 * time.Hour, 50 * time.Hour, 31 * 24 * time.Hour}[m.random.IntN(5)]
		for range 5 {
			time.Sleep(away / 5)
			m.happen()
		}
	}
	m.service.busy = nil
	m.live(soon, 1, false)
	for _, t := range slices.Concat(m.service.rows, m.service.gone) {
		m.check(t)
		delete(m.events, t.key())
	}
	for key, events := range m.events {
		m.Errorf("%s, which never was, is published: %v", key, events)
	}
	m.Logf("events are kept for %v: %d records, %d gone, %d pages, %d look-ups, %d events, %d of states that returned, matches %v",
		m.stream.Age, len(m.service.rows), len(m.service.gone), m.service.pages, m.lookUps, m.published, m.returns, m.shares)
	if m.shares[messages.MatchExact] == 0 || m.shares[messages.MatchNone] == 0 || m.shares[messages.MatchAmbiguous] == 0 {
		m.Error("not all kinds of matches are seen")
	}
}

// shown reports whether a poller was at work for long enough while a state lasted.
func (m *model) shown(from, to time.Time) bool {
	return slices.ContainsFunc(m.ran, func(s span) bool {
		begin, end := s.from, s.to
		if from.After(begin) {
			begin = from
		}
		if to.Before(end) {
			end = to
		}
		return end.Sub(begin) >= soon
	})
}

// live has pollers at work for a while, in which the list changes.
func (m *model) live(while time.Duration, pollers int, crash bool) {
	began := time.Now()
	m.excuse()
	m.change(func() {
		if m.began = began; crash {
			m.began = time.Time{}
		}
	})
	ctx, stop := context.WithTimeout(m.Context(), while)
	defer stop()
	var work sync.WaitGroup
	for range pollers {
		p := m.stream.poller(-1, stop)
		if crash {
			m.change(func() { p.Left = m.random.IntN(60) })
		}
		list := New(Config{Read: m.service.page, Store: p, Times: local,
			Published: func(messages.TransactionKind, messages.Confidence) {}, Duplicate: func(string) {},
			Last: func(context.Context, messages.Operation, string) (last history.Entry, err error) { return last, nil }})
		s := &sweep.Sweeper[Record]{List: list, Sink: list, Lag: func(time.Duration) {}, Leading: func(bool) {},
			Policy: retry.Policy{First: 200 * time.Millisecond, Max: 10 * time.Second,
				Tries: 5}, Logger: zerolog.Nop(),
			Settings: sweep.Settings{Name: "list", Interval: 5 * time.Minute, Limit: perPage, Overlap: 15 * time.Minute, Recent: time.Minute,
				RoundEvery: roundEvery}}
		work.Go(func() {
			s.Run(ctx)
		})
		m.change(func() { m.service.underWay = func(shown []*transaction) { m.lookUp(ctx, &work, s, list, shown) } })
	}
	for ctx.Err() == nil && m.service.busy != nil {
		m.happen()
		var pause time.Duration
		m.change(func() { pause = time.Duration(m.random.IntN(40*60)) * time.Second })
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	work.Wait()
	m.change(func() { m.began = time.Time{} })
	if !crash {
		m.ran = append(m.ran, span{began, time.Now()})
	}
}

// lookUp has a record of a page looked up, and change before or while the answer is on its way. Some answers take minutes.
func (m *model) lookUp(ctx context.Context, work *sync.WaitGroup, s *sweep.Sweeper[Record], l *List, shown []*transaction) {
	var pauses [4]time.Duration
	m.change(func() {
		for i := range pauses {
			pauses[i] = time.Duration(m.random.IntN(40)) * time.Millisecond
		}
		if len(shown) == 0 || m.random.IntN(8) > 0 {
			return
		}
		t, when := shown[m.random.IntN(len(shown))], m.random.IntN(4)
		change := func() {
			if m.service.busy != nil && t.left.IsZero() {
				m.service.change(t, m.excused(t))
			}
		}
		m.lookUps++
		work.Go(func() {
			time.Sleep(pauses[0])
			asked := time.Now()
			time.Sleep(pauses[1])
			records := m.service.lookUp(t.order)
			if when == 0 {
				m.change(change)
				pauses[2] *= 10_000
			}
			time.Sleep(pauses[2])
			_ = s.Publish(ctx, l.rows(records, asked, messages.ByLookUp))
		})
		if when == 1 {
			change()
		}
	})
	time.Sleep(2 * pauses[3])
}

// kept is since when everything that was published is kept, as far as the list needs it.
func (m *model) kept() time.Time {
	return time.Now().Add(max(time.Hour, m.stream.Age/60) - m.stream.Age)
}

// excuse notes what a poller that begins cannot know: whether a state of a record that is older than
// the events that are kept was published.
func (m *model) excuse() {
	m.change(func() {
		for _, t := range m.service.rows {
			if m.stream.Age > 0 && t.created.Before(m.kept()) {
				t.states[len(t.states)-1].excused = true
			}
		}
	})
}

func (m *model) change(f func()) {
	m.service.mu.Lock()
	defer m.service.mu.Unlock()
	f()
}

// happen is what happens at the service while nobody reads a page.
func (m *model) happen() {
	m.change(func() {
		for range max(0, min(m.service.random.IntN(3), maxRows-len(m.service.rows))) {
			m.enroll()
			m.other()
		}
		for range m.service.random.IntN(24) {
			m.goOn()
		}
		for range m.service.random.IntN(3) {
			m.deduct()
		}
	})
}

// maxRows is about how many records there are: one that was removed may be followed by another.
const maxRows = 110

// busy is what happens between two pages.
func (m *model) busy() {
	if len(m.service.rows) > maxRows {
		m.service.remove(m.service.any())
		return
	}
	switch m.service.random.IntN(200) {
	case 0:
		for range m.service.random.IntN(perPage) {
			m.other()
		}
	case 1, 2:
		m.enroll()
	case 3, 4:
		m.goOn()
	case 5:
		m.deduct()
	case 6, 7:
		m.service.remove(m.service.any())
	}
}

// enroll makes a request, or another one with an order number that was used before, by a request
// that is known, or by one whose events are no longer kept.
func (m *model) enroll() {
	n := len(m.requests)
	order := fmt.Sprintf("DD-%d", n)
	if n > 0 && m.service.random.IntN(6) == 0 {
		order = m.requests[m.service.random.IntN(n)]
	}
	m.requests = append(m.requests, order)
	id := fmt.Sprint("r", n)
	for range 1 + m.service.random.IntN(2) {
		m.stream.announces(id, order)
	}
	switch m.service.random.IntN(8) {
	case 0: // and another request takes the order number
		m.stream.fails(id, order)
		m.refused = append(m.refused, order)
		id = fmt.Sprint("again-", id)
		m.stream.announces(id, order)
	case 1: // and is corrected
		m.stream.fails(id, order)
		m.refused = append(m.refused, order)
		order += "-corrected"
		m.requests[n] = order
		m.stream.announces(id, order)
	}
	t := &transaction{id: fmt.Sprint("T", m.service.made), kind: "Enrollment", order: order, own: order, request: id,
		bare: m.service.random.IntN(8) == 0}
	m.service.add(t, "new")
}

// other is another program's enrollment.
func (m *model) other() {
	order := fmt.Sprint("ELSE-", m.service.made)
	if n := len(m.refused); n > 0 && m.service.random.IntN(4) == 0 && !slices.Contains(m.requests, m.refused[n-1]) {
		order = m.refused[n-1]
	}
	m.service.add(&transaction{id: fmt.Sprint("T", m.service.made), kind: "Enrollment", order: order, own: order}, "new")
}

// goOn has some record change its state. One that is older than the events that are kept is known
// only to those who have looked at it.
func (m *model) goOn() {
	t := m.service.any()
	m.service.change(t, m.excused(t))
}

func (m *model) excused(t *transaction) bool {
	return m.stream.Age > 0 && t.created.Before(m.kept().Add(soon)) && (m.began.IsZero() || time.Since(m.began) < firstLook)
}

// deduct makes a deduction on a mandate that was approved, and whose order number no later request
// has: it could not be told from that one's.
func (m *model) deduct() {
	t := m.service.any()
	if !strings.HasPrefix(t.id, "T") || t.kind != "Enrollment" || t.is().status != "approved" ||
		slices.Contains(m.requests[m.number(t)+1:], t.order) {
		return
	}
	d := &transaction{id: fmt.Sprint("D", m.service.made), kind: "Deduction", order: t.order, own: t.order +
		fmt.Sprint("-", m.service.random.IntN(3)), request: t.request, bare: m.service.random.IntN(8) == 0}
	twin := "D" + t.id
	if d.id = t.id; slices.ContainsFunc(slices.Concat(m.service.rows, m.service.gone),
		func(o *transaction) bool { return o.kind == "Deduction" && o.id == t.id }) {
		d.id = fmt.Sprint(twin, "-", m.service.made)
	}
	m.service.add(d, []string{"approved", "failed", "unmatched"}[m.service.random.IntN(3)])
}

// number is the number of a record's request; -1 means that it is another program's.
func (m *model) number(t *transaction) int {
	n := -1
	_, _ = fmt.Sscanf(strings.TrimPrefix(t.request, "again-"), "r%d", &n)
	return n
}
