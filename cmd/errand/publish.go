package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"errand/internal/app"
	"errand/internal/bus"
	"errand/pkg/messages"
)

// publish publishes one request.
type publish struct {
	NATS bus.Connection `embed:"" group:"nats"`

	Subject string        `arg:"" help:"mandate.enroll.requested, mandate.transactions.requested, mail.send.requested or mail.account.requested."`
	Field   []string      `short:"f" sep:"none" placeholder:"NAME=VALUE" help:"A field of the request; may be repeated."`
	File    string        `placeholder:"FILE" help:"File with the request as JSON; - is standard input."`
	Wait    bool          `short:"w" help:"Wait for the outcome and print it."`
	Timeout time.Duration `default:"60s" help:"How long --wait waits."`
}

// Help is shown by --help in addition to the flags.
func (*publish) Help() string {
	return `Publishes one request and prints its request id. The body is built from --field, or read unchanged from --file or from standard input.

Examples:

    errand publish mandate.enroll.requested --wait \
        -f order_number=DD001 -f amount=100.50 -f payer_id_type=1 -f payer_id=900101011234 \
        -f payer_name='Test Payer' -f payer_email=payer@example.com -f payer_telephone_number=60190000000 \
        -f frequency_mode=MT -f application_reason='Monthly fee'
    errand publish mail.send.requested --wait -f from=shop@example.com -f to=a@example.com,b@example.com \
        -f subject=Hello -f content='Good morning.'
    errand publish mail.send.requested --file letter.json
    errand publish mandate.transactions.requested --wait -f order_number=DD001
    errand publish mail.account.requested --wait

A value that is a JSON number, true, false, an array or an object is used as such; anything else is a string. Digits with leading zeros are a string; quote other digits twice to make them one: -f order_number='"1001"'.

The request id is the body's request_id. If there is none, one is chosen, such as send-…, and sent in the header Nats-Msg-Id. The same request under a known id is not run again: --wait finds the outcome that is already stored. With other contents it corrects a request that failed, and is a conflict with any other.

With --wait the subject and body of the final event go to standard output, the request id to standard error. The exit status is 0 only for a good outcome: succeeded, accepted, listed or reported. The pages of a transaction list are separate events: errand watch --since 1h --json 'mandate.transactions.page.*'`
}

// Run publishes, and waits if it was asked to.
func (p *publish) Run(ctx context.Context) error { return p.run(ctx, standard()) }

func (p *publish) run(ctx context.Context, c console) error {
	op, err := operationOf(p.Subject)
	if err != nil {
		return err
	}
	if p.Wait && p.Timeout <= 0 {
		return &app.Invalid{Variable: "--timeout", Problem: "must be positive (for example 60s)"}
	}
	data, err := body(op, p.Field, p.File, c)
	if err != nil {
		return err
	}
	b, err := connect(ctx, p.NATS, "publish", c.warnings())
	if err != nil {
		return err
	}
	defer b.nc.Close()

	r := newRequest(op, data)
	if r.fault != nil {
		fmt.Fprintf(c.errs, "errand: this request will fail: %v\n", r.fault)
	}
	if err := r.publish(ctx, b); err != nil {
		return err
	}
	if !p.Wait {
		fmt.Fprintln(c.out, r.id)
		return nil
	}
	fmt.Fprintln(c.errs, "request id", r.id)
	return r.wait(ctx, b, p.Timeout, c)
}

// request is a request to publish.
type request struct {
	op          messages.Operation
	data        []byte
	header      nats.Header
	id          string // "" until it is stored, if the stream assigns it
	position    string // <stream>-<sequence>, after it is stored
	fingerprint string
	fault       error // the reason why it will fail, if it is invalid
}

// newRequest reads the id and the fingerprint from the body, and adds an id if it has none.
func newRequest(op messages.Operation, data []byte) *request {
	r := &request{op: op, data: data, header: nats.Header{}}
	var meta messages.Meta
	switch op {
	case messages.Enroll:
		_, meta, r.fault = messages.DecodeEnroll(data)
	case messages.Transactions:
		_, meta, r.fault = messages.DecodeTransactions(data)
	case messages.Send:
		_, meta, r.fault = messages.DecodeSend(data)
	case messages.Account:
		_, meta, r.fault = messages.DecodeAccount(data)
	}
	r.id, r.fingerprint = meta.RequestID, meta.Fingerprint
	var named struct {
		RequestID json.RawMessage `json:"request_id"`
	}
	// An unreadable body, and one with an invalid id, are identified by their position.
	readable := meta.Fingerprint != "" && json.Unmarshal(data, &named) == nil
	if id := string(named.RequestID); readable && (id == "" || id == "null" || id == `""`) {
		r.id = string(op[strings.LastIndexByte(string(op), '.')+1:]) + "-" + nuid.Next()
		r.header.Set(nats.MsgIdHdr, r.id)
	}
	return r
}

// publish stores the request and sets its id. Errors say what to do.
func (r *request) publish(ctx context.Context, b broker) error {
	ack, err := b.js.PublishMsg(ctx, &nats.Msg{Subject: r.op.Requested(), Header: r.header, Data: r.data})
	var api *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("not published: nothing takes %s from this user: may it publish that, and did the provisioner run `errand provision`?", r.op.Requested())
	case errors.Is(err, nats.ErrMaxPayload), errors.As(err, &api) && api.ErrorCode == messageTooLong:
		hint := ""
		if r.op == messages.Send {
			hint = ": put the recipients into an object store, one per line, and name the object in to_object"
		}
		return fmt.Errorf("the request of %d bytes is larger than the server accepts%s", len(r.data), hint)
	case err != nil:
		return fmt.Errorf("publish %s: %w", r.op.Requested(), err)
	}
	if ack.Duplicate {
		return fmt.Errorf("this request was not stored: %s had a message with the Nats-Msg-Id %s within the last minutes, maybe of another operation, and JetStream took this one for the same. Name the request by request_id in its body instead", ack.Stream, printable(r.header.Get(nats.MsgIdHdr)))
	}
	r.position = ack.Stream + "-" + strconv.FormatUint(ack.Sequence, 10)
	if r.id == "" {
		r.id = r.position
	}
	return nil
}

// messageTooLong is JetStream's error code for a message beyond max_msg_size.
const messageTooLong jetstream.ErrorCode = 10054
