package send

import (
	"context"
	"time"

	"errand/internal/history"
	"errand/internal/requests/attempt"
	"errand/pkg/messages"
)

// span is when the last call that was announced for a batch may have been at work; zero:
// none was.
type span struct{ begin, end time.Time }

// lastCall reads it from a batch's history. The events of a message of one batch have the
// same fields. A replica may lag behind and give the started event of an earlier call: what is
// deferred says itself until when the last one lasted.
func lastCall(p history.Prior) (span, error) {
	if p.Started == nil {
		return span{end: p.Deadline.Time}, nil
	}
	var started messages.BatchBody
	if err := messages.DecodeEvent(p.Started, &started); err != nil {
		return span{}, err
	}
	s := span{begin: started.At.Time, end: p.Deadline.Time}
	if started.Deadline != nil && started.Deadline.After(s.end) {
		s.end = started.Deadline.Time
	}
	return s, nil
}

// leaveRecord leaves the record of a call whose worker died, which may have left none: then it
// made no call, but the sending log's reader knows nothing of the batch and would never
// conclude that. The same record twice says the same twice.
func (m *message) leaveRecord(ctx context.Context, d attempt.Delivery, b batch, call span) error {
	if d.Prior.State != messages.Started {
		return nil
	}
	record := m.record(b, d.History.Attempt, call.begin, call.end)
	record.SetKeys(m.Secret, m.from, b.to)
	if err := m.Sent(ctx, record); err != nil && ctx.Err() != nil {
		return err
	} // what NATS does not take now it did not take before: there was no call
	return nil
}

// record is what it takes to find the rows of a batch's call in the sending log, but for
// the keys of its recipients.
func (m *message) record(b batch, attempt int, begin, until time.Time) messages.SentBody {
	record := messages.SentBody{Common: messages.Common{RequestID: m.request.History.ID, At: messages.Time{Time: time.Now()}, Attempt: attempt},
		Batch: b.number, First: b.first, Count: len(b.to), Begin: messages.Time{Time: begin}, Until: messages.Time{Time: until}}
	if m.Secret == nil {
		record.From = messages.KeyOf(m.from)
	}
	return record
}

// concluded gives what the sending log shows of a batch's last call. No verdict: it was
// not sent.
func (m *message) concluded(ctx context.Context, p history.Prior, b batch, call span, unknown messages.Reason) (result, error) {
	said, err := m.Concluded(ctx, m.request.History.ID, b.number)
	if err != nil {
		return result{}, err
	}
	if said.Until.Before(call.end) {
		said.Outcome = "" // it is about an earlier call
	}
	got := resultOf(b, attempt.Result[int]{Deadline: messages.Time{Time: call.end}})
	got.Reason, got.Message, got.Status, got.AfterUnknown = unknown, attempt.MessageOf(p, unknown), p.HTTPStatus, true
	switch {
	case said.Outcome == messages.WasAccepted:
		return resultOf(b, attempt.Result[int]{Verdict: attempt.Done, Value: len(b.to), AfterUnknown: true}), nil
	case said.Outcome == messages.WasNotSent:
		return result{}, nil
	case said.Outcome == messages.Unclear || !time.Now().Before(m.request.GiveUpAt):
		got.Verdict = attempt.Uncertain
		return got, nil
	}
	got.Verdict, got.NotBefore, got.Cause = attempt.AwaitLog, m.notBefore(), attempt.ErrAwaitsLog
	return got, nil
}

// awaitsLog reports whether a deferred batch waits for what the sending log shows of its
// last call, rather than for a call.
func awaitsLog(p history.Prior) bool {
	return p.State == messages.Deferred && p.AfterUnknown && p.Reason != messages.ReasonBusy && p.Reason != messages.ReasonHeld
}
