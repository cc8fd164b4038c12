package errand

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/messages"
)

// Receipt says where a request is stored and how its events are found. It can be kept as
// JSON, and waited for by another process.
type Receipt struct {
	Operation messages.Operation `json:"operation"`
	RequestID string             `json:"request_id"`
	Stream    string             `json:"stream"`
	Sequence  uint64             `json:"sequence"`
	// Fingerprint is the fingerprint of the request's contents; final events carry it too.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Duplicate: JetStream had a message with the same Nats-Msg-Id within the last two minutes
	// and did not store this one; Stream and Sequence are that message's. After Publish and
	// NewMsg that was the very same request, and nothing is lost, unless it was corrected since:
	// it is not run again, and Wait finds no outcome. With a Nats-Msg-Id of your own it may have
	// been another one, and this one is lost.
	Duplicate bool `json:"duplicate,omitempty"`
}

// Position is <stream>-<sequence>: the id under which a conflict is reported, and a request
// that cannot be read. It is the request id of one that names none.
func (r Receipt) Position() string { return r.Stream + "-" + strconv.FormatUint(r.Sequence, 10) }

// Publish checks a request and stores it through JetStream. Without a deadline in ctx it
// waits five seconds for the answer, and with one until then: give it less time than there is
// in all, which leaves some to publish again. Errors: a *messages.Invalid, and nothing was
// published; ErrNotTaken, ErrTooLarge and a *jetstream.APIError, such as of a full stream:
// nothing was stored; ErrNoAck: publish it again, under the same request_id.
//
// Give every request a RequestID that belongs to what is done, such as send-invoice-17: a
// request without one goes by its position, and published twice it is run twice.
func (c *Client) Publish(ctx context.Context, r messages.Request) (Receipt, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return Receipt{}, fmt.Errorf("errand: encode %s: %w; addresses are made with messages.Recipients, and digits with messages.Digits",
			r.Operation(), err)
	}
	m, err := NewMsg(r.Operation(), body)
	if err != nil {
		return Receipt{}, err
	}
	return c.PublishMsg(ctx, m)
}

// NewMsg checks the body of a request and makes the message for it: for those who keep the
// bytes before they publish them (an outbox), or add a traceparent. The error is a
// *messages.Invalid.
//
// Its Nats-Msg-Id is made of operation, request id and contents, so that JetStream drops the
// same request for the same, but neither a correction nor another operation's request. A
// request without an id has none.
func NewMsg(op messages.Operation, body []byte) (*nats.Msg, error) {
	meta, err := messages.Check(op, body)
	if err == nil {
		err = messages.CheckGiveUpAt(meta.GiveUpAt, time.Now(), 0) // refused however long events are kept
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

// PublishMsg stores a message of NewMsg, or one of your own as it is: its bytes are not
// checked, and a request that breaks a rule ends as failed with ReasonInvalidRequest. Errors
// are the errors of Publish; a subject that takes no requests is a *messages.Invalid.
func (c *Client) PublishMsg(ctx context.Context, m *nats.Msg) (Receipt, error) {
	op, ok := strings.CutSuffix(m.Subject, ".requested")
	if !ok || !slices.Contains(messages.Requests, messages.Operation(op)) {
		return Receipt{}, &messages.Invalid{Fields: map[string][]string{"subject": {"must be one of " + subjects()}}}
	}
	ack, err := c.js.PublishMsg(ctx, m)
	if err != nil {
		return Receipt{}, fmt.Errorf("publish %s: %w", m.Subject, publishError(err))
	}
	r := Receipt{Operation: messages.Operation(op), Stream: ack.Stream, Sequence: ack.Sequence, Duplicate: ack.Duplicate}
	meta, err := messages.Check(r.Operation, m.Data) // what is wrong with it is in its outcome
	r.Fingerprint = meta.Fingerprint
	r.RequestID = cmp.Or(meta.ID(m.Header.Get(nats.MsgIdHdr), err), r.Position())
	return r, nil
}

func subjects() string {
	var all []string
	for _, op := range messages.Requests {
		all = append(all, op.Requested())
	}
	return strings.Join(all, ", ")
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
