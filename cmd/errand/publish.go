package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	client "errand/pkg/errand"
	"errand/pkg/messages"
)

type publish struct {
	NATS access `embed:"" group:"nats"`

	Subject    string        `arg:"" help:"What to request: mandate.enroll.requested, mail.send.requested, …; see below."`
	Field      []string      `short:"f" sep:"none" placeholder:"NAME=VALUE" help:"A field of the request; may be repeated."`
	File       string        `placeholder:"FILE" help:"File with the request as JSON; - is standard input."`
	Wait       bool          `short:"w" help:"Wait for the outcome and print it."`
	Timeout    time.Duration `default:"60s" help:"How long --wait waits."`
	Output     string        `short:"o" default:"text" enum:"text,json" help:"text or json (one object on standard output)."`
	SendAnyway bool          `help:"Also publish a request that breaks a rule; it ends failed/invalid_request."`
}

func (*publish) Help() string {
	return `Publishes one request and prints its request id. SUBJECT is mandate.enroll.requested, mandate.transactions.requested,
mail.send.requested or mail.account.requested, or such as mail.send.requested.lane.bulk for a lane. The body is built from
--field, or read unchanged from --file or standard input. A request that breaks a rule is not published.

Examples:

    errand publish mandate.enroll.requested --wait \
        -f order_number=DD001 -f amount=100.50 -f payer_id_type=1 -f payer_id=900101011234 \
        -f payer_name='Test Payer' -f payer_email=payer@example.com -f payer_telephone_number=60190000000 \
        -f frequency_mode=MT -f application_reason='Monthly fee'
    errand publish mail.send.requested --wait -f from=shop@example.com -f to=a@example.com,b@example.com \
        -f subject=Hello -f content='Good morning.'
    errand publish mail.send.requested --file letter.json
    errand publish mail.account.requested --wait -o json | jq .body.account

Text fields take the value as it is: -f order_number=1001. In other fields a JSON number, true, false, array or object
is used as such, and anything else is a string, such as digits with leading zeros. To make it a string, quote it
twice: -f payer_id='"1001"'.

The request id is the body's request_id. Without one, an id such as send-… is chosen and sent in the header
Nats-Msg-Id. The same request under a known id does not run again: --wait finds the stored outcome. With other
contents it corrects a failed request, and conflicts with any other.

With --wait the subject and body of the final event go to standard output, followed by the records of a transactions
listing; -o json prints one object with time, subject, headers, body and records. Everything else goes to standard
error: the request id, and what is known until there is an outcome.

The exit status is 0 if the request was published or, with --wait, ended well (succeeded, accepted, listed, reported);
1 if it failed or was not published; 2 for an invalid request or option; 3 if the outcome is uncertain or partial; 4
if there is no outcome within --timeout, and the request goes on.`
}

func (p *publish) Run(ctx context.Context, c console) error {
	op, err := operationOf(p.Subject)
	if err != nil {
		return err
	}
	if p.Wait && p.Timeout <= 0 {
		return invalid("--timeout", "must be positive (for example 60s)")
	}
	data, err := body(op, p.Field, p.File, c)
	if err != nil {
		return err
	}
	m, err := newMsg(op, data, p.SendAnyway)
	if err != nil {
		return err
	}
	m.Subject = p.Subject // with its lane
	b, err := p.NATS.open(ctx, "publish", c)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	receipt, err := store(ctx, b, m)
	if err != nil {
		return err
	}
	if receipt.Duplicate {
		fmt.Fprintf(c.errs, "a duplicate: %s is the same request, published within the last two minutes\n", receipt.Position())
	}
	switch {
	case p.Wait:
		fmt.Fprintf(c.errs, "request id %s, stored as %s\n", printable(receipt.RequestID), receipt.Position())
		w := &waiting{b: b, receipt: receipt, timeout: p.Timeout, console: c, json: p.Output == "json"}
		return w.run(ctx)
	case p.Output == "json":
		fmt.Fprintln(c.out, encoded(receipt, false))
	default:
		fmt.Fprintln(c.out, receipt.RequestID)
	}
	return nil
}

// newMsg checks a request and makes its message; with anyway, also of an invalid request. A request without an id gets one
// in the header, and its bytes do not change.
func newMsg(op messages.Operation, data []byte, anyway bool) (*nats.Msg, error) {
	m, err := client.NewMsg(op, data)
	switch broken := new(messages.Invalid); {
	case anyway && err != nil:
		return &nats.Msg{Subject: op.Requested(), Data: data}, nil
	case errors.As(err, &broken):
		return nil, invalid("not published", "the request breaks a rule (--send-anyway publishes it nevertheless):%s", faults(op, broken))
	case err != nil:
		return nil, err
	}
	if m.Header.Get(nats.MsgIdHdr) == "" {
		_, operation, _ := strings.Cut(string(op), ".")
		m.Header.Set(nats.MsgIdHdr, operation+"-"+nuid.Next())
	}
	return m, nil
}

// store publishes a request. Errors say what to do.
func store(ctx context.Context, b broker, m *nats.Msg) (client.Receipt, error) {
	receipt, err := client.New(b.JS).PublishMsg(ctx, m)
	switch {
	case errors.Is(err, client.ErrTooLarge) && messages.ParseSubject(m.Subject).Operation == messages.Send:
		return receipt, fmt.Errorf("%w: put the recipients into an object, one per line, and name it in to_object", err)
	case errors.Is(err, client.ErrNoAck) && errors.Is(b.Conn.LastError(), nats.ErrPermissionViolation):
		return receipt, fmt.Errorf("not published: this user may not publish %s; is NATS_USER right? %w", m.Subject, b.Conn.LastError())
	}
	return receipt, err
}
