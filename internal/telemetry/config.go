// Package telemetry makes the traces of a program, by OpenTelemetry's conventions for messaging and HTTP. Without a collector
// there are none, and they cost nothing.
//
//	a publisher's span ─► process a delivery ─┬─► publish started
//	  (traceparent)        child of it, and   ├─► POST to the upstream
//	                       linked to it       └─► publish the outcome ─► traceparent of the event ─► a subscriber's span
//
// Spans have only names, ids of requests, states, reasons and statuses: no query, header or body of a call.
//
//	config.go    the collector's address, a program's tracer
//	collector.go sending spans
//	spans.go     spans of deliveries, of published messages and of upstream calls
package telemetry

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Config has OpenTelemetry's variables, empty if not set. Its library reads the others, for sampling, batches, limits and the
// resource (OTEL_TRACES_SAMPLER, OTEL_BSP_…, OTEL_SPAN_…, OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME).
type Config struct {
	Endpoint       string `name:"otel-endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT" placeholder:"URL" help:"Address of a collector of traces, OTLP over HTTP, such as http://127.0.0.1:4318; /v1/traces is added. Default: no traces."`
	TracesEndpoint string `name:"otel-traces-endpoint" env:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" placeholder:"URL" help:"The same, but used verbatim."`
	Protocol       string `name:"otel-protocol" env:"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL,OTEL_EXPORTER_OTLP_PROTOCOL" help:"Only http/protobuf is supported."`
	Headers        string `name:"otel-headers" env:"OTEL_EXPORTER_OTLP_TRACES_HEADERS,OTEL_EXPORTER_OTLP_HEADERS" placeholder:"NAME=VALUE,…" help:"Headers for the collector, such as a key; better set by the environment than by this flag."`
	Certificate    string `name:"otel-ca" env:"OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE,OTEL_EXPORTER_OTLP_CERTIFICATE" placeholder:"FILE" help:"Certificate authority of the collector (PEM)."`
	Exporter       string `name:"otel-traces-exporter" env:"OTEL_TRACES_EXPORTER" help:"otlp, or none for no traces whatever the address."`
	Disabled       string `name:"otel-disabled" env:"OTEL_SDK_DISABLED" help:"true for no traces."`

	// Spans receives them instead of a collector, in tests.
	Spans sdk.SpanExporter `kong:"-"`
}

// On reports whether there are traces.
func (c Config) On() bool {
	wanted := c.Endpoint != "" || c.TracesEndpoint != "" || c.Spans != nil
	return wanted && c.Exporter != "none" && !strings.EqualFold(c.Disabled, "true")
}

// Fault names the wrong variable and its problem; "" if there is none.
func (c Config) Fault() (variable, problem string) {
	if !c.On() || c.Spans != nil {
		return "", ""
	}
	if c.Exporter != "" && c.Exporter != "otlp" {
		return "OTEL_TRACES_EXPORTER", "must be otlp or none"
	}
	if c.Protocol != "" && c.Protocol != "http/protobuf" {
		return "OTEL_EXPORTER_OTLP_PROTOCOL", "must be http/protobuf (a collector listens for it on port 4318)"
	}
	// An address may hold a password, and is not quoted.
	if u, err := url.Parse(c.url()); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		variable = "OTEL_EXPORTER_OTLP_ENDPOINT"
		if c.TracesEndpoint != "" {
			variable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
		}
		return variable, "must be an address such as http://127.0.0.1:4318, without a user"
	}
	_, variable, problem = c.collector(zerolog.Nop())
	return variable, problem
}

func (c Config) url() string {
	if c.TracesEndpoint != "" {
		return c.TracesEndpoint
	}
	return strings.TrimRight(c.Endpoint, "/") + "/v1/traces"
}

// Tracer makes the spans of a program; nil makes no spans.
type Tracer struct {
	tracer   trace.Tracer
	provider *sdk.TracerProvider
	ends     func() // ends the collector's retries
}

// Open returns a program's tracer, nil without an error if traces are off. The error is about a configuration with a Fault.
func (c Config) Open(program, version string, log zerolog.Logger) (*Tracer, error) {
	if !c.On() {
		return nil, nil
	}
	// Errors of its variables; the collector logs its own.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn().Err(err).Msg("traces") }))
	spans, ends := c.Spans, func() {}
	if spans == nil {
		to, variable, problem := c.collector(log)
		if problem != "" {
			return nil, fmt.Errorf("telemetry: %s %s", variable, problem)
		}
		spans, ends = otlptrace.NewUnstarted(to), sync.OnceFunc(func() { close(to.ending) })
	}
	host, _ := os.Hostname() // "" says as little as a wrong one
	about, err := resource.New(context.Background(), resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceNamespace("errand"), semconv.ServiceName(program), semconv.ServiceVersion(version),
			semconv.ServiceInstanceID(host)),
		resource.WithFromEnv()) // last: it may say otherwise
	if err != nil {
		log.Warn().Err(err).Msg("traces")
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(spans), sdk.WithResource(about))
	tracer := provider.Tracer("errand", trace.WithInstrumentationVersion(version), trace.WithSchemaURL(semconv.SchemaURL))
	return &Tracer{tracer: tracer, provider: provider, ends: ends}, nil
}

// Close sends the last spans, for as long as ctx allows.
func (t *Tracer) Close(ctx context.Context) {
	if t != nil {
		t.ends()
		_ = t.provider.Shutdown(ctx) // the collector has said what it lost
	}
}
