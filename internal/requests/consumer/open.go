package consumer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/history"
	"errand/internal/requests/attempt"
	"errand/internal/requests/hold"
	"errand/pkg/messages"
)

// delivery is one request on one delivery, read.
type delivery[R any] struct {
	message *nats.Msg
	meta    *nats.MsgMetadata
	permit  *hold.Permit
	body    R
	digest  string // its fingerprint
	invalid error  // why it cannot be run
	// ids are the ids it may be reported under: the one it names, then the queue's, for when another request has the first.
	ids    []string
	giveUp time.Time
	redrive
}

// open reads a message, and keeps it leased; it returns nil for a message that is not JetStream's.
func (c *Consumer[R]) open(m *nats.Msg, permit *hold.Permit) *delivery[R] {
	meta, err := m.Metadata()
	if err != nil {
		c.Logger.Error().Err(err).Msg("not a JetStream message")
		return nil
	}
	c.unhealthy("")
	c.lease.take(m)
	d := &delivery[R]{message: m, meta: meta, permit: permit}
	named := c.decode(d)
	d.digest = named.Fingerprint
	if d.digest == "" { // not a JSON object: its bytes distinguish it
		sum := sha256.Sum256(m.Data)
		d.digest = hex.EncodeToString(sum[:])
	}
	kept := c.Kept()
	if d.invalid == nil {
		if d.giveUp = c.op.GiveUpAt(d.body); !d.giveUp.IsZero() {
			d.invalid = messages.CheckGiveUpAt(d.giveUp, meta.Timestamp, kept)
		}
	}
	d.redrive = redriveOf(m)
	if d.giveUp.IsZero() || d.redriven && d.giveUp.Before(meta.Timestamp) { // a redrive has its time from its publishing on
		d.giveUp = meta.Timestamp.Add(min(c.GiveUpAfter, messages.MaxGiveUp(kept)))
	}
	own := meta.Stream + "-" + strconv.FormatUint(meta.Sequence.Stream, 10)
	d.ids = []string{own, own + "-" + strconv.FormatInt(meta.Timestamp.UnixNano(), 36)}
	if id := idOf(m.Header, named, d.invalid); id != "" {
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
	d.body, meta, d.invalid = c.op.Decode(d.message.Data)
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
	return &history.History{Log: c.Log, Operation: c.op.Name, ID: id, Fingerprint: d.digest, Trace: trace(d.message)}
}

// trace is the request's W3C trace context, if it has a plausible one.
func trace(m *nats.Msg) history.Trace {
	return history.Trace{Parent: messages.Cut(m.Header.Get("traceparent")), State: messages.Cut(m.Header.Get("tracestate"))}
}
