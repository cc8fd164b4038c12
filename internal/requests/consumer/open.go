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
	print   string // fingerprint
	invalid error  // why it cannot be run
	// ids are those that it may go by: its own, and where another request has that, those
	// that the queue gives.
	ids    []string
	giveUp time.Time
	redrive
}

// open reads a message, and keeps it leased; nil: it is none of JetStream's.
func (c *Consumer[R]) open(m *nats.Msg, permit *hold.Permit) *delivery[R] {
	meta, err := m.Metadata()
	if err != nil {
		c.Logger.Error().Err(err).Msg("not a JetStream message")
		return nil
	}
	c.unhealthy("")
	c.lease.take(m)
	d := &delivery[R]{message: m, meta: meta, permit: permit}
	said := c.decode(d)
	if d.print = said.Fingerprint; d.print == "" { // no JSON object: the bytes distinguish it
		sum := sha256.Sum256(m.Data)
		d.print = hex.EncodeToString(sum[:])
	}
	kept := c.Kept()
	named := time.Time{}
	if d.invalid == nil {
		if named = c.op.GiveUpAt(d.body); !named.IsZero() {
			d.invalid = messages.CheckGiveUpAt(named, meta.Timestamp, kept)
		}
	}
	d.redrive = redriveOf(m)
	if d.giveUp = named; named.IsZero() || d.redriven && named.Before(meta.Timestamp) { // what a person runs again has its time from then on
		d.giveUp = meta.Timestamp.Add(min(c.GiveUpAfter, messages.MaxGiveUp(kept)))
	}
	own := meta.Stream + "-" + strconv.FormatUint(meta.Sequence.Stream, 10)
	d.ids = []string{own, own + "-" + strconv.FormatInt(meta.Timestamp.UnixNano(), 36)}
	if id := idOf(m.Header, said, d.invalid); id != "" {
		d.ids = append([]string{id}, d.ids...)
	}
	return d
}

// decode reads the body. A panic is the fault of the body, and its request's alone.
func (c *Consumer[R]) decode(d *delivery[R]) (said messages.Meta) {
	defer func() {
		if p := recover(); p != nil {
			d.invalid = attempt.Panicked(p)
		}
	}()
	d.body, said, d.invalid = c.op.Decode(d.message.Data)
	return said
}

// idOf is the id that a request names: its body's, else its header's if it fits; "" for what
// cannot be read, or names an id that does not fit.
func idOf(h nats.Header, said messages.Meta, invalid error) string {
	if said.RequestID != "" {
		return said.RequestID
	}
	if faults, ok := errors.AsType[*messages.Invalid](invalid); ok && (said.Fingerprint == "" || faults.Fields["request_id"] != nil) {
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

// history is the request's under one of its ids.
func (c *Consumer[R]) history(d *delivery[R], id string) *history.History {
	return &history.History{Log: c.Log, Operation: c.op.Name, ID: id, Fingerprint: d.print, Trace: trace(d.message)}
}

// trace is the request's W3C trace context, if it has a plausible one.
func trace(m *nats.Msg) history.Trace {
	return history.Trace{Parent: messages.Cut(m.Header.Get("traceparent")), State: messages.Cut(m.Header.Get("tracestate"))}
}
