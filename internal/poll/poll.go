// Package poll reads the upstream's sending log over and over and tells each new
// state of each of its rows once, as an event.
//
//	        ┌────────────── read the next page meanwhile ──────────────┐
//	page ─► order? ─► states not told yet ─► Sink.Tell ─► next page or done ─► watermark
//	                        ▲                    └─ ErrBehind: Sink.Learn, tell what is still missing
//	                        └─ what was told: learned from the events themselves
//
// The events are the only memory: there is no cursor beside them that could
// disagree. What a poller knows is rebuilt from them at its start, and whatever
// kills it, the next one goes on from there.
//
// A row is known by (envelope_id, to). A state that lasts for a shorter time than
// lies between two sweeps is never seen, and one that a row takes on when it is
// older than Overlap need not be.
package poll

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// Sink is where deliveries are told, and what was told is remembered. One poller
// at a time has the turn to tell; any other may take it from that one, and knows
// everything that was told before it did. A Sink serves one Run.
type Sink interface {
	// Learn takes the turn to tell and gives what was told, by whomever, since the last
	// call; the first time, and anew, since the time since. Some of it is perhaps older.
	// The turn is had once the sequence has ended without error.
	Learn(ctx context.Context, since time.Time, anew bool) iter.Seq2[Told, error]
	// Tell stores events and gives how many of the first of them certainly are.
	// ErrBehind: somebody else has taken the turn, or what became of some events
	// is not known; Learn tells. Any other error: the same call would fail again.
	Tell(ctx context.Context, events []messages.Event) (int, error)
	// Watermark gives the last one that was told; a zero one when none was.
	Watermark(ctx context.Context) (messages.Watermark, error)
}

// Told is an event that was stored.
type Told struct {
	ID      ID        // of a row's state; zero: it tells of a request as a whole
	At      time.Time // when it was stored
	State   messages.State
	Request string // its id, for messages.Concluded with the number of the batch; or messages.Unmatched
	Note    string // the header Errand-Recipient; of a summary or a conclusion NoteOf
}

// ErrBehind means that Learn must be called before more is told.
var ErrBehind = errors.New("poll: behind what was told")

// Poller sweeps one sending log. Upstream, Sink, Interval and Limit are required.
// It works in one goroutine and one more that reads ahead.
type Poller struct {
	Upstream *mail.Client
	Sink     Sink
	Policy   retry.Policy  // of each read; Max is also the pause between probes while held
	Interval time.Duration // longest pause between two sweeps, when nothing happens
	Limit    int           // rows to ask for on a page
	Overlap  time.Duration // how far behind the last complete sweep each sweep reads again
	Since    time.Time     // a log that was never read through is told from here on; zero: from its start
	Logger   zerolog.Logger
	Reports

	// Told, if set, hears how many events of a status this poller stored.
	Told func(status string, n int)
	// Lag, if set, hears after each sweep, complete or not, how long ago the last
	// complete one began.
	Lag func(time.Duration)

	fault atomic.Pointer[string]
}

// failuresInARow is how many sweeps in a row must have failed before the poller
// says that it is not ready: one may be a hiccup.
const failuresInARow = 3

// busiest bounds the pause after sweeps that failed, one after the other.
const busiest = time.Minute

// longestPause bounds what an upstream may ask to wait by Retry-After.
const longestPause = 15 * time.Minute

// Fault says why the poller is not ready; "" when it is.
func (p *Poller) Fault() string {
	if f := p.fault.Load(); f != nil {
		return *f
	}
	return ""
}

func (p *Poller) faulty(why string) {
	if was := p.Fault(); why == "" && was != "" {
		p.Logger.Info().Msg("poll: works again")
	}
	p.fault.Store(&why)
}

// Run sweeps until ctx ends; what is being told then is finished first. The error
// names a field that is missing; whatever happens while sweeping is logged and
// tried again.
func (p *Poller) Run(ctx context.Context) error {
	switch {
	case p.Upstream == nil || p.Sink == nil:
		return errors.New("poll: Upstream and Sink are required")
	case p.Interval <= 0 || p.Limit <= 0:
		return errors.New("poll: Interval and Limit must be positive")
	case p.Overlap < 0:
		return errors.New("poll: Overlap must not be negative")
	}
	m := &memory{seen: map[ID]stamp{}, ledger: p.ledger()}
	complete, failures, quiet := time.Now(), 0, p.Interval
	for ctx.Err() == nil {
		began := time.Now()
		again, err := p.sweep(ctx, m)
		if ctx.Err() != nil {
			break
		}
		var wait time.Duration
		switch {
		case err == nil:
			complete, failures = began, 0
			p.faulty("")
			quiet = p.quiet(quiet, m.told, time.Since(began))
			if wait = quiet; again {
				wait = 0
			}
		default:
			failures++
			wait = p.failed(err, failures)
		}
		if p.Lag != nil {
			p.Lag(time.Since(complete))
		}
		retry.Pause(ctx, wait)
	}
	return nil
}

// quickest is the pause while there is something new with each sweep.
const quickest = time.Second

// quiet is the pause after a sweep that told so many events and took so long; before:
// that before it. It doubles while nothing is new, up to Interval.
func (p *Poller) quiet(before time.Duration, told int, took time.Duration) time.Duration {
	if told > 0 {
		return min(max(quickest, took), p.Interval)
	}
	return min(2*before, p.Interval)
}

// failed says what a failed sweep means and gives the pause after it, which doubles
// up to busiest. While the account is not let in, the first read of each sweep is the
// probe.
func (p *Poller) failed(err error, failures int) time.Duration {
	var e *clients.Error
	upstream := errors.As(err, &e)
	wait := max(p.Interval, min(p.Interval<<min(failures-1, 10), busiest))
	if upstream {
		wait = max(wait, min(e.RetryAfter, longestPause))
	}
	held := upstream && e.Fate == clients.Held
	if held {
		wait = max(p.Policy.Max, min(e.RetryAfter, longestPause), time.Second)
	}
	if held && p.Fault() == "" || !held {
		p.Logger.Warn().Err(err).Dur("again_in", wait).Msg("poll: sweep failed")
	}
	switch {
	case held:
		p.faulty(fmt.Sprintf("email service (logs) answers %d: credentials or account", e.Status))
	case failures >= failuresInARow:
		p.faulty("sending log: no sweep came through lately: " + err.Error())
	}
	return wait
}
