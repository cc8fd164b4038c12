// Package errand is a small client for those who publish requests and read what became of
// them. It needs the standard library, nats.go and pkg/messages.
//
//	messages.SendRequest ── Publish ──> Receipt ──┬── Wait ──> Succeeded, Partial, Failed, Uncertain, Resolved or Erased
//	                                              └── Follow ──> every Event of that request
//	all requests         ── Outcomes ──> your handler, over a durable consumer
//
// What each needs of NATS, as deploy/nats/errand.conf has it:
//
//	Publish     the right to publish the request's subject: users service, producer and people
//	Wait, Last  reads single events (direct get): users service, subscriber and people
//	Follow      a consumer that ends by itself: users service and subscriber, in their own account
//	Outcomes    a durable consumer: the same
//
// A service reads its own copies of the events, which `errand mirror` makes. A person may only receive answers
// in their own inbox: connect with nats.CustomInboxPrefix("_INBOX_ann").
//
// All methods may be called by any number of goroutines at once.
package errand

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/messages"
)

// Client publishes requests and reads their events. Make it with New.
type Client struct {
	// Trace returns the traceparent and tracestate that requests of a context carry. Set it before the client is used. With OpenTelemetry:
	//
	//	client.Trace = func(ctx context.Context) map[string]string {
	//		trace := propagation.MapCarrier{}
	//		propagation.TraceContext{}.Inject(ctx, trace)
	//		return trace
	//	}
	Trace func(context.Context) map[string]string

	js   jetstream.JetStream
	lane string
}

// Lane returns a client that publishes enrollments and mail to a lane, which must be declared; see docs/use/publish.md.
func (c *Client) Lane(name string) *Client {
	in := *c
	in.lane = name
	return &in
}

// New makes a client of a connection's JetStream, of jetstream.NewWithDomain behind a leaf node. Connect with
// nats.MaxReconnects(-1): by default a connection gives up after two minutes.
func New(js jetstream.JetStream) *Client { return &Client{js: js} }

// What errors of this package mean. Others come from the context, from NATS, or are a
// *messages.Invalid.
var (
	// ErrNotTaken says that nothing was stored: no stream takes the subject from this user.
	ErrNotTaken = errors.New("not published: no stream takes it; may this user publish it, is its lane declared, and was `errand provision` run?")
	// ErrTooLarge says that nothing was stored. A list of recipients that is too long goes into an object store, see messages.ObjectRef.
	ErrTooLarge = errors.New("not published: it is larger than the server accepts")
	// ErrNoAck says that nobody knows whether the request was stored: no answer came. Publish the same later: with a RequestID it is
	// run once. A user who may not publish the subject or hear the answer (see the inbox above) gets it too.
	ErrNoAck = errors.New("no acknowledgement: it is not known whether it was stored; publish the same again")
	// ErrCorrected says that the request failed, and that its id has other contents since: a correction, whose outcome counts.
	ErrCorrected = errors.New("it failed and was corrected since: wait with the correction's receipt")
	// ErrNoEvents says that this user has no such stream of events. A service runs `errand mirror` first.
	ErrNoEvents = errors.New("there is no stream of events for this user: a service runs `errand mirror` first")
)

// eventsOf is the stream of an operation's events.
func eventsOf(op messages.Operation) (string, error) {
	switch op {
	case messages.Enroll, messages.Transactions:
		return "MANDATE_EVENTS", nil
	case messages.Send, messages.Account:
		return "MAIL_EVENTS", nil
	}
	return "", fmt.Errorf("operation must be one of %v, got %q", messages.Requests, op)
}
