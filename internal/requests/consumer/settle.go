package consumer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/failpoint"
	"errand/internal/history"
	"errand/internal/requests/attempt"
	"errand/internal/requests/hold"
	"errand/internal/retry"
	"errand/internal/telemetry"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// settle ends one delivery: the outcome is stored and the request acknowledged, or given back. Only here is there a warning.
func (c *Consumer[R]) settle(ctx context.Context, d *delivery[R]) {
	began := time.Now()
	ctx, span := c.Tracer.Process(ctx, telemetry.Delivery{Subject: d.Subject, Consumer: d.Consumer, Number: d.Delivered,
		Probe: d.permit.Probe(), Trace: bus.TraceOf(d.Header)})
	failpoint.Here(failpoint.Taken)
	var h *history.History
	end, err := ending{id: d.ids[0]}, c.forNewer(d)
	if err == nil {
		h, end, err = c.answer(ctx, d)
	}
	if later, ok := errors.AsType[*history.RetryLaterError](err); ok && d.scheduled == 0 && errors.Is(err, history.ErrScheduled) {
		stayed := c.leave(ctx, d, h, later.At)
		if stayed == nil {
			span.End(telemetry.Ending{Request: end.id, State: messages.Deferred, Reason: messages.ReasonScheduled})
			return
		}
		if !errors.Is(stayed, bus.ErrTooLarge) { // such a one waits in its queue
			err = stayed
		}
	}
	if p, ok := errors.AsType[*attempt.PanicError](errors.Join(d.invalid, err)); ok {
		c.Panicked(c.op)
		c.Logger.Error().Str("op", string(c.op)).Err(p).Bytes("stack", p.Stack).Msg("caught a panic; please report it")
	}
	if _, panicked := errors.AsType[*attempt.PanicError](err); panicked && d.Delivered >= maxPanics {
		end, err = c.quarantine(ctx, d, h)
	}
	if err == nil {
		err = c.deadLetter(ctx, d, end)
	}
	c.lease.drop(d.Request) // a late heartbeat would undo what follows
	if err != nil {
		c.nak(ctx, d, end.id, err)
		span.End(unsettled(end, err))
		return
	}
	failpoint.Here(failpoint.BeforeAck)
	_ = d.Ack() // if it is lost, the request is delivered again, finds its outcome and is acknowledged then
	failpoint.Here(failpoint.AfterAck)
	c.settled(d, end, time.Since(began))
	span.End(telemetry.Ending{Request: end.id, State: end.state, Reason: end.why.Reason, Attempt: end.attempt,
		Failed: end.wrong() && !end.before, Repeated: end.before})
}

// forNewer returns an error for an invalid request during a rolling upgrade: newer programs may know the unknown field.
func (c *Consumer[R]) forNewer(d *delivery[R]) error {
	if _, refused := errors.AsType[*messages.Invalid](d.invalid); refused && c.Newer() && time.Now().Before(d.giveUp) {
		return &history.RetryLaterError{At: time.Now().Add(retry.Newer), Cause: fmt.Errorf("left to a newer program: %w", d.invalid)}
	}
	return nil
}

// answer has the request handled over the named id's history, or reported under a queue's id where another request has that.
// It returns the history used last.
func (c *Consumer[R]) answer(ctx context.Context, d *delivery[R]) (h *history.History, end ending, err error) {
	defer func() {
		if p := recover(); p != nil {
			end, err = ending{id: d.ids[0]}, attempt.Panicked(p)
		}
	}()
	if err := c.findClaimed(ctx, d); err != nil {
		return nil, ending{id: d.ids[0]}, err
	}
	if d.Delivered > 1 {
		if h, err = c.reported(ctx, d); err != nil {
			end, err = c.ending(ctx, cmp.Or(h, c.history(d, d.ids[0])), messages.Event{}, err)
			return h, end, err
		}
	}
	var ev messages.Event
	why, older := c.refusal(d), false
	for i, id := range d.ids {
		h = c.history(d, id)
		valid := d.invalid == nil && (i == 0 || older)
		if h.ReopenedAt = d.reopened; valid && !d.redriven {
			h.Corrects = func(ctx context.Context) (bool, error) { // unless another worker has reported it meanwhile
				own, err := c.reported(ctx, d)
				if own != nil {
					return false, nil
				}
				return true, err
			}
		}
		ev, err = h.Settle(ctx, d.Delivered == 1 && !d.claimed, func(p history.Prior) (messages.Event, error) {
			if _, panicked := errors.AsType[*attempt.PanicError](d.invalid); panicked && d.Delivered < maxPanics {
				return messages.Event{}, d.invalid
			}
			if !valid {
				return c.notRun(ctx, h, d, p, why)
			}
			giveUp, err := c.giveUpAt(ctx, h, d, p)
			if err == nil {
				err = schedule(ctx, h, d, p)
			}
			if err != nil {
				return messages.Event{}, err
			}
			return c.handle(ctx, attempt.Request[R]{Body: d.body, Delivery: attempt.Delivery{Prior: p, History: h, Permit: d.permit,
				Published: d.Published, GiveUpAt: giveUp}})
		})
		conflict, ok := errors.AsType[*history.ConflictError](err)
		if !ok {
			break
		}
		why.ConflictsWith, older = conflict.ID, conflict.Older && len(d.ids) == queueIDs // it chose no id
	}
	end, err = c.ending(ctx, h, ev, err)
	return h, end, err
}

// reported returns the history under which an earlier delivery reported a request whose id another one has, with its
// *history.AlreadyDoneError; nil if none did. What has become of that id since is not for this one, unless its data was erased.
func (c *Consumer[R]) reported(ctx context.Context, d *delivery[R]) (*history.History, error) {
	if len(d.ids) == queueIDs {
		return nil, nil
	}
	for _, id := range d.ids[len(d.ids)-queueIDs:] {
		h := c.history(d, id)
		_, err := h.Read(ctx)
		if _, ok := errors.AsType[*history.AlreadyDoneError](err); ok {
			last, unread := c.Log.Last(ctx, c.op, c.op.Filter(d.ids[0]))
			if unread == nil && messages.StateOf(last.Subject) == messages.Erased {
				return nil, nil
			}
			return h, err
		}
		if _, conflict := errors.AsType[*history.ConflictError](err); !conflict {
			return nil, err
		}
	}
	return nil, nil
}

// notRun is the final event of a request that is not run, or no longer, by what was done for it.
func (c *Consumer[R]) notRun(ctx context.Context, h *history.History, d *delivery[R], p history.Prior, why messages.FailedBody,
) (messages.Event, error) {
	effect, err := history.EffectOf(ctx, c.Log, c.op, h.ID, p)
	if err != nil {
		return messages.Event{}, err
	}
	state, body := c.ended(d.body, why, effect)
	return h.Event(state, body), nil
}

// refusal is why a request is not run: it breaks the rules, or another request has its id.
func (c *Consumer[R]) refusal(d *delivery[R]) messages.FailedBody {
	if d.invalid == nil {
		return messages.FailedBody{Reason: messages.ReasonConflict, Fingerprint: d.digest,
			Message: "another request with other contents has this request_id"}
	}
	b := messages.FailedBody{Reason: messages.ReasonInvalidRequest, Message: d.invalid.Error(), Fingerprint: d.digest}
	if faults, ok := errors.AsType[*messages.Invalid](d.invalid); ok {
		b.Fields = faults.Fields
	}
	if d.claimed && d.reopened+d.scheduled == 0 { // a copy of another request's message
		b.ConflictsWith = d.of
	}
	return b
}

// ending is what a history's Settle returned.
func (c *Consumer[R]) ending(ctx context.Context, h *history.History, ev messages.Event, err error) (ending, error) {
	done, ok := errors.AsType[*history.AlreadyDoneError](err)
	switch {
	case ok:
		end, body, at := ending{id: h.ID, state: done.State, sequence: done.Sequence, before: true, attempt: h.Attempt}, done.Body, done.At
		if end.state == messages.Resolved {
			was, err := c.Log.Leader(ctx, c.op, c.op.Subject(messages.Uncertain, h.ID)) // the dead letter is about it
			if err != nil || was.Sequence == 0 {
				return end, err
			}
			end.state, body, at, end.sequence = messages.Uncertain, was.Body, was.At, was.Sequence
		}
		end.later = h.Follows(at)
		if !end.wrong() {
			return end, nil
		}
		end.why, err = causeOf(body)
		return end, err
	case err != nil:
		return ending{id: h.ID}, err
	}
	end := ending{id: h.ID, state: ev.State, sequence: h.Sequence(), attempt: h.Attempt}
	if end.wrong() {
		var body []byte
		if body, err = ev.Encode(); err == nil {
			end.why, err = causeOf(body)
		}
	}
	return end, err
}

// maxPanics is the delivery at which a request whose handling panics is taken out of the queue.
const maxPanics = 3

// quarantine ends a request whose handling panics each time, over its history: a call announced there is no longer under way.
func (c *Consumer[R]) quarantine(ctx context.Context, d *delivery[R], h *history.History) (ending, error) {
	ev, err := h.Settle(ctx, false, func(p history.Prior) (messages.Event, error) {
		return c.notRun(ctx, h, d, p, messages.FailedBody{Reason: messages.ReasonInvalidRequest, Message: "its handling fails each time",
			Fingerprint: d.digest})
	})
	return c.ending(ctx, h, ev, err)
}

// deadLetter stores the dead letter of a request that did not go well, before the acknowledgement. The delivery
// after a failure or a death finds the outcome, and stores it.
func (c *Consumer[R]) deadLetter(ctx context.Context, d *delivery[R], end ending) error {
	if !end.dead() {
		return nil
	}
	subject := "dead." + d.Subject
	err := c.Tracer.Publish(ctx, subject, subject, func(ctx context.Context) error {
		return c.Dead(ctx, d.Request, bus.DeadLetter{RequestID: end.id, Operation: c.op, Final: end.sequence,
			Reason: end.why.Reason, Message: end.why.Message})
	})
	failpoint.Here(failpoint.DeadLettered)
	return err
}

// nak returns the request back until there is something to do for it; one that fails every time, for a minute.
func (c *Consumer[R]) nak(ctx context.Context, d *delivery[R], id string, err error) {
	wait := retry.Fault.Wait(int(min(d.Delivered, 100)))
	later, ok := errors.AsType[*history.RetryLaterError](err)
	switch {
	case ctx.Err() != nil:
		wait = 0 // the program ends
	case errors.Is(err, history.ErrFenced):
		wait = retry.Fenced
	case ok:
		wait = max(time.Until(later.At), retry.Nak)
	}
	if c.stopping.Load() {
		wait = max(wait, retry.PullExpiry) // or one of our own pulls has it again
	}
	c.Logger.Warn().Str("op", string(c.op)).Str("request_id", id).Err(err).Dur("wait_ms", wait).Msg("nak with delay")
	if e := d.NakWithDelay(wait); e != nil {
		c.Logger.Warn().Err(fmt.Errorf("nak %s: %w", id, e)).Msg("nats")
	}
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
	err := c.Later(ctx, d.Request, bus.Schedule{Operation: c.op, Lane: d.lane, ID: h.ID, Fingerprint: d.digest,
		Sequence: h.Sequence(), At: until})
	if err != nil {
		return err
	}
	c.lease.drop(d.Request)
	_ = d.Ack() // if it is lost, the request is delivered again and scheduled again, which changes nothing
	c.Logger.Info().Str("op", string(c.op)).Str("request_id", h.ID).Time("not_before", until).Msg("scheduled")
	return nil
}

// Outcome is a settled delivery of a request.
type Outcome struct {
	Operation  messages.Operation
	State      messages.State
	Reason     messages.Reason // "" where it went well
	Repeated   bool            // it had ended before this delivery
	DeadLetter bool            // one was stored
	Took       time.Duration   // since it was taken
	Age        time.Duration   // since it was published
}

// ending is how a request ended: what is logged, counted and, where it went wrong, written on its dead letter.
type ending struct {
	id       string
	state    messages.State
	why      cause  // where it did not go well
	sequence uint64 // of the event
	before   bool   // it had ended before this delivery
	later    bool   // it had ended before this message was published: it has its dead letter, and another would outlive its history
	attempt  int
}

func (e ending) wrong() bool {
	return e.state == messages.Failed || e.state == messages.Uncertain || e.state == messages.Partial
}

// dead reports whether the message gets a dead letter: no late repeat does, and not if every batch was accepted, some with fewer
// recipients.
func (e ending) dead() bool {
	return e.wrong() && !e.later && !(e.state == messages.Partial && e.why.accepted)
}

type cause struct {
	history.Facts
	Unsettled []messages.Unsettled `json:"unsettled"` // batches of a message
	All       int                  `json:"unsettled_count"`
	accepted  bool                 // every batch was, some with fewer recipients
}

// causeOf reads the cause from a final event; for a partial one it is its first batch's that was not accepted.
func causeOf(body []byte) (c cause, err error) {
	err = json.Unmarshal(body, &c)
	if _, other := errors.AsType[*json.UnmarshalTypeError](err); other { // the rest was read
		err = nil
	}
	i := slices.IndexFunc(c.Unsettled, func(u messages.Unsettled) bool { return u.State != messages.Accepted })
	c.accepted = i < 0 && len(c.Unsettled) == c.All
	if c.Reason == "" && len(c.Unsettled) > 0 {
		first := c.Unsettled[max(i, 0)]
		c.Reason, c.Message, c.HTTPStatus = first.Reason, first.Message, first.HTTPStatus
	}
	return c, err
}

const maxNames = 20

// fieldName is what looks like the name of a field: some lower-case words.
var fieldName = regexp.MustCompile(`^[a-z][a-z_]{0,39}\z`)

// fields are the names of the fields at fault. Names are the requester's or the service's: an unlikely one is shown as "?".
func (c cause) fields() (names []string) {
	for name := range c.Fields {
		if !fieldName.MatchString(name) {
			name = "?"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), maxNames)]
}

// settled logs and counts an acknowledged request. One that did not end well is a warning the first time only.
func (c *Consumer[R]) settled(d *delivery[R], end ending, took time.Duration) {
	c.Settled(Outcome{Operation: c.op, State: end.state, Reason: end.why.Reason, Repeated: end.before, DeadLetter: end.dead(),
		Took: took, Age: time.Since(slices.MaxFunc([]time.Time{d.Published, d.notBefore}, time.Time.Compare))})
	log, level := c.Logger, zerolog.InfoLevel
	if end.wrong() {
		log = log.With().Str("reason", string(end.why.Reason)).Int("http_status", end.why.HTTPStatus).Strs("fields", end.why.fields()).Logger()
		if !end.before {
			level = zerolog.WarnLevel
		}
	}
	log.WithLevel(level).Str("op", string(c.op)).Str("request_id", end.id).Str("state", string(end.state)).
		Bool("repeated", end.before).Int("attempt", end.attempt).Uint64("delivery", d.Delivered).Dur("took_ms", took).Msg("settled")
}

// unsettled is the end of a delivery that goes back to the queue: deferred, or for a fault of the program or of NATS.
func unsettled(end ending, err error) telemetry.Ending {
	e := telemetry.Ending{Request: end.id, State: messages.Deferred}
	if _, later := errors.AsType[*history.RetryLaterError](err); !later {
		e.Failed = !errors.Is(err, history.ErrFenced)
		return e
	}
	if failed, ok := errors.AsType[*clients.Error](err); ok {
		e.Reason = failed.Reason
	} else if errors.Is(err, history.ErrScheduled) {
		e.Reason = messages.ReasonScheduled
	} else if _, held := errors.AsType[*hold.ActiveError](err); held {
		e.Reason = messages.ReasonHeld
	}
	return e
}
