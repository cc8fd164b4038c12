package attempt

import (
	"cmp"
	"context"
	"time"

	"errand/internal/history"
	"errand/pkg/messages"
)

// UnknownOf is why the fate of a call in a history is unknown; "" if no call's is.
func UnknownOf(p history.Prior) messages.Reason {
	switch {
	case p.State == messages.Started && p.Unknown != "":
		return p.Unknown
	case p.State == messages.Started: // its maker died
		return messages.ReasonInterrupted
	case !p.AfterUnknown:
		return ""
	case p.Reason == messages.ReasonBadAnswer || p.Reason == messages.ReasonInterrupted:
		return p.Reason
	}
	return messages.ReasonNoAnswer
}

// interrupted is what is known of a call whose worker died.
const interrupted = "a worker died between the call's announcement and its outcome"

// MessageOf is what is known of the call that UnknownOf is about.
func MessageOf(p history.Prior, unknown messages.Reason) string {
	if unknown == messages.ReasonInterrupted {
		return interrupted
	}
	return cmp.Or(p.Message, "what became of an earlier call is not known")
}

// NotBefore is when a wait is over that begins now, and not after the request is given up.
func NotBefore(wait time.Duration, giveUp time.Time) time.Time {
	at := time.Now().Add(wait)
	if at.After(giveUp) {
		return giveUp
	}
	return at
}

// Defer stores that a request waits, as r says, and returns the error that tells the queue.
func Defer[T any](ctx context.Context, h *history.History, r Result[T], body *messages.DeferredBody) error {
	body.Reason, body.Message, body.HTTPStatus, body.NotBefore = r.Reason, r.Message, r.Status, messages.Time{Time: r.NotBefore}
	body.AfterUnknown, body.HeldCount = r.AfterUnknown, r.HeldCount
	if err := h.Store(ctx, messages.Deferred, body); err != nil {
		return err
	}
	return &history.RetryLaterError{At: r.NotBefore, Cause: r.Cause}
}
