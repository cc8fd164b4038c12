package consumer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/requests/attempt"
	"errand/internal/requests/hold"
	"errand/pkg/messages"
)

// delivery is one request on one delivery, read.
type delivery[R any] struct {
	*bus.Request
	permit  *hold.Permit
	body    R
	digest  string // its fingerprint
	invalid error  // why it cannot be run
	// ids are the ids it may be reported under: the one it names, then the queue's, for when another request has the first.
	ids    []string
	giveUp time.Time
	redrive
}

// open reads a request, and keeps it leased.
func (c *Consumer[R]) open(r *bus.Request, permit *hold.Permit) *delivery[R] {
	c.unhealthy("")
	c.lease.take(r)
	d := &delivery[R]{Request: r, permit: permit}
	named := c.decode(d)
	d.digest = named.Fingerprint
	if d.digest == "" { // not a JSON object: its bytes distinguish it
		sum := sha256.Sum256(r.Data)
		d.digest = hex.EncodeToString(sum[:])
	}
	kept := c.Kept()
	if d.invalid == nil {
		if d.giveUp = c.op.GiveUpAt(d.body); !d.giveUp.IsZero() {
			d.invalid = messages.CheckGiveUpAt(d.giveUp, r.Published, kept)
		}
	}
	d.redrive = redriveOf(r)
	if d.giveUp.IsZero() || d.redriven && d.giveUp.Before(r.Published) { // a redrive has its time from its publishing on
		d.giveUp = r.Published.Add(min(c.GiveUpAfter, messages.MaxGiveUp(kept)))
	}
	own := r.Stream + "-" + strconv.FormatUint(r.Sequence, 10)
	d.ids = []string{own, own + "-" + strconv.FormatInt(r.Published.UnixNano(), 36)}
	if id := idOf(r.Header, named, d.invalid); id != "" {
		d.ids = append([]string{id}, d.ids...)
	}
	return d
}

// decode reads the body. A panic is this request's fault alone.
func (c *Consumer[R]) decode(d *delivery[R]) (meta messages.Meta) {
	defer func() {
		if p := recover(); p != nil {
			d.invalid = attempt.Panicked(p)
		}
	}()
	d.body, meta, d.invalid = c.op.Decode(d.Data)
	return meta
}

// idOf is the id that a request names in its body or else its header; "" if it cannot be read or its id does not fit.
func idOf(h nats.Header, named messages.Meta, invalid error) string {
	if named.RequestID != "" {
		return named.RequestID
	}
	if faults, ok := errors.AsType[*messages.Invalid](invalid); ok && (named.Fingerprint == "" || faults.Fields["request_id"] != nil) {
		return ""
	}
	if _, ok := errors.AsType[*attempt.PanicError](invalid); ok {
		return ""
	}
	if id := h.Get(nats.MsgIdHdr); messages.ValidID(id) {
		return id
	}
	return ""
}

// history is the request's history under one of its ids.
func (c *Consumer[R]) history(d *delivery[R], id string) *history.History {
	return &history.History{Log: c.Log, Operation: c.op.Name, ID: id, Fingerprint: d.digest, Published: d.Published, Trace: trace(d.Request)}
}

// trace is the request's W3C trace context, if it has a plausible one.
func trace(r *bus.Request) history.Trace {
	return history.Trace{Parent: messages.Cut(r.Header.Get("traceparent")), State: messages.Cut(r.Header.Get("tracestate"))}
}

// redrive is a message's claim to be a dead letter that a person has published again. Any publisher can write that, so
// it counts only for a history that a person has reopened for exactly these contents; without one the message is never
// run, under any id. So nobody can take another request's id this way, and a request that is to run under an id which
// it does not name is run under no other.
type redrive struct {
	redriven bool
	of       string // the id that it is to run under
	reopened uint64 // sequence of the reopened event
}

func redriveOf(from *bus.Request) redrive {
	sequence := from.Header.Get(bus.HeaderReopened)
	if sequence == "" { // HeaderRequestID alone counts for nothing: a dead letter has it too
		return redrive{}
	}
	r := redrive{redriven: true, of: from.Header.Get(bus.HeaderRequestID)}
	r.reopened, _ = strconv.ParseUint(sequence, 10, 64) // 0 if it is not a number
	return r
}

// asked is the id that the request is to run under, as far as its message says.
func (d *delivery[R]) asked() string {
	if d.redriven && messages.IsID(d.of) {
		return d.of
	}
	return d.ids[0]
}

// queueIDs is how many of a delivery's ids are given by the queue.
const queueIDs = 2

// findReopened checks a message's claim to be a redrive against the history, and gives it the id that was reopened. If the
// claim is false the message is invalid, with the queue's ids only.
func (c *Consumer[R]) findReopened(ctx context.Context, d *delivery[R]) error {
	if !d.redriven {
		return nil
	}
	own := d.ids[len(d.ids)-queueIDs:]
	if named := d.ids[:len(d.ids)-queueIDs]; d.reopened > 0 && messages.IsID(d.of) && (len(named) == 0 || named[0] == d.of) {
		// Whatever it became since, it is this request's: it may have been corrected before its dead letter was stored.
		e, err := c.Log.Next(ctx, c.op.Name, c.op.Name.Subject(messages.Reopened, d.of), d.reopened)
		if err != nil {
			return err
		}
		said, err := messages.ReadFacts(e.Body)
		if err == nil && e.Sequence == d.reopened && said.By != messages.ByCorrection && said.Fingerprint == d.digest {
			d.ids = append([]string{d.of}, own...)
			return nil
		}
	}
	d.ids, d.reopened = own, 0
	d.invalid = &messages.Invalid{Fields: map[string][]string{
		bus.HeaderRequestID: {"names a request that was not reopened with these contents"}}}
	return nil
}
