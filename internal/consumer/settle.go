package consumer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/failpoint"
	"errand/internal/history"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// ending is how a request ended: what is logged, counted and, where it went
// wrong, written on its dead letter.
type ending struct {
	id      string
	state   messages.State
	body    []byte // of the event, where it went wrong
	before  bool   // it had ended before this delivery
	attempt int
}

// wrong reports whether the request leaves a dead letter.
func (e ending) wrong() bool { return e.state == messages.Failed || e.state == messages.Uncertain }

// settle takes one delivery to its end: an outcome stored and the request
// acknowledged, or the request put back. The only warning about a request is here.
func (c *Consumer[R]) settle(ctx context.Context, m *bus.Request) {
	began := time.Now()
	meta, err := m.Metadata()
	if err != nil {
		c.Logger.Error().Err(err).Msg("not a JetStream message")
		return
	}
	failpoint.Here(failpoint.Taken)
	end, err := c.answer(ctx, m, meta)
	if err == nil {
		err = c.bury(ctx, m, end)
	}
	c.lease.drop(m) // a late heartbeat would undo what follows
	if err != nil {
		c.putBack(ctx, m, end.id, meta.NumDelivered, err)
		return
	}
	failpoint.Here(failpoint.BeforeAck)
	_ = m.Ack() // lost: it is delivered again, finds its outcome and is acknowledged then
	failpoint.Here(failpoint.AfterAck)
	took := time.Since(began)
	outcome := string(end.state)
	if end.before {
		outcome = "repeated"
	}
	if c.Settled != nil {
		c.Settled(c.Operation, outcome, took)
	}
	c.Logger.Info().Str("op", string(c.Operation)).Str("request_id", end.id).Str("state", string(end.state)).
		Bool("repeated", end.before).Int("attempt", end.attempt).Uint64("delivery", meta.NumDelivered).Dur("took", took).Msg("settled")
}

// answer decodes the request and has it handled over its history.
func (c *Consumer[R]) answer(ctx context.Context, m *bus.Request, meta *jetstream.MsgMetadata) (ending, error) {
	body, said, invalid := c.Decode(m.Data())
	own := meta.Stream + "-" + strconv.FormatUint(meta.Sequence.Stream, 10)
	id := idOf(m, said, invalid, own)
	h := &history.History{Log: c.Log, Operation: c.Operation, ID: id, Fingerprint: said.Fingerprint, Trace: trace(m)}
	ev, err := h.Settle(ctx, meta.NumDelivered == 1, func(p history.Prior) (messages.Event, error) {
		if invalid != nil {
			return h.Event(messages.Failed, failure(c.Operation, about(body, refusal(invalid, said)))), nil
		}
		return c.Handle(ctx, history.Request[R]{Body: body, Prior: p, History: h,
			Published: meta.Timestamp, GiveUpAt: meta.Timestamp.Add(c.GiveUpAfter)})
	})
	if foreign, ok := errors.AsType[*history.Foreign](err); ok {
		why := messages.FailedBody{Reason: messages.ReasonConflict, Fingerprint: said.Fingerprint,
			Message: "another request with other contents has this request_id"}
		if invalid != nil {
			why = refusal(invalid, said)
		}
		why.ConflictsWith = foreign.ID
		h = &history.History{Log: c.Log, Operation: c.Operation, ID: own, Fingerprint: said.Fingerprint, Trace: h.Trace}
		ev, err = h.Settle(ctx, meta.NumDelivered == 1, func(history.Prior) (messages.Event, error) {
			return h.Event(messages.Failed, failure(c.Operation, about(body, why))), nil
		})
		if foreign, ok := errors.AsType[*history.Foreign](err); ok { // somebody named a request like this, or the queue was made anew
			why.ConflictsWith = foreign.ID
			h = &history.History{Log: c.Log, Operation: c.Operation, Fingerprint: said.Fingerprint, Trace: h.Trace,
				ID: own + "-" + strconv.FormatInt(meta.Timestamp.UnixNano(), 36)}
			ev, err = h.Settle(ctx, meta.NumDelivered == 1, func(history.Prior) (messages.Event, error) {
				return h.Event(messages.Failed, failure(c.Operation, about(body, why))), nil
			})
		}
	}
	var answered *history.Answered
	switch {
	case errors.As(err, &answered):
		end := ending{id: h.ID, state: answered.State, body: answered.Body, before: true, attempt: h.Attempt}
		if end.state != messages.Resolved {
			return end, nil
		}
		was, err := c.Log.Last(ctx, c.Operation, c.Operation.Subject(messages.Uncertain, h.ID)) // it leaves the dead letter
		if was.Sequence > 0 {
			end.state, end.body = messages.Uncertain, was.Body
		}
		return end, err
	case err != nil:
		return ending{id: h.ID}, err
	}
	end := ending{id: h.ID, state: ev.State, attempt: h.Attempt}
	if end.wrong() {
		end.body, err = ev.Encode()
	}
	return end, err
}

// idOf is the request's id: the body's, else the header's if it fits, else own.
// What cannot be read, or names an id that does not fit, goes by own.
func idOf(m *bus.Request, said messages.Meta, invalid error, own string) string {
	if said.RequestID != "" {
		return said.RequestID
	}
	var faults *messages.Invalid
	if errors.As(invalid, &faults) && (said.Fingerprint == "" || faults.Fields["request_id"] != nil) {
		return own
	}
	if id := m.Headers().Get(nats.MsgIdHdr); messages.ValidID(id) {
		return id
	}
	return own
}

// refusal is the outcome of a request that breaks the rules.
func refusal(invalid error, said messages.Meta) messages.FailedBody {
	b := messages.FailedBody{Reason: messages.ReasonInvalidRequest, Message: invalid.Error(), Fingerprint: said.Fingerprint}
	if fields, ok := errors.AsType[*messages.Invalid](invalid); ok {
		b.Fields = fields.Fields
	}
	return b
}

// about adds the order number, if the request has one that could be read.
func about(request any, b messages.FailedBody) messages.FailedBody {
	if r, ok := request.(messages.EnrollRequest); ok {
		b.OrderNumber = r.OrderNumber
	}
	return b
}

// failure is a failed event's body as the operation tells it.
func failure(op messages.Operation, b messages.FailedBody) messages.Body {
	if op != messages.Send {
		return &b
	}
	return &messages.SendOutcome{Reason: b.Reason, Message: b.Message, Fields: b.Fields,
		Fingerprint: b.Fingerprint, ConflictsWith: b.ConflictsWith}
}

// bury stores the dead letter of a request that did not go well. It stands before
// the acknowledgement, so a death in between repeats it and loses nothing.
func (c *Consumer[R]) bury(ctx context.Context, m *bus.Request, end ending) error {
	if !end.wrong() {
		return nil
	}
	var why struct {
		Reason  messages.Reason `json:"reason"`
		Message string          `json:"message"`
	}
	if err := messages.DecodeEvent(end.body, &why); err != nil {
		return err
	}
	err := c.Dead.Bury(ctx, m, bus.DeadLetter{RequestID: end.id, Operation: c.Operation, Reason: why.Reason, Message: why.Message})
	failpoint.Here(failpoint.Buried)
	return err
}

// putBack gives the request to the queue for as long as there is nothing to do for
// it. One that fails every time, whatever the fault, comes back once a minute.
func (c *Consumer[R]) putBack(ctx context.Context, m *bus.Request, id string, deliveries uint64, err error) {
	wait := time.Duration(min(deliveries, 12)) * 5 * time.Second
	var later *history.Later
	var failed *clients.Error
	switch {
	case ctx.Err() != nil:
		wait = 0 // the program ends
	case errors.Is(err, history.ErrConflict):
		wait = time.Second
	case errors.As(err, &later):
		wait = max(time.Until(later.At), 10*time.Millisecond)
		if errors.As(later.Cause, &failed) && failed.Fate == clients.Busy {
			c.Hold.Exhausted(failed)
		}
	}
	if c.stopping.Load() {
		wait = max(wait, bus.PullExpiry) // or one of our own hands has it again
	}
	c.Logger.Warn().Str("op", string(c.Operation)).Str("request_id", id).Err(err).Dur("wait", wait).Msg("put back")
	if e := m.NakWithDelay(wait); e != nil {
		c.Logger.Warn().Err(fmt.Errorf("put back %s: %w", id, e)).Msg("nats")
	}
}

// trace is the request's W3C trace context, if it has a plausible one.
func trace(m *bus.Request) history.Trace {
	h := m.Headers()
	return history.Trace{Parent: messages.Cut(h.Get("traceparent")), State: messages.Cut(h.Get("tracestate"))}
}
