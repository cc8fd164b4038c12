// Package poll reads the upstream's sending log again and again, and publishes each
// new state of each of its rows once, as an event.
//
//	        ┌────────────── read the next page meanwhile ──────────────┐
//	page ─► order? ─► states not published ─► Sink.Publish ─► next page or done ─► watermark
//	                        ▲                    └─ ErrBehind: Sink.Learn, publish what is still missing
//	                        └─ published states: learned from the events themselves
//
// The events are the only memory: there is no cursor that could disagree with them.
// At its start a poller rebuilds what it knows from them. Whatever stops a poller,
// the next one continues from there.
//
// A row is identified by (envelope_id, to). A state that begins and ends between two
// sweeps is never seen. A new state of a row that is older than Overlap may be missed.
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

// Sink stores deliveries and lists those that were stored. One poller at a time is the
// active publisher: it has the leadership. Any other poller may take the leadership from
// it, and then knows everything that was stored before. A Sink serves one Run.
type Sink interface {
	// Learn takes the leadership and yields the events that were stored, by any poller,
	// since the last call; the first time, and with again, since the time since. Some may
	// be older. The leadership is taken once the sequence has ended without an error.
	Learn(ctx context.Context, since time.Time, again bool) iter.Seq2[StoredEvent, error]
	// Publish stores events and returns how many of them, from the first, are certainly
	// stored. ErrBehind: another poller has taken the leadership, or it is unknown whether
	// some events were stored; call Learn. Any other error: the same call would fail again.
	Publish(ctx context.Context, events []messages.Event) (int, error)
	// Watermark returns the last one that was stored; a zero one if there is none.
	Watermark(ctx context.Context) (messages.Watermark, error)
}

// StoredEvent is an event that was stored.
type StoredEvent struct {
	ID      ID        // of a row's state; zero: the event is about a whole request
	At      time.Time // when it was stored
	State   messages.State
	Request string // the request's id, for messages.Concluded with the batch's number; or messages.Unmatched
	Note    string // the header Errand-Recipient; for a summary or a conclusion its NoteOf
}

// ErrBehind means that Learn must be called before more is published.
var ErrBehind = errors.New("poll: events of another poller must be learned first")

// Poller sweeps one sending log. Upstream, Sink, Interval and Limit are required.
// It works in one goroutine, and another one that reads ahead.
type Poller struct {
	Upstream *mail.Client
	Sink     Sink
	Policy   retry.Policy  // for each read; Max is also the pause between probes while held
	Interval time.Duration // maximum pause between two sweeps, used when nothing happens
	Limit    int           // rows to request per page
	Overlap  time.Duration // how much before the last complete sweep each sweep reads again
	Since    time.Time     // how far back a log is published that was never read to its end; zero: all of it
	Logger   zerolog.Logger
	Reports

	// Published, if set, is called with the number of events of a status that this poller stored.
	Published func(status string, n int)
	// Lag, if set, is called after each sweep, complete or not, with the time since the
	// last complete one began.
	Lag func(time.Duration)

	fault atomic.Pointer[string]
}

// maxFailures is the number of sweeps in a row that must fail before the poller is not
// ready: a single failure may be temporary.
const maxFailures = 3

// Fault says why the poller is not ready; "" if it is ready.
func (p *Poller) Fault() string {
	if f := p.fault.Load(); f != nil {
		return *f
	}
	return ""
}

func (p *Poller) setFault(why string) {
	if was := p.Fault(); why == "" && was != "" {
		p.Logger.Info().Msg("poll: works again")
	}
	p.fault.Store(&why)
}

// Run sweeps until ctx ends; events that are being published then are finished first.
// The error names a missing field; errors of sweeps are logged and tried again.
func (p *Poller) Run(ctx context.Context) error {
	switch {
	case p.Upstream == nil || p.Sink == nil:
		return errors.New("poll: Upstream and Sink are required")
	case p.Interval <= 0 || p.Limit <= 0:
		return errors.New("poll: Interval and Limit must be positive")
	case p.Overlap < 0:
		return errors.New("poll: Overlap must not be negative")
	}
	m := &memory{seen: map[ID]stamp{}, tracker: p.newTracker()}
	complete, failures, idle := time.Now(), 0, p.Interval
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
			p.setFault("")
			idle = p.idlePause(idle, m.published, time.Since(began))
			if wait = idle; again {
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

// idlePause is the pause after a sweep that published this many events and took this long;
// before is the previous pause. It doubles up to Interval while nothing is new.
func (p *Poller) idlePause(before time.Duration, published int, took time.Duration) time.Duration {
	if published > 0 {
		return min(max(retry.SweepMin, took), p.Interval)
	}
	return min(2*before, p.Interval)
}

// failed logs a failed sweep and returns the pause after it, which doubles up to
// retry.SweepMax. While the account is refused, the first read of each sweep is the
// probe.
func (p *Poller) failed(err error, failures int) time.Duration {
	var e *clients.Error
	upstream := errors.As(err, &e)
	wait := max(p.Interval, min(p.Interval<<min(failures-1, 10), retry.SweepMax))
	if upstream {
		wait = max(wait, min(e.RetryAfter, retry.RetryAfterMax))
	}
	held := upstream && e.Fate == clients.Held
	if held {
		wait = max(p.Policy.Max, min(e.RetryAfter, retry.RetryAfterMax), retry.SweepMin)
	}
	if held && p.Fault() == "" || !held {
		p.Logger.Warn().Err(err).Dur("again_in", wait).Msg("poll: sweep failed")
	}
	switch {
	case held:
		p.setFault(fmt.Sprintf("email service (logs) answers %d: credentials or account", e.Status))
	case failures >= maxFailures:
		p.setFault("sending log: no sweep came through lately: " + err.Error())
	}
	return wait
}
