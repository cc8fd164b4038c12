package deliveries

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"errand/internal/failpoint"
	"errand/pkg/messages"
)

// unsettled is a request with batches of unknown fate.
type unsettled struct {
	counts      map[int]int // recipients, by the batch's number
	over        uint64      // sequence of the request's outcome
	batches     int         // uncertain ones in it; negative: unknown
	fingerprint string
}

// clearFate removes a batch from those of unknown fate: its fate is known, or it is called again.
func (l *Log) clearFate(id string, number int) {
	if u := l.open[id]; u != nil {
		if delete(u.counts, number); len(u.counts) == 0 {
			delete(l.open, id)
		}
	}
}

// resolve stores that uncertain requests were sent, where each batch of unknown fate has a row that proves it.
func (l *Log) resolve(ctx context.Context, now, through time.Time) error {
	for id, u := range l.open {
		_, r := l.calls.find(id)
		e, ok := l.resolution(id, r, u, now, through)
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

// resolution is what became of a request that ended uncertain; ok: it is proven.
func (l *Log) resolution(id string, r *request, u *unsettled, now, through time.Time) (e messages.Event, ok bool) {
	if r == nil || r.ended != uncertain || len(u.counts) != u.batches {
		return e, false
	}
	body := &messages.SendResolved{Common: messages.Common{RequestID: id, At: messages.Time{Time: now}}, Outcome: messages.Partial,
		By: messages.BySendingLog, Fingerprint: u.fingerprint, Evidence: messages.SendEvidence{CompleteThrough: messages.Time{Time: through}}}
	for _, n := range slices.Sorted(maps.Keys(u.counts)) {
		b := messages.BatchEvidence{Batch: n, Count: u.counts[n], Seen: l.calls.proven(id, n, u.counts[n])}
		if b.Seen == 0 {
			return e, false
		}
		body.Evidence.Seen += b.Seen
		body.Evidence.Count += b.Count
		body.Evidence.Batches = append(body.Evidence.Batches, b)
	}
	if int(r.accepted)+body.Evidence.Count >= int(r.recipients) {
		body.Outcome = messages.Accepted
	}
	return messages.Event{Operation: messages.Send, State: messages.Resolved, ID: id, Body: body}, true
}
