package sim

import (
	"time"
)

// The kinds of weather: what goes wrong for a while, each with a probability.
const (
	slowNATS     = "slow NATS"         // writes take seconds
	lostAcks     = "lost acks"         // of writes, and what was acknowledged by a consumer
	lagging      = "lagging replicas"  // of the stream
	eventsFull   = "full events"       // the stream takes no event
	lettersFull  = "full DEAD_LETTERS" //
	busy         = "503"               //
	retryAfter   = "503 Retry-After"   // of a day
	error500     = "500"               // with or without effect
	hangs        = "hangs"             // beyond UPSTREAM_TIMEOUT, takes effect before its end, after it, or never
	cuts         = "cut"               // after the call was sent
	held         = "403"               //
	refuses      = "400"               //
	unreachable  = "unreachable"       // no connection
	unreadable   = "unreadable 200"    //
	shortCount   = "short count"       // fewer recipients than were sent
	slowService  = "slow service"      // 5 to 29 s a call
	listFails    = "list fails"        // 503
	listHidden   = "list hidden"       // it shows nothing
	listWide     = "list wide"         // it ignores the order number
	listLate     = "list late"         // it shows what was half LIST_SETTLE ago
	newerProgram = "rolling upgrade"
)

// weather is one kind of it for a while.
type weather struct {
	kind     string
	from, to time.Time
	p        float64
}

// drawn is a random number for the n-th time that somebody does something: the same in each run of a seed.
func (w *world) drawn(who, what string) uint64 {
	key := who + " " + what
	w.mu.Lock()
	w.nth[key]++
	n := w.nth[key]
	w.mu.Unlock()
	h := 14695981039346656037 ^ w.seed*0x9E3779B97F4A7C15
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h += n * 0xBF58476D1CE4E5B9
	h = (h ^ h>>30) * 0xBF58476D1CE4E5B9
	h = (h ^ h>>27) * 0x94D049BB133111EB
	return h ^ h>>31
}

// part is a part of a drawn number: the i-th 16 bits, from 0 to 1.
func part(h uint64, i int) float64 { return float64(h>>(16*i)&0xffff) / 0x10000 }

func between(from, to time.Duration, f float64) time.Duration {
	return from + time.Duration(f*float64(to-from))
}

// is reports whether a kind of weather strikes: x is drawn from 0 to 1.
func (w *world) is(kind string, x float64) bool {
	now := time.Now()
	for i := range w.weather {
		if c := &w.weather[i]; c.kind == kind && !now.Before(c.from) && now.Before(c.to) && x < c.p {
			return true
		}
	}
	return false
}

// full reports whether a stream takes nothing now.
func (w *world) full(kind string) bool { return w.is(kind, 0) }

// ackLost is how long it takes at least until a writer without an acknowledgement knows what became of its write.
const ackLost = 5 * time.Second

// way is what becomes of a write.
type way struct {
	there, back time.Duration
	arrives     bool // though its writer does not wait for it any longer
	late        time.Duration
}

func (w *world) write(n *node, what string) way {
	h := w.drawn(n.name, what)
	d := way{there: between(200*time.Microsecond, 4*time.Millisecond, part(h, 0)), arrives: part(h, 3) < 0.5,
		late: between(0, ackLost, part(h, 2))}
	d.back = d.there
	if w.is(slowNATS, part(h, 1)) {
		d.there = between(time.Second, 45*time.Second, part(h, 2))
	}
	if w.is(lostAcks, part(h, 3)) {
		d.back = between(ackLost, 40*time.Second, part(h, 2))
	}
	return d
}

// latency is how long a read of NATS takes.
func (w *world) latency(n *node, what string) time.Duration {
	h := w.drawn(n.name, what)
	if w.is(slowNATS, part(h, 1)) {
		return between(time.Second, 10*time.Second, part(h, 2))
	}
	return between(200*time.Microsecond, 4*time.Millisecond, part(h, 0))
}

// lag is how far a replica of the stream lags behind.
func (w *world) lag(n *node, what string) time.Duration {
	h := w.drawn(n.name, "lag "+what)
	if w.is(lagging, part(h, 0)) {
		return between(10*time.Millisecond, 15*time.Second, part(h, 1)*part(h, 1))
	}
	return 0
}
