package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"errand/internal/programs"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// sweeps is a sending log that misbehaves, the mail that fills it, and the pollers that
// publish it, compared with what the sandbox knows of every row.
type sweeps struct {
	*bubble
	ran    []span // while a poller was at work
	mailed int    // requests
	alone  bool   // there was one poller at a time
	soon   time.Duration
}

type span struct{ from, to time.Time }

// soon is how long a state must last to be seen by a poller that is at work: the pause between two scans of the log,
// and a scan of a page a second. Without order each page must be looked for, in several reads, when rows come and go.
const (
	soon        = 2 * time.Minute
	soonNoOrder = 5 * time.Minute
)

const overlap = 5 * time.Minute

// sweeper is a poller that reads little of the log again.
func (s *sweeps) sweeper() *programs.LogPoller {
	p := s.poller()
	p.Overlap = overlap
	return p
}

// mail has n messages sent, one each pause, while so many pollers are at work.
func (s *sweeps) mail(n int, pause time.Duration, pollers int) {
	s.t.Helper()
	all := []programs.Program{s.mails()}
	for range pollers {
		all = append(all, s.sweeper())
	}
	began, stop := time.Now(), s.running(all...)
	for range n {
		id := fmt.Sprint("m", s.mailed)
		s.mailed++
		s.publish("mail.send.requested", message(id, 3+7*s.mailed%30))
		time.Sleep(pause)
	}
	if pollers > 0 {
		s.ran = append(s.ran, span{began, time.Now()})
	}
	stop()
	got := s.count("mail.send.accepted.*")
	fatalIf(s.t, got != s.mailed, "%d of %d messages are sent\n%s", got, s.mailed, s.logs)
}

// quiet lets the last poller see what is left: the log does not change any longer. Without order it is
// known up to an overlap ago, and where totals are wrong after three scans that found nothing.
func (s *sweeps) quiet() {
	s.t.Helper()
	s.set(func(v *sandbox.Settings) { v.LogLosses, v.LogLate = 0, 0 })
	began := time.Now()
	s.run(s.sweeper(), 20*time.Minute, nil)
	s.ran = append(s.ran, span{began, time.Now()})
}

// judge compares what was published with the rows: each state that was there long enough is
// published, once, under the row's request, and nothing else.
func (s *sweeps) judge() {
	s.t.Helper()
	rows := s.box.Oracle(sandbox.Query{Log: true}).Log
	published, first := s.deliveries()
	late, gone, missed := 0, 0, 0
	for _, r := range rows {
		if r.LeftAt != nil {
			gone++
		}
		if r.EnteredAt.After(r.CreatedAt) {
			late++
		}
		for i, state := range r.States {
			key := r.EnvelopeID + " " + r.To + " " + state.State
			until := time.Now()
			if r.LeftAt != nil {
				until = *r.LeftAt
			}
			if i+1 < len(r.States) {
				until = r.States[i+1].Since
			}
			events := published[key]
			delete(published, key)
			switch {
			case len(events) > 1:
				s.t.Errorf("%s is published %d times", key, len(events))
			case len(events) == 0:
				if s.watched(state.Since, until) {
					missed++
					s.t.Logf("%s from %v to %v is not published: created %v, left %v", key, state.Since, until, r.CreatedAt, r.LeftAt)
				}
			default:
				s.wantTrue(r, state, events[0])
			}
		}
	}
	for key := range published {
		s.t.Errorf("%s is published and never was", key)
	}
	errorIf(s.t, missed > 0, "%d states of %d rows are not published\n%s", missed, len(rows), s.logs)
	errorIf(s.t, len(rows) == 0, "there is no row")
	s.t.Logf("%d rows, %d of them late, %d gone; %d reads", len(rows), late, gone, s.calls("logs"))
	s.watermarks(rows, first)
}

// watched reports whether a poller was at work for long enough while it lasted.
func (s *sweeps) watched(from, to time.Time) bool {
	for _, r := range s.ran {
		begin, end := r.from, r.to
		if from.After(begin) {
			begin = from
		}
		if to.Before(end) {
			end = to
		}
		if end.Sub(begin) > s.soon {
			return true
		}
	}
	return false
}

// deliveries are the events by row and state, and the first of each row.
func (s *sweeps) deliveries() (published map[string][]event, first map[string]uint64) {
	s.t.Helper()
	published, first = map[string][]event{}, map[string]uint64{}
	for _, e := range s.events("mail.delivery.*.*") {
		if e.state() == messages.Summary {
			continue
		}
		entry := rowOf(s.t, e)
		row := entry.EnvelopeID + " " + entry.To
		published[row+" "+string(e.state())] = append(published[row+" "+string(e.state())], e)
		if first[row] == 0 {
			first[row] = e.Sequence
		}
	}
	return published, first
}

// wantTrue wants an event to be of its row's request, and not to come before its state.
func (s *sweeps) wantTrue(r sandbox.LogRow, state sandbox.ListedState, e event) {
	body := decode[messages.DeliveryBody](s.t, e)
	errorIf(s.t, body.At.Before(state.Since), "%s is published at %v, and was so since %v", e.Subject, body.At, state.Since)
	want, confidence := messages.Unmatched, messages.MatchNone
	if r.Subject != "" {
		want, confidence = strings.TrimPrefix(r.Subject, "story "), messages.MatchExact
	}
	id := strings.Split(e.Subject, ".")[3]
	errorIf(s.t, id != want || body.Match.Confidence != confidence, "%s, %s, is of %s", e.Subject, body.Match.Confidence, want)
}

// watermarks wants each to be true: every row that was there, and created by then, was published before, one that came
// in late as soon as there was time to see it; and the last one to be as far as the log.
func (s *sweeps) watermarks(rows []sandbox.LogRow, first map[string]uint64) {
	marks := s.events("mail.log.watermark")
	errorIf(s.t, len(marks) == 0, "there is no watermark")
	var before time.Time
	for _, e := range marks {
		w := decode[messages.Watermark](s.t, e)
		through := w.CompleteThrough.Time
		errorIf(s.t, through.After(w.At.Time) || s.alone && through.Before(before),
			"at %v the log is complete through %v, before that it was through %v", w.At, through, before)
		before = through // of two pollers each may be a sweep behind the other
		for _, r := range rows {
			seen := first[r.EnvelopeID+" "+r.To]
			there := r.EnteredAt.Equal(r.CreatedAt) || s.watched(r.EnteredAt, w.At.Time)
			if !there || r.CreatedAt.After(through) || r.LeftAt != nil && !r.LeftAt.After(w.At.Time) || seen != 0 && seen < e.Sequence {
				continue
			}
			s.t.Errorf("at %v the log is said to be published through %v, and %s %s of %v is not", w.At, through, r.EnvelopeID, r.To, r.CreatedAt)
			break
		}
	}
	for _, r := range rows {
		if r.LeftAt == nil && r.CreatedAt.After(before) {
			s.t.Errorf("the last watermark is %v, and there is a row of %v", before, r.CreatedAt)
			break
		}
	}
}

// inSweeps runs f over a log of small pages, whose rows bounce, are deferred first and come one after the other.
func inSweeps(t *testing.T, change func(*sandbox.Settings), f func(s *sweeps)) {
	t.Helper()
	inBubble(t, func(_ *testing.T, b *bubble) {
		s := &sweeps{bubble: b, alone: true, soon: soon}
		s.set(func(v *sandbox.Settings) {
			v.Latency, v.LogCap, v.LogSpread = sandbox.Duration(50*time.Millisecond), 25, sandbox.Duration(15*time.Second)
			v.ShareBounced, v.ShareDeferred, v.DeferredFor = 0.1, 0.2, sandbox.Duration(150*time.Second)
			change(v)
			if v.LogOrder == sandbox.NoOrder {
				s.soon = soonNoOrder
			}
		})
		f(s)
	})
}
