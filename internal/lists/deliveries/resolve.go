package deliveries

import (
	"context"
	"fmt"
	"time"

	"errand/internal/failpoint"
	"errand/pkg/messages"
)

// unsettled is a request that ended uncertain.
type unsettled struct {
	over        uint64 // sequence of its outcome
	fingerprint string
	batches     []messages.Unsettled // of unknown fate; none if the outcome does not list all
}

// resolve stores that uncertain requests were sent, where each batch of unknown fate has a row that proves it.
func (l *Log) resolve(ctx context.Context, now, through time.Time) error {
	for id, u := range l.open {
		e, ok := l.resolution(id, u, now, through)
		if !ok {
			continue
		}
		failpoint.Here(failpoint.BeforePublish, "resolved")
		if err := l.Resolve(context.WithoutCancel(ctx), e, u.over); err != nil {
			return fmt.Errorf("deliveries: resolve: %w", err)
		}
		failpoint.Here(failpoint.AfterPublish, "resolved")
	}
	return nil
}

// resolution is what became of a request that ended uncertain; ok: it is proven.
func (l *Log) resolution(id string, u *unsettled, now, through time.Time) (e messages.Event, ok bool) {
	r := l.calls.known(id)
	body := &messages.SendResolved{Common: messages.Common{RequestID: id, At: messages.Time{Time: now}}, Outcome: messages.Partial,
		By: messages.BySendingLog, Fingerprint: u.fingerprint, Evidence: messages.SendEvidence{CompleteThrough: messages.Time{Time: through}}}
	for _, batch := range u.batches {
		b := messages.BatchEvidence{Batch: batch.Batch, Count: batch.Count, Seen: l.calls.proven(id, batch.Batch, batch.Count)}
		if b.Seen == 0 {
			return e, false
		}
		body.Evidence.Seen += b.Seen
		body.Evidence.Count += b.Count
		body.Evidence.Batches = append(body.Evidence.Batches, b)
	}
	if r == nil || len(u.batches) == 0 {
		return e, false
	}
	if int(r.accepted)+body.Evidence.Count >= int(r.recipients) {
		body.Outcome = messages.Accepted
	}
	return messages.Event{Operation: messages.Send, State: messages.Resolved, ID: id, Body: body}, true
}
