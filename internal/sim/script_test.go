package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// script is all that is decided before a history begins. What is drawn while it runs hangs on Seed.
type script struct {
	Seed        uint64
	Mail        bool // messages and the account; else enrollments and listings
	Replicas    int
	Concurrency int
	Rate        float64 // calls a second of a replica; 0 means no limit
	Parallel    int     // batches of a message at once
	Tries       int
	GiveUp      span
	Kept        span // events' age; 0 means for ever
	Others      span // between two records of others in the list; 0 means no such records
	PerPage     int
	UTC         bool // the list's times are in UTC, not in the configured zone
	Resolve     bool // the resolver runs
	Lanes       bool // beside the default one there is bulk
	Bounces     bool // mail bounces from some addresses
	Requests    []spec
	Steps       []step
}

// spec is a request.
type spec struct {
	ID        string
	Kind      string // "", or read: a listing or the account
	ByHeader  bool   // its id is its Nats-Msg-Id
	To        int    // recipients
	OnUnknown string
	GiveUpAt  span   // from the beginning of the history; 0 means no such time
	Poison    string // the weather that each of its calls meets
	Lane      string
	NotBefore span // from the beginning of the history; 0 means no such time
}

// step is one thing that happens.
type step struct {
	At  span
	Do  string // a verb of (*world).do, or weather
	Of  string // request, replica or kind of weather
	N   int
	For span
	P   float64 `json:",omitempty"`
}

// span is a time.Duration that is written as text.
type span time.Duration

func (s span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }
func (s *span) UnmarshalText(b []byte) error {
	d, err := time.ParseDuration(string(b))
	*s = span(d)
	return err
}
func (s span) String() string { return time.Duration(s).String() }

// dice draws a script.
type dice struct{ *rand.Rand }

func (d dice) chance(p float64) bool { return d.Float64() < p }

func (d dice) time(most time.Duration) span { return span(d.Int64N(int64(most))) }

// log is a time that is as likely to be short as long.
func (d dice) log(least, most time.Duration) span {
	for t := least; ; t *= 4 {
		if t >= most || d.chance(0.4) {
			return span(t) + d.time(min(t, most))
		}
	}
}

func one[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

// draw makes the script of a seed.
func draw(seed uint64) *script {
	d := dice{rand.New(rand.NewPCG(seed, 22))}
	s := &script{Seed: seed, Mail: d.chance(0.55), Replicas: one(d, 1, 2, 2, 3), Concurrency: one(d, 2, 2, 3, 4), Parallel: one(d, 1, 2, 4),
		Tries: one(d, 1, 2, 3, 5), GiveUp: one(d, span(20*time.Minute), span(2*time.Hour), span(24*time.Hour)),
		Others: one(d, 0, span(5*time.Second), span(40*time.Second), span(10*time.Minute)), PerPage: one(d, 3, 25), UTC: d.chance(0.2),
		Resolve: d.chance(0.04), Kept: one(d, 0, 0, span(7*24*time.Hour))}
	if d.chance(0.4) {
		s.Rate = one(d, 0.03, 0.1, 0.5, 2)
	}
	horizon := time.Duration(d.log(2*time.Minute, time.Hour))
	d.requests(s, horizon)
	for range one(d, 0, 1, 2, 2, 3, 4) {
		s.Steps = append(s.Steps, d.weather(s, horizon))
	}
	for range one(d, 0, 1, 2, 3, 5) {
		s.Steps = append(s.Steps, d.trouble(s, horizon))
	}
	dice{rand.New(rand.NewPCG(seed, 23))}.lanes(s, horizon)
	s.Bounces = s.Mail && dice{rand.New(rand.NewPCG(seed, 24))}.chance(0.4)
	slices.SortStableFunc(s.Steps, func(a, b step) int { return cmp.Compare(a.At, b.At) })
	return s
}

// lanes draws which requests are for a lane, and which for later.
func (d dice) lanes(s *script, horizon time.Duration) {
	if s.Lanes = d.chance(0.3); s.Lanes {
		s.Concurrency = max(s.Concurrency, 3)
	}
	for i := range s.Requests {
		r := &s.Requests[i]
		if r.Kind == "read" {
			continue
		}
		if s.Lanes {
			r.Lane = one(d, "", "bulk")
		}
		if d.chance(0.15) {
			r.NotBefore = d.time(horizon)
		}
	}
}

// requests draws who publishes what, and what people do about it.
func (d dice) requests(s *script, horizon time.Duration) {
	crowd := d.chance(0.1)
	for i := range one(d, 1, 1, 2, 3) {
		d.request(s, spec{ID: fmt.Sprint("r", i+1)}, horizon, true)
	}
	if crowd {
		poison := one(d, "", refuses, error500)
		for i := range 3 + d.IntN(10) {
			r := spec{ID: fmt.Sprint("c", i+1)}
			if i < s.Concurrency*2 {
				r.Poison = poison
			}
			if d.chance(0.2) {
				r.Kind = "read"
			}
			d.request(s, r, horizon, false)
		}
	}
}

func (d dice) request(s *script, r spec, horizon time.Duration, people bool) {
	if s.Mail {
		r.To = one(d, 1, 2, 4, 6, 9, 12)
	}
	if d.chance(0.3) {
		r.OnUnknown = one(d, "report", map[bool]string{true: "resend", false: "retry"}[s.Mail])
	}
	if d.chance(0.2) {
		r.GiveUpAt = span(horizon) + one(d, span(time.Minute), span(time.Hour), span(5*24*time.Hour), span(5*24*time.Hour))
		if time.Duration(r.GiveUpAt) > 24*time.Hour && d.chance(0.5) { // it becomes invalid
			s.Steps = append(s.Steps, step{At: d.time(horizon), Do: "age", For: span(3 * 24 * time.Hour)})
		}
	}
	r.ByHeader = d.chance(0.1)
	if people && d.chance(0.08) {
		r.Poison = one(d, error500, refuses, hangs, held)
	}
	s.Requests = append(s.Requests, r)
	at := d.time(horizon / 2)
	do := func(what string, n int, after time.Duration) {
		at += d.log(time.Second, after)
		s.Steps = append(s.Steps, step{At: at, Do: what, Of: r.ID, N: n, For: d.log(time.Second, 10*time.Minute)})
	}
	do("publish", 0, time.Second)
	if !people {
		return
	}
	contents := 0
	for range one(d, 0, 1, 2, 3, 4) {
		switch d.IntN(9) {
		case 0, 1:
			do("publish", contents, 10*time.Minute) // a repeat
		case 2, 3:
			contents = 1 - contents
			do("publish", contents, 10*time.Minute) // a correction, perhaps
		case 4:
			do("cancel", 0, 5*time.Minute)
		case 5, 6, 7:
			do("redrive", d.IntN(8), 10*time.Minute)
			if plan := s.Steps[len(s.Steps)-1]; d.chance(0.3) { // while she thinks
				s.Steps = append(s.Steps, step{At: plan.At + d.time(time.Duration(plan.For)), Do: one(d, "purge", "purge", "publish"), Of: r.ID})
			}
		case 8:
			do(one(d, "erase", "purge", "purge"), d.IntN(3), 10*time.Minute)
		}
	}
}

// weather draws what goes wrong for a while.
func (d dice) weather(s *script, horizon time.Duration) step {
	kinds := []string{slowNATS, lostAcks, lagging, eventsFull, lettersFull, busy, busy, retryAfter, error500, error500, hangs, hangs, cuts,
		held, refuses, unreachable, unreadable, slowService, newerProgram}
	if s.Mail {
		kinds = append(kinds, shortCount, refuses, refuses)
	} else {
		kinds = append(kinds, listFails, listHidden, listWide, listLate, listHidden, listWide, listLate)
	}
	w := step{At: d.time(horizon), Do: "weather", Of: one(d, kinds...), For: d.log(5*time.Second, 40*time.Minute),
		P: one(d, 0.1, 0.3, 0.6, 1)}
	if w.Of == lettersFull && d.chance(0.5) {
		w.At, w.For = 0, span(365*24*time.Hour)
	}
	return w
}

// trouble draws what happens to replicas and streams.
func (d dice) trouble(s *script, horizon time.Duration) step {
	t := step{At: d.time(horizon), Of: string(rune('A' + d.IntN(s.Replicas))), For: d.log(time.Second, 10*time.Minute)}
	switch d.IntN(10) {
	case 0, 1, 2:
		t.Do, t.N = "kill", 1+d.IntN(24)
	case 3:
		t.Do, t.N = "restart", 1+d.IntN(12)
	case 4, 5:
		t.Do = "stop"
	case 6, 7:
		t.Do = "cut"
	case 8:
		t.Do, t.Of = "pause", ""
	case 9:
		t.Do, t.Of, t.For = "age", "", one(d, span(3*24*time.Hour), span(2*24*time.Hour))
	}
	return t
}

// less is the script without some of its steps, and without the requests that nobody publishes then.
func (s *script) less(from, to int) *script {
	short := *s
	short.Steps = slices.Delete(slices.Clone(s.Steps), from, to)
	short.Requests = slices.DeleteFunc(slices.Clone(s.Requests), func(r spec) bool {
		return !slices.ContainsFunc(short.Steps, func(t step) bool { return t.Do == "publish" && t.Of == r.ID })
	})
	return &short
}

// simpler are the script with one thing more as usual.
func (s *script) simpler() (all []*script) {
	with := func(change func(*script)) {
		c := *s
		c.Steps, c.Requests = slices.Clone(s.Steps), slices.Clone(s.Requests)
		change(&c)
		all = append(all, &c)
	}
	if s.Replicas > 1 {
		with(func(c *script) { c.Replicas-- })
	}
	if s.Rate > 0 {
		with(func(c *script) { c.Rate = 0 })
	}
	if s.Bounces {
		with(func(c *script) { c.Bounces = false })
	}
	if s.Resolve {
		with(func(c *script) { c.Resolve = false })
	}
	if s.UTC {
		with(func(c *script) { c.UTC = false })
	}
	for i, r := range s.Requests {
		if r.To > 1 {
			with(func(c *script) { c.Requests[i].To-- })
		}
		if r.NotBefore > 0 {
			with(func(c *script) { c.Requests[i].NotBefore = 0 })
		}
		if r.Lane != "" {
			with(func(c *script) { c.Requests[i].Lane = "" })
		}
		if r.GiveUpAt > 0 {
			with(func(c *script) { c.Requests[i].GiveUpAt = 0 })
		}
	}
	return all
}

// shrink removes what is not needed for a script to fail, while there is time.
func shrink(s *script, until time.Time, fails func(*script) bool) *script {
	for n := len(s.Steps); n > 0; n /= 2 {
		for from := 0; from < len(s.Steps) && time.Now().Before(until); {
			if short := s.less(from, min(from+n, len(s.Steps))); fails(short) {
				s = short
			} else {
				from += n
			}
		}
	}
	for again := true; again && time.Now().Before(until); {
		again = false
		for _, c := range s.simpler() {
			if fails(c) {
				s, again = c, true
				break
			}
		}
	}
	return s
}
