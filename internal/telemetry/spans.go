package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"errand/internal/history"
	"errand/pkg/messages"
)

// Errand's attributes.
const (
	stateKey    = attribute.Key("errand.state") // of the event, or deferred
	reasonKey   = attribute.Key("errand.reason")
	attemptKey  = attribute.Key("errand.attempt")
	deliveryKey = attribute.Key("errand.delivery")
	repeatedKey = attribute.Key("errand.repeated")
	probeKey    = attribute.Key("errand.probe")  // it was the probe of a hold
	fencedKey   = attribute.Key("errand.fenced") // another event was stored first, this one was not
)

// Delivery is one delivery of a request.
type Delivery struct {
	Subject  string
	Consumer string
	Number   uint64
	Probe    bool
	Trace    history.Trace // the publisher's
}

// Span is the span of one delivery; the zero value records nothing.
type Span struct{ span trace.Span }

// Process begins the span of a delivery, a child of the publisher's and linked to it. Use the returned context for all that is
// done for the delivery.
func (t *Tracer) Process(ctx context.Context, d Delivery) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		semconv.MessagingSystemKey.String("nats"), semconv.MessagingOperationName("process"), semconv.MessagingOperationTypeProcess,
		semconv.MessagingDestinationName(d.Subject), semconv.MessagingConsumerGroupName(d.Consumer),
		deliveryKey.Int64(int64(d.Number)), probeKey.Bool(d.Probe))}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": d.Trace.Parent, "tracestate": d.Trace.State})
	if of := trace.SpanContextFromContext(ctx); of.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: of}))
	}
	ctx, span := t.tracer.Start(ctx, "process "+d.Subject, options...)
	return ctx, Span{span}
}

// Ending is how a delivery ended.
type Ending struct {
	Request  string
	State    messages.State // deferred if there is no outcome yet
	Reason   messages.Reason
	Failed   bool
	Repeated bool
	Attempt  int
}

// End ends the span.
func (s Span) End(e Ending) {
	if s.span == nil {
		return
	}
	s.span.SetAttributes(semconv.MessagingMessageConversationID(e.Request), stateKey.String(string(e.State)),
		repeatedKey.Bool(e.Repeated), attemptKey.Int(e.Attempt))
	if e.Reason != "" {
		s.span.SetAttributes(reasonKey.String(string(e.Reason)))
	}
	if e.Failed {
		fail(s.span, string(e.Reason))
	}
	s.span.End()
}

// fail marks a span as an error of a kind; "" for any.
func fail(span trace.Span, kind string) {
	kind = cmp.Or(kind, semconv.ErrorTypeOther.Value.AsString())
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
	span.SetStatus(codes.Error, kind)
}

// Publish runs publish in the span of a message that is published for a delivery, and returns its error; template is the
// subject with {request_id} for the id.
func (t *Tracer) Publish(ctx context.Context, subject, template string, publish func(context.Context) error) error {
	if t == nil {
		return publish(ctx)
	}
	ctx, span := t.tracer.Start(ctx, "publish "+template, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		semconv.MessagingSystemKey.String("nats"), semconv.MessagingOperationName("publish"), semconv.MessagingOperationTypeSend,
		semconv.MessagingDestinationName(subject), semconv.MessagingDestinationTemplate(template)))
	defer span.End()
	err := publish(ctx)
	switch {
	case errors.Is(err, history.ErrFenced): // as with every repeat: nothing is wrong
		span.SetAttributes(fencedKey.Bool(true))
	case errors.Is(err, history.ErrTooLarge):
		fail(span, "too_large")
	case err != nil:
		fail(span, "")
	}
	return err
}

// Log wraps a log: each event that is stored for a delivery carries the trace context of its span to subscribers.
func (t *Tracer) Log(log history.Log) history.Log {
	if t == nil {
		return log
	}
	return tracedLog{log, t}
}

type tracedLog struct {
	history.Log
	tracer *Tracer
}

// Append stores an event, with the log's errors.
func (l tracedLog) Append(ctx context.Context, r history.Record) (sequence uint64, err error) {
	if !trace.SpanContextFromContext(ctx).IsValid() { // outside of a delivery it keeps its trace
		return l.Log.Append(ctx, r)
	}
	template := r.Event.Operation.Subject(r.Event.State, "{request_id}")
	err = l.tracer.Publish(ctx, r.Event.Subject(), template, func(ctx context.Context) (err error) {
		header := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, header)
		r.Trace = history.Trace{Parent: header["traceparent"], State: header["tracestate"]}
		sequence, err = l.Log.Append(ctx, r)
		return err
	})
	return sequence, err
}

// Transport wraps a client's: each call is made in a span that ends when its answer is read. The upstream is a stranger and gets no
// trace context. The span has no query, which may name a payer.
func (t *Tracer) Transport(next http.RoundTripper) http.RoundTripper {
	if t == nil {
		return next
	}
	return tracedTransport{next, t}
}

type tracedTransport struct {
	http.RoundTripper
	tracer *Tracer
}

func (t tracedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	port, err := strconv.Atoi(r.URL.Port())
	if err != nil {
		port = map[string]int{"http": 80, "https": 443}[r.URL.Scheme]
	}
	_, span := t.tracer.tracer.Start(r.Context(), r.Method+" "+r.URL.Path, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		semconv.HTTPRequestMethodKey.String(r.Method), semconv.ServerAddress(r.URL.Hostname()), semconv.ServerPort(port),
		semconv.URLFull(r.URL.Scheme+"://"+r.URL.Host+r.URL.Path), semconv.URLTemplate(r.URL.Path)))
	response, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		fail(span, kindOf(err))
		span.End()
		return response, err
	}
	span.SetAttributes(semconv.HTTPResponseStatusCode(response.StatusCode),
		semconv.NetworkProtocolVersion(fmt.Sprintf("%d.%d", response.ProtoMajor, response.ProtoMinor)))
	if response.StatusCode >= 400 {
		fail(span, strconv.Itoa(response.StatusCode))
	}
	response.Body = &body{response.Body, span}
	return response, nil
}

// kindOf names the kind of a call's error, whose text is not ours.
func kindOf(err error) string {
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded), ok && timeout.Timeout():
		return "timeout"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "cut_off"
	}
	return "connection"
}

// body ends the span of its answer when it is closed.
type body struct {
	io.ReadCloser
	span trace.Span
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		fail(b.span, kindOf(err))
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.span.End()
	return err
}
