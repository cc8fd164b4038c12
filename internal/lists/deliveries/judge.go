package deliveries

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"errand/internal/failpoint"
	"errand/internal/lists/sweep"
	"errand/pkg/messages"
)

// judge says what the log shows about batches of unknown fate after a sweep.
type judge struct {
	sweep.Swept
	calls  *calls
	after  time.Duration // Config.ConcludeAfter
	offset time.Duration // of the email service's clock
	now    time.Time
	kept   time.Time // see Log.Kept; a row whose event is older may have been published and forgotten
	wanted time.Time // as Swept returns it

	compared     bool  // seen and unseen are known
	seen, unseen int64 // when the last accepted call began that has a row, and that has none
}

// verdict is what the log shows about a batch; without an outcome it shows nothing yet.
type verdict struct {
	messages.BatchEvidence
	until   time.Time // its last call had ended by then
	doubted bool      // and not proven: it stays so unless a proof comes
	wanted  time.Time // rows made since then must be read to know more; zero: none
}

// verdict is what the log shows about a batch. That it was sent is proven by one row that
// is certainly its own. That it was not sent is proven by nothing but a log that was
// watched and reaches from before the call to long after it, and would show a row.
func (j *judge) verdict(id string, n int, f unknownFate) (v verdict) {
	e, known := j.calls.evidence(id, n)
	if !known || e.count != f.count {
		return v
	}
	v.BatchEvidence = messages.BatchEvidence{Batch: n, Count: e.count, Seen: e.proven}
	v.until, v.doubted = latest(e.until, f.over), e.doubted && e.proven == 0
	switch due := v.until.Add(j.after); {
	case e.proven > 0:
		v.Outcome = messages.WasAccepted
	case j.now.Before(due) || !j.published(e.begin) || wrong(j.offset):
	case !j.covers(e.begin, due):
		if !j.ours(j.CompleteThrough).Before(due) { // otherwise the log has not gone on yet
			v.wanted = e.begin.Add(j.offset - time.Minute)
		}
	case j.Reading.Missing || j.Reading.Short || j.Reading.Oldest.IsZero() || !j.ours(j.Reading.Oldest).Before(e.begin):
	case e.doubted:
		v.Outcome = messages.Unclear
	case j.showsLaterCalls(e.begin):
		v.Outcome = messages.WasNotSent
	}
	return v
}

// published reports whether rows of a call that began at a time were published when they
// came, and the events about them are known.
func (j *judge) published(begin time.Time) bool {
	watched := !j.WatchedSince.IsZero() && !j.WatchedSince.After(begin) && !j.kept.After(begin)
	return watched && (j.Since.IsZero() || j.ours(j.Since).Before(begin.Add(-time.Duration(maxSkew)*time.Millisecond)))
}

// covers reports whether the last reading was late enough, and reaches from before a call to
// long after it.
func (j *judge) covers(begin, due time.Time) bool {
	r := j.Reading
	return !r.Began.Before(due) && !j.ours(r.Newest).Before(due) && (r.Back.IsZero() || j.ours(r.Back).Before(begin))
}

// ours is a time of the log by our clock.
func (j *judge) ours(t time.Time) time.Time { return t.Add(-j.offset) }

// showsLaterCalls reports whether the log shows a row of any of our calls that began after a
// time and were accepted long enough ago; true if there are none.
func (j *judge) showsLaterCalls(begin time.Time) bool {
	if !j.compared {
		for g, b := range j.calls.acceptedBefore(j.Reading.Began.Add(-j.after)) {
			last := b.spans[len(b.spans)-1].begin
			if slices.ContainsFunc(g.of(b), func(r recipient) bool { return r.status != unseen }) {
				j.seen = max(j.seen, last)
			} else {
				j.unseen = max(j.unseen, last)
			}
		}
		j.compared = true
	}
	return j.seen > begin.UnixMilli() || j.unseen <= begin.UnixMilli()
}

// want adds to what must be read; a zero time adds nothing.
func (j *judge) want(since time.Time) {
	if !since.IsZero() && (j.wanted.IsZero() || since.Before(j.wanted)) {
		j.wanted = since
	}
}

// conclusions yields the conclusions for batches that wait for one.
func (l *Log) conclusions(j *judge) iter.Seq[messages.Event] {
	return func(yield func(messages.Event) bool) {
		for id, u := range l.open {
			for n, f := range u.fates {
				if !f.waiting {
					continue
				}
				v := j.verdict(id, n, f)
				e := messages.Event{Operation: messages.Log, State: messages.Concluded, ID: messages.BatchID(id, n), Body: &messages.ConcludedBody{
					Common: messages.Common{RequestID: id, At: messages.Time{Time: j.now}}, BatchEvidence: v.BatchEvidence,
					Until: messages.Time{Time: v.until}, CompleteThrough: messages.Time{Time: j.CompleteThrough}}}
				// What was concluded since the last call.
				was, since := strings.CutPrefix(f.concluded, strings.TrimSuffix(NoteOf(e), string(v.Outcome)))
				switch {
				case v.Outcome == "":
					if !since {
						j.want(v.wanted)
					}
				case (!since || rank(v.Outcome) > rank(messages.Conclusion(was))) && !yield(e):
					return
				}
			}
		}
	}
}

// rank orders conclusions: a later one must be stronger. Pollers may have different doubts,
// and must not conclude in turn.
func rank(c messages.Conclusion) int {
	return slices.Index([]messages.Conclusion{messages.WasNotSent, messages.Unclear, messages.WasAccepted}, c)
}

// resolve stores what became of requests that ended uncertain, where it is known for all
// their batches.
func (l *Log) resolve(ctx context.Context, j *judge) error {
	for id, u := range l.open {
		_, r := l.calls.find(id)
		e, ok := j.resolution(r, u)
		if !ok {
			continue
		}
		failpoint.Here(failpoint.BeforePublish, "resolved")
		if err := l.Requests.Resolve(context.WithoutCancel(ctx), e, u.over); err != nil {
			return fmt.Errorf("deliveries: resolve: %w", err)
		}
		failpoint.Here(failpoint.AfterPublish, "resolved")
	}
	return nil
}

// resolution is what became of a request that ended uncertain; ok: it is known.
func (j *judge) resolution(r *request, u *unsettled) (e messages.Event, ok bool) {
	if r == nil || r.ended != uncertain || len(u.fates) != u.batches {
		return e, false
	}
	body := &messages.SendResolved{Common: messages.Common{RequestID: r.id, At: messages.Time{Time: j.now}}, Outcome: messages.Partial,
		By: messages.BySendingLog, Fingerprint: u.fingerprint, Evidence: messages.SendEvidence{CompleteThrough: messages.Time{Time: j.CompleteThrough}}}
	taken, pending, unclear := int(r.accepted), []time.Time(nil), false
	for _, n := range slices.Sorted(maps.Keys(u.fates)) {
		v := j.verdict(r.id, n, u.fates[n])
		switch v.Outcome {
		case messages.WasAccepted:
			taken += v.Count
		case "":
			pending = append(pending, v.wanted)
		}
		unclear = unclear || v.Outcome == messages.Unclear || v.doubted
		body.Evidence.Seen += v.Seen
		body.Evidence.Count += v.Count
		body.Evidence.Batches = append(body.Evidence.Batches, v.BatchEvidence)
	}
	switch {
	case unclear: // reading more shows no more
		return e, false
	case len(pending) > 0:
		for _, since := range pending {
			j.want(since)
		}
		return e, false
	case taken == 0:
		body.Outcome = messages.Failed
	case taken >= int(r.recipients):
		body.Outcome = messages.Accepted
	}
	return messages.Event{Operation: messages.Send, State: messages.Resolved, ID: r.id, Body: body}, true
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }
