package deliveries

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/lists/sweep"
	"errand/internal/retry"
	"errand/internal/sandbox/devkit/inshort"
	"errand/internal/wire/mailkey"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

var modelSeeds = flag.Uint64("deliveries.seeds", 1, "logs of each kind that are drawn at random")

// model is an email service, the mail consumer's requests to it, and the pollers of its log.
type model struct {
	*testing.T
	random    *rand.Rand
	service   *service
	streams   *streams
	calls     map[string][]*realCall // by batch; guarded by streams.mu, as what follows is
	published map[string]int         // events by the id of the row's state, or by their note
	tally     map[string]int
	places    map[string]map[string]bool // rows published at a place
	sums      map[string]*requestSum
	days      days
	twins     sync.WaitGroup // requests that others caused
	looks     []time.Time    // when a poller began to look, and when it ended
	since     time.Time      // how far back the last poller publishes that found no mark
}

// days are how a time goes by.
type days struct {
	long     time.Duration
	requests int
	giveUp   time.Duration
	away     []time.Duration // of pollers
	dead     time.Duration   // of workers, at most
	crowded  bool            // others write to the recipients of a call meanwhile
	alone    bool            // no other program writes to them
	interval time.Duration
	since    func() time.Time // when a first poller starts; nil: the whole log is published
}

var modelKinds = map[string]func(m *model){
	"plain":       func(*model) {},
	"spelled":     func(m *model) { m.service.spelled = true },
	"late":        func(m *model) { m.service.late = 30 * time.Minute },
	"owed":        func(m *model) { m.service.owed = 5 * time.Hour },
	"stalls":      func(m *model) { m.stalls() },
	"empty pages": func(m *model) { m.service.empty, m.service.fails = 5, 20 },
	"depth":       func(m *model) { m.service.depth = 60 + m.random.IntN(100) },
	"capped totals": func(m *model) {
		m.service.order, m.service.depth, m.service.totals = newestFirst, 60+m.random.IntN(100), "capped"
	},
	"totals":       func(m *model) { m.service.totals = []string{"none", "too low", "too high", "cached"}[m.random.IntN(4)] },
	"fixed pages":  func(m *model) { m.service.fixed, m.service.silent = 10+m.random.IntN(60), m.random.IntN(2) == 0 },
	"unordered":    func(m *model) { m.service.order = unordered },
	"oldest first": func(m *model) { m.service.order = oldestFirst },
	"retention": func(m *model) {
		m.service.kept = time.Duration(2+m.random.IntN(6)) * time.Hour
		m.days.away = append(m.days.away, 5*time.Hour, 12*time.Hour)
	},
	"aged out": func(m *model) {
		m.streams.deliveries.Age, m.streams.events.Age = 12*time.Hour, 12*time.Hour
		m.days.long, m.days.dead, m.days.giveUp, m.days.interval = 60*time.Hour, 18*time.Hour, 30*time.Hour, 10*time.Minute
		m.days.away = append(m.days.away, 5*time.Hour, 15*time.Hour)
		m.service.retried = true
	},
	"clock": func(m *model) {
		m.service.ahead = time.Duration(m.random.IntN(80_000)-40_000) * time.Millisecond
		m.service.drift = float64(m.random.IntN(200)-100) / 1e6
		m.service.takes = []time.Duration{100 * time.Millisecond, 900 * time.Millisecond}[m.random.IntN(2)]
		m.days.crowded = true
	},
	"since": func(m *model) {
		since := time.Duration(m.random.IntN(120)-60) * time.Minute
		m.days.since = func() time.Time { return time.Now().Add(min(0, since)) }
		m.service.ahead = time.Duration(m.random.IntN(600)-500) * time.Second
	},
	"untimed": func(m *model) { // each person has the row of a mail before the next mail, but nothing says when it was accepted
		m.service.opaque, m.service.untimed, m.days.alone, m.service.late = true, true, true, 0
		m.days.long, m.days.requests, m.days.interval = 4*24*time.Hour, 20, 10*time.Minute
	},
	"crowded": func(m *model) { m.days.crowded, m.service.opaque = true, m.random.IntN(2) == 0 },
	"month": func(m *model) {
		m.days.long, m.days.interval, m.days.requests = 30*24*time.Hour, time.Hour, 40
		m.days.away = append(m.days.away, 20*time.Hour, 60*time.Hour)
		m.service.retried, m.service.kept = true, 5*24*time.Hour
		m.streams.deliveries.Age, m.streams.events.Age = 10*24*time.Hour, 10*24*time.Hour
	},
}

// mixed is a log of several kinds at once.
const mixed = "mixed"

// The log spells, delays, hides, counts and orders as it likes, calls of unknown fate were
// or were not carried out, pollers are killed and away: no request is resolved that was not sent,
// no row is certainly of a request that it is not of, and each state is published once.
func TestNothingPublishedIsUntrue(t *testing.T) {
	all := map[string]int{}
	for _, name := range append(slices.Sorted(maps.Keys(modelKinds)), mixed) {
		if inshort.Asked(t) && slices.Contains([]string{"month", "aged out", "retention", "totals", "unordered", "oldest first", "empty pages"},
			name) {
			continue // days of virtual time, or what internal/lists/sweep's model has too
		}
		for seed := range *modelSeeds {
			t.Run(fmt.Sprintf("%s %d", name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newModel(t, name, seed)
					m.run()
					for what, n := range m.tally {
						all[what] += n
						all[name+": "+what] += n
					}
				})
			})
		}
	}
	for _, what := range slices.Sorted(maps.Keys(all)) {
		t.Logf("%6d %s", all[what], what)
	}
	for _, what := range []string{"exact", "unique", "ambiguous", "resolved accepted"} {
		if all[what] == 0 && !(inshort.Asked(t) && strings.HasPrefix(what, "resolved ")) { // few logs, few requests that end uncertain
			t.Errorf("nothing was %s: the model shows nothing", what)
		}
	}
}

func newModel(t *testing.T, kind string, seed uint64) *model {
	var hash uint64
	for _, c := range kind {
		hash = hash*31 + uint64(c)
	}
	random := rand.New(rand.NewPCG(hash, seed))
	m := &model{T: t, random: random, calls: map[string][]*realCall{}, published: map[string]int{}, tally: map[string]int{},
		places: map[string]map[string]bool{}, sums: map[string]*requestSum{}}
	m.streams = &streams{last: map[string]uint64{}, check: m.check, resolved: m.resolved}
	m.service = &service{random: rand.New(rand.NewPCG(seed, hash)), byID: map[string]*realRow{},
		serviceClock: serviceClock{time.Now(), time.Duration(random.IntN(800)-400) * time.Millisecond,
			0}, rowManners: rowManners{late: 5 * time.Minute},
		pageManners: pageManners{order: []pageOrder{newestFirst, newestFirst, newestFirst, oldestFirst,
			unordered}[random.IntN(5)], takes: 300 * time.Millisecond}}
	m.days = days{long: time.Duration(6+random.IntN(8)) * time.Hour, requests: 30, giveUp: 6 * time.Hour, dead: 2 * time.Hour,
		away: []time.Duration{0, 0, time.Minute, 20 * time.Minute, 2 * time.Hour}, interval: time.Duration(2+random.IntN(5)) * time.Minute}
	if kind != mixed {
		modelKinds[kind](m)
		return m
	}
	for _, name := range slices.Sorted(maps.Keys(modelKinds)) {
		if name != "month" && random.IntN(4) == 0 {
			modelKinds[name](m)
		}
	}
	// Nobody can know of rows that are neither shown nor counted: for ever, or for hours.
	if m.service.depth > 0 && m.service.totals != "" {
		m.service.order = newestFirst
	}
	if m.service.totals == "none" || m.service.totals == "capped" {
		m.service.owed = 0
	}
	return m
}

func (m *model) stalls() {
	at := time.Now().Add(50 * time.Hour)
	for range 4 {
		at = at.Add(m.service.upTo(4 * time.Hour))
		m.service.stalled = append(m.service.stalled, at)
		at = at.Add(m.service.upTo(5 * time.Hour))
		m.service.stalled = append(m.service.stalled, at)
	}
}

// run lets the days go by.
func (m *model) run() {
	began := time.Now()
	other := rand.New(rand.NewPCG(m.random.Uint64(), 1))
	time.Sleep(48 * time.Hour)
	for range 30 + m.random.IntN(100) { // what was sent before anybody watched
		m.foreign(other, began.Add(m.service.upTo(48*time.Hour)))
	}
	ctx, stop := context.WithCancel(m.Context())
	defer stop()
	var requests, others sync.WaitGroup
	others.Go(func() {
		pace := m.days.long / time.Duration(60+other.IntN(100))
		for ctx.Err() == nil {
			retry.Pause(ctx, time.Duration(other.ExpFloat64()*float64(pace)))
			m.foreign(other, time.Now())
		}
	})
	requests.Go(func() { time.Sleep(m.days.long) })
	for n := range m.days.requests {
		random, at := rand.New(rand.NewPCG(m.random.Uint64(), 2)), time.Duration(m.random.Int64N(int64(m.days.long)))
		requests.Go(func() {
			time.Sleep(at)
			m.newSending(fmt.Sprint("r", n), random).run()
		})
	}
	var watched time.Time
	others.Go(func() { watched = m.lives(ctx) })
	requests.Wait()
	m.twins.Wait()
	stop()
	others.Wait()
	m.rest(watched)
}

// foreign is a mail of another program of the account.
func (m *model) foreign(random *rand.Rand, at time.Time) {
	from := slices.Concat(modelSenders[:2], otherSenders, otherSenders)[random.IntN(6)]
	to := fmt.Sprintf("p%d@elsewhere.test", random.IntN(30))
	if random.IntN(3) == 0 && !m.days.alone {
		to = modelPeople[random.IntN(len(modelPeople))]
	}
	m.service.accept(at, &realCall{from: from, to: []string{to}}, "", 0)
}

// crowd lets others write to the recipients of a call.
func (r *sending) crowd(b *sendingBatch, c *realCall) {
	if !r.days.crowded || !r.chance(2) {
		return
	}
	to := b.to[:1]
	switch r.random.IntN(4) {
	case 0: // another program, in the same second, by another sender
		if r.from != "" {
			r.service.accept(c.begin.Add(r.upTo(c.ended.Sub(c.begin))), &realCall{from: otherSenders[0], to: to}, "", 0)
		}
	case 1: // by the same one, seconds or minutes later
		r.service.accept(c.ended.Add(3*time.Second+r.upTo([]time.Duration{5 * time.Second, 20 * time.Minute}[r.random.IntN(2)])),
			&realCall{from: r.from, to: to}, "", 0)
	case 2: // another account's request, at the same time
		if !strings.Contains(r.id, "-twin") {
			twin := r.newSending(fmt.Sprintf("%s-twin%d", r.id, r.random.IntN(1e9)), rand.New(rand.NewPCG(r.random.Uint64(), 3)))
			twin.batches = []*sendingBatch{{number: 1, to: to}}
			r.twins.Go(twin.run)
		}
	case 3: // likewise, by the same sender, seconds later
		if !strings.Contains(r.id, "-twin") {
			twin := r.newSending(fmt.Sprintf("%s-twin%d", r.id, r.random.IntN(1e9)), rand.New(rand.NewPCG(r.random.Uint64(), 3)))
			twin.batches, twin.from = []*sendingBatch{{number: 1, to: to}}, r.from
			wait := r.upTo(8 * time.Second)
			r.twins.Go(func() {
				time.Sleep(wait)
				twin.run()
			})
		}
	}
}

// lives lets pollers live and die until ctx ends. It returns since when no state can have
// come and gone unseen, or have aged out.
func (m *model) lives(ctx context.Context) (watched time.Time) {
	last, shortest := time.Now(), min(cmp.Or(m.streams.deliveries.Age, m.days.long), cmp.Or(m.service.kept, m.days.long))
	for ctx.Err() == nil {
		began, killed := time.Now(), true
		life, stop := context.WithTimeout(ctx, time.Duration(1+m.random.IntN(int(m.days.long/time.Minute)/4))*time.Minute)
		var pollers sync.WaitGroup
		for range 1 + m.random.IntN(2) {
			own, kill := context.WithCancel(life)
			p := m.streams.poller(-1, kill, time.Duration(1+m.random.IntN(20))*time.Millisecond)
			if m.random.IntN(3) == 0 {
				p.Left = m.random.IntN(40)
			}
			killed = killed && p.Left >= 0
			limit := []int{20, 50}[m.random.IntN(2)]
			pollers.Go(func() {
				defer kill()
				m.poll(own, p, limit)
			})
		}
		pollers.Wait()
		stop()
		if !killed && time.Since(began) > 2*time.Hour { // the whole log was read
			if began.Sub(last) > shortest-4*time.Hour {
				watched = began
			}
			last = time.Now()
			m.looks = append(m.looks, began, last)
		}
		retry.Pause(ctx, m.days.away[m.random.IntN(len(m.days.away))])
	}
	if time.Since(last) > shortest-4*time.Hour {
		watched = time.Now()
	}
	return watched
}

// poll is the life of one process.
func (m *model) poll(ctx context.Context, p *poller, limit int) {
	log := New(Config{Read: m.service.page, Store: p, Published: func(messages.State, messages.Confidence) {},
		ReportAfter: 72 * time.Hour, Secrets: []*mailkey.Secret{oldSecret}})
	s := &sweep.Sweeper[mail.Entry]{List: log, Sink: log, Lag: func(time.Duration) {}, Leading: func(bool) {},
		Policy: retry.Policy{First: 200 * time.Millisecond, Max: 10 * time.Second,
			Tries: 5}, Logger: zerolog.Nop(),
		Settings: sweep.Settings{Name: "log", Interval: m.days.interval, Limit: limit, Overlap: 15 * time.Minute}}
	if m.days.since != nil {
		s.Since = m.days.since()
		if mark, _ := p.LastMark(ctx); mark.At.IsZero() { // those before were killed too soon
			m.streams.mu.Lock()
			m.since = s.Since
			m.streams.mu.Unlock()
		}
	}
	s.Run(ctx)
}
