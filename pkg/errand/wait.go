package errand

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/wire"
	"errand/pkg/messages"
)

// How often Wait looks, and how long it waits for a server's answer.
const (
	firstLook = 20 * time.Millisecond
	lastLook  = 500 * time.Millisecond
	answer    = 5 * time.Second
	restart   = 3 * time.Second // for how long a stream may be missing that was not seen before
)

// Wait returns the outcome of a published request, whether it is stored already or comes before ctx ends. It leaves nothing at the
// server. It finds a conflict too, and takes no outcome of other contents under the same id for this one's.
//
// It looks every half a second in the end, for requests that a person or an HTTP request waits for: use Outcomes for the many.
//
// Errors: the one of ctx, and the request goes on; ErrCorrected; ErrNoEvents; nats.ErrConnectionClosed; an operation or an id that
// no request can have.
func (c *Client) Wait(ctx context.Context, r Receipt) (Outcome, error) {
	if _, err := r.events(); err != nil {
		return nil, fmt.Errorf("wait: %w", err)
	}
	answered, began := false, time.Now()
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		e, err := c.Last(ctx, r)
		switch {
		case ctx.Err() != nil:
		case c.js.Conn().IsClosed():
			return nil, fmt.Errorf("wait for %s %s: %w", r.Operation, r.RequestID, nats.ErrConnectionClosed)
		case err == nil && e.Final():
			return e.Outcome(), nil
		case err == nil:
			answered = true
		case errors.Is(err, ErrCorrected), errors.Is(err, ErrNoEvents) && !answered && time.Since(began) > restart:
			return nil, fmt.Errorf("wait for %s %s: %w", r.Operation, r.RequestID, err) // after any other error it is asked again
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s %s: %w", r.Operation, r.RequestID, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// Last is the last event of a published request, which is its state; a zero Event while there
// is none. Errors: ErrCorrected, ErrNoEvents, ctx's, or nats.ErrTimeout.
func (c *Client) Last(ctx context.Context, r Receipt) (Event, error) {
	stream, err := r.events()
	if err != nil {
		return Event{}, err
	}
	e, err := c.read(ctx, stream, map[string]any{"last_by_subj": r.Operation.Filter(r.Position())})
	if (err == nil && e.Subject == "" || !r.isOwn(e)) && r.RequestID != r.Position() {
		e, err = c.read(ctx, stream, map[string]any{"last_by_subj": r.Operation.Filter(r.RequestID)})
	}
	if err == nil && !r.isOwn(e) {
		return Event{}, c.corrected(ctx, stream, r)
	}
	return e, err
}

// corrected is ErrCorrected if the request failed, so that other contents may have its id. Contents may be published again that
// were corrected: how they failed before says nothing of this request.
func (c *Client) corrected(ctx context.Context, stream string, r Receipt) error {
	const skew = time.Minute // between clocks; the same contents are stored again after two minutes at the soonest
	failed := r.Operation.Subject(messages.Failed, r.RequestID)
	for from := uint64(1); ; {
		e, err := c.read(ctx, stream, map[string]any{"seq": from, "next_by_subj": failed})
		if err != nil || e.Subject == "" {
			return err
		}
		if readFacts(e).Fingerprint == r.Fingerprint && e.Time.Add(skew).After(r.Published) {
			return fmt.Errorf("%w: %s", ErrCorrected, e.Outcome())
		}
		from = e.Sequence + 1
	}
}

// events is the stream of the request's events. The error says that there can be none: a wildcard would find another request's.
func (r Receipt) events() (string, error) {
	if !wire.IsID(r.RequestID) {
		return "", fmt.Errorf("%q is not the id of a request: A-Z, a-z, 0-9, _ and -, 1 to 64 of them", r.RequestID)
	}
	return eventsOf(r.Operation)
}

// isOwn reports whether an event is of this request and not of another one with the same id
// and other contents: one that this one conflicts with, or corrects; or one that had its
// position before the stream of requests was made again.
func (r Receipt) isOwn(e Event) bool {
	f := readFacts(e) // not every event has a fingerprint
	return f.Fingerprint == "" || r.Fingerprint == "" || f.Fingerprint == r.Fingerprint
}

// read gets one event; a zero Event where there is none.
func (c *Client) read(ctx context.Context, stream string, which map[string]any) (Event, error) {
	what, err := json.Marshal(which)
	if err != nil {
		return Event{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answer, nats.ErrTimeout)
	defer cancel()
	m, err := c.js.Conn().RequestWithContext(ctx, c.api()+"DIRECT.GET."+stream, what)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return Event{}, fmt.Errorf("%s: %w", stream, ErrNoEvents)
	case err != nil:
		return Event{}, fmt.Errorf("read %s: %w", stream, err)
	case m.Header.Get("Status") == "404":
		return Event{}, nil
	case m.Header.Get("Status") != "":
		return Event{}, fmt.Errorf("read %s: %s %s", stream, m.Header.Get("Status"), m.Header.Get("Description"))
	}
	return directEvent(m)
}

// api is the prefix of what JetStream is asked.
func (c *Client) api() string {
	switch o := c.js.Options(); {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return jetstream.DefaultAPIPrefix
}

// directEvent reads a direct get's answer.
func directEvent(m *nats.Msg) (Event, error) {
	e := newEvent(m.Header.Get(jetstream.SubjectHeader), nats.Header{}, m.Data)
	var err, badTime error
	e.Sequence, err = strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	e.Time, badTime = time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	if err = errors.Join(err, badTime); err != nil || e.Subject == "" {
		return Event{}, fmt.Errorf("read an event: it is not the answer of a direct get: %w", err)
	}
	for name, values := range m.Header { // without the answer's own
		if !strings.HasPrefix(textproto.CanonicalMIMEHeaderKey(name), "Nats-") {
			e.Header[name] = values
		}
	}
	return e, nil
}
