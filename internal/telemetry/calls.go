package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/trace"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// RoundTrip makes a call by next, in a span that ends when its answer is read. The upstream is a stranger and gets no trace
// context. The span has no query, which may name a payer.
func (t *Tracer) RoundTrip(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	if t == nil {
		return next.RoundTrip(r)
	}
	port, err := strconv.Atoi(r.URL.Port())
	if err != nil {
		port = map[string]int{"http": 80, "https": 443}[r.URL.Scheme]
	}
	_, span := t.tracer.Start(r.Context(), r.Method+" "+r.URL.Path, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		semconv.HTTPRequestMethodKey.String(r.Method), semconv.ServerAddress(r.URL.Hostname()), semconv.ServerPort(port),
		semconv.URLFull(r.URL.Scheme+"://"+r.URL.Host+r.URL.Path), semconv.URLTemplate(r.URL.Path)))
	response, err := next.RoundTrip(r)
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
