package consumer

import (
	"context"
	"time"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/pkg/messages"
)

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// schedule defers a request whose not_before has not come, unless it has begun. The error is a *history.RetryLaterError for
// history.ErrScheduled then.
func schedule[R any](ctx context.Context, h *history.History, d *delivery[R], p history.Prior) error {
	failed := p.State == messages.Reopened && p.Was.State == messages.Failed
	begun := p.State != "" && !failed || p.AfterUnknown
	if begun || !d.notBefore.After(time.Now()) {
		return nil
	}
	until := messages.Time{Time: d.notBefore}
	err := h.Store(ctx, messages.Deferred, &messages.DeferredBody{Reason: messages.ReasonScheduled, Message: "not before " + until.String(),
		NotBefore: until, Fingerprint: h.Fingerprint})
	if err != nil {
		return err
	}
	return &history.RetryLaterError{At: d.notBefore, Cause: history.ErrScheduled}
}

// leave acknowledges a scheduled request once the servers keep it until its time: waiting in its queue, it would take a place
// among those in flight. One that comes back too early, by this program's clock, waits in its queue.
func (c *Consumer[R]) leave(ctx context.Context, d *delivery[R], h *history.History, until time.Time) error {
	err := c.Later.Schedule(ctx, d.Request, bus.Schedule{Operation: c.op.Name, Lane: d.lane, ID: h.ID, Fingerprint: d.digest,
		Sequence: h.Sequence(), At: until})
	if err != nil {
		return err
	}
	c.lease.drop(d.Request)
	_ = d.Ack() // if it is lost, the request is delivered again and scheduled again, which changes nothing
	c.Logger.Info().Str("op", string(c.op.Name)).Str("request_id", h.ID).Time("not_before", until).Msg("scheduled")
	return nil
}
