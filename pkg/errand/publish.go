package errand

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/messages"
)

// Receipt says where a request is stored and how its events are found. It can be kept as
// JSON, and waited for by another process.
type Receipt struct {
	Operation   messages.Operation `json:"operation"`
	RequestID   string             `json:"request_id"`
	Stream      string             `json:"stream"`
	Sequence    uint64             `json:"sequence"`
	Fingerprint string             `json:"fingerprint,omitempty"` // of the request's contents; final events carry it too
	Published   time.Time          `json:"published,omitzero"`    // by the clock of this process; zero for a Duplicate
	// Duplicate: JetStream got a message with the same Nats-Msg-Id within two minutes, which Stream and Sequence are of, and did not
	// store this one. After Publish and NewMsg it was the same request, perhaps of the same call; one that was corrected since is
	// not run again. With a Nats-Msg-Id of your own it may have been another one, and this one is lost.
	Duplicate bool `json:"duplicate,omitempty"`
}

// Position is <stream>-<sequence>: the id of a conflict, and of a request that names none or cannot be read.
func (r Receipt) Position() string { return r.Stream + "-" + strconv.FormatUint(r.Sequence, 10) }

// Publish checks a request and stores it through JetStream. While no acknowledgement comes it publishes the same again,
// every five seconds and under the same id, until ctx ends, or for half a minute where ctx has no deadline. Errors: a
// *messages.Invalid, and nothing was published; ErrNotTaken, ErrTooLarge, nats.ErrConnectionClosed and a *jetstream.APIError, such
// as of a full stream: nothing was stored; ErrNoAck: it may be stored, whatever was answered to a later attempt.
//
// Give every request a RequestID that belongs to what is done, such as send-invoice-17, so that it is run once even if two
// processes publish it. One without is given an id for this call alone.
func (c *Client) Publish(ctx context.Context, r messages.Request) (Receipt, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return Receipt{}, fmt.Errorf("errand: encode %s: %w; addresses are made with messages.Recipients, and digits with messages.Digits",
			r.Operation(), err)
	}
	if string(body) == "null" {
		return Receipt{}, errors.New("errand: there is no request: it is nil")
	}
	m, err := NewMsg(r.Operation(), body)
	if err != nil {
		return Receipt{}, err
	}
	if m.Header.Get(nats.MsgIdHdr) == "" {
		_, name, _ := strings.Cut(string(r.Operation()), ".")
		m.Header.Set(nats.MsgIdHdr, name+"-"+rand.Text())
	}
	if op := r.Operation(); op.HasLanes() {
		m.Subject = op.RequestedIn(c.lane)
	}
	return c.PublishMsg(ctx, m)
}

// PublishAll publishes thousands of requests, a few hundred at a time, and waits for all. The receipt and the error of a request
// have its place in the list; errors.Join(errs...) is nil when all were stored. They are not stored in order: leave a correction
// to a later call.
func (c *Client) PublishAll(ctx context.Context, requests ...messages.Request) (receipts []Receipt, errs []error) {
	const window = 256 // under way at once
	receipts, errs = make([]Receipt, len(requests)), make([]error, len(requests))
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(window, len(requests)) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(requests)); i = next.Add(1) - 1 {
				receipts[i], errs[i] = c.Publish(ctx, requests[i])
			}
		})
	}
	all.Wait()
	return receipts, errs
}

// NewMsg checks the body of a request and makes the message for it, for an outbox that keeps its bytes (examples/outbox). The
// error is a *messages.Invalid.
//
// Its Nats-Msg-Id, of operation, request id and contents, lets JetStream drop the same request but no correction. A request
// without an id has none: published twice it is run twice.
func NewMsg(op messages.Operation, body []byte) (*nats.Msg, error) {
	meta, err := messages.Check(op, body)
	if err == nil {
		err = messages.CheckTimes(meta, time.Now(), 0) // refused however long events are kept
	}
	if err != nil {
		return nil, err
	}
	m := &nats.Msg{Subject: op.Requested(), Header: nats.Header{}, Data: body}
	if meta.RequestID != "" { // else the header would be the id
		m.Header.Set(nats.MsgIdHdr, string(op)+"/"+meta.RequestID+"/"+meta.Fingerprint)
	}
	return m, nil
}

// PublishMsg stores a message of NewMsg, or one of your own as it is: its bytes are not checked. It repeats as Publish does where
// the message has a request id, in its body or as its Nats-Msg-Id. Errors are the errors of Publish; a subject that takes no
// requests is a *messages.Invalid.
func (c *Client) PublishMsg(ctx context.Context, m *nats.Msg) (Receipt, error) {
	s := messages.ParseSubject(m.Subject)
	op := s.Operation
	if s.Dead || s.State != messages.Requested || !slices.Contains(messages.Requests, op) {
		var subjects []string
		for _, op := range messages.Requests {
			subjects = append(subjects, op.Requested())
		}
		return Receipt{}, &messages.Invalid{Fields: map[string][]string{"subject": {"must be one of " + strings.Join(subjects, ", ") +
			", or the first or third with .lane. and a name of a to z, 0 to 9 and -"}}}
	}
	meta, err := messages.Check(op, m.Data) // what is wrong with it is in its outcome
	id := meta.ID(m.Header.Get(nats.MsgIdHdr), err)
	began := time.Now().UTC().Truncate(time.Millisecond)
	ack, err := c.store(ctx, c.traced(ctx, m), id != "")
	if err != nil {
		return Receipt{}, fmt.Errorf("publish %s: %w", m.Subject, err)
	}
	r := Receipt{Operation: op, Stream: ack.Stream, Sequence: ack.Sequence, Duplicate: ack.Duplicate}
	r.Fingerprint, r.RequestID = meta.Fingerprint, cmp.Or(id, r.Position())
	if !r.Duplicate {
		r.Published = began
	}
	return r, nil
}

// patience is how long a message is published again where ctx does not say.
const patience = 30 * time.Second

// store publishes a message until it is acknowledged. What was sent once without an answer may be stored, whatever comes later.
func (c *Client) store(ctx context.Context, m *nats.Msg, repeat bool) (*jetstream.PubAck, error) {
	if _, ends := ctx.Deadline(); !ends {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	var unanswered error
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		if c.js.Conn().IsClosed() {
			return nil, cmp.Or(unanswered, fmt.Errorf("not published: %w", nats.ErrConnectionClosed))
		}
		faultBefore := c.js.Conn().LastError()
		attempt, cancel := context.WithTimeout(ctx, answer)
		ack, err := c.js.PublishMsg(attempt, m)
		cancel()
		if err == nil {
			return ack, nil
		}
		err = publishError(err)
		switch {
		case errors.Is(err, ErrNoAck):
			unanswered = err
		case unanswered == nil:
			return nil, err
		default:
			unanswered = fmt.Errorf("%w: %w", ErrNoAck, err)
		}
		fault := c.js.Conn().LastError()
		if !repeat || fault != faultBefore && errors.Is(fault, nats.ErrPermissionViolation) { //nolint:errorlint // is it another one?
			return nil, unanswered
		}
		select {
		case <-ctx.Done():
			return nil, unanswered
		case <-time.After(pause):
		}
	}
}

// traced is a message with the trace of ctx, unless it has one.
func (c *Client) traced(ctx context.Context, m *nats.Msg) *nats.Msg {
	if c.Trace == nil || m.Header.Get("traceparent") != "" {
		return m
	}
	trace := c.Trace(ctx)
	with := *m
	with.Header = nats.Header{}
	maps.Copy(with.Header, m.Header)
	for _, name := range []string{"traceparent", "tracestate"} {
		if trace[name] != "" {
			with.Header.Set(name, trace[name])
		}
	}
	return &with
}

// publishError says what a failed publish means.
func publishError(err error) error {
	const (
		tooLarge  = 10054
		inProcess = 10158 // a message with the same Nats-Msg-Id is being stored by a cluster
	)
	var api *jetstream.APIError
	isAPI := errors.As(err, &api)
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return ErrNotTaken
	case errors.Is(err, nats.ErrMaxPayload), isAPI && api.ErrorCode == tooLarge:
		return ErrTooLarge
	case isAPI && api.ErrorCode != inProcess:
		return fmt.Errorf("not published: %w", api)
	}
	return fmt.Errorf("%w: %w", ErrNoAck, err)
}
