package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"errand/internal/sandbox"
)

// spanRecorder keeps the spans that a program sends.
type spanRecorder struct {
	mu  sync.Mutex
	all []sdk.ReadOnlySpan
}

func (r *spanRecorder) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, spans...)
	return nil
}

func (*spanRecorder) Shutdown(context.Context) error { return nil }

// named are the spans of a name, in the order of their beginnings.
func (r *spanRecorder) named(name string) (found []sdk.ReadOnlySpan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.all {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	slices.SortStableFunc(found, func(a, b sdk.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	return found
}

// one is the only span of a name.
func (r *spanRecorder) one(t *testing.T, name string) sdk.ReadOnlySpan {
	t.Helper()
	found := r.named(name)
	fatalIf(t, len(found) != 1, "%d spans are named %s, want 1; all: %s", len(found), name, r)
	return found[0]
}

// String shows all that spans say.
func (r *spanRecorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, s := range r.all {
		fmt.Fprintln(&b, s.Name(), s.Status(), said(s), s.Events(), s.Links(), s.SpanContext().TraceState(), s.Resource())
	}
	return b.String()
}

// said are a span's attributes: "errand.state=failed error.type=refused".
func said(s sdk.ReadOnlySpan) string {
	var all []string
	for _, a := range s.Attributes() {
		all = append(all, string(a.Key)+"="+a.Value.String())
	}
	return strings.Join(all, " ")
}

func wantSaid(t *testing.T, s sdk.ReadOnlySpan, kind trace.SpanKind, want ...string) {
	t.Helper()
	errorIf(t, s.SpanKind() != kind, "%s is of kind %s, want %s", s.Name(), s.SpanKind(), kind)
	for _, w := range want {
		errorIf(t, !strings.Contains(" "+said(s)+" ", " "+w+" "), "%s says %s, want %s", s.Name(), said(s), w)
	}
}

// The context that a publisher sends with its requests.
const (
	publisherTrace, publisherSpan = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	publisherContext              = "00-" + publisherTrace + "-" + publisherSpan + "-01"
)

// traced publishes a request in the publisher's span.
func (b *bubble) traced(subject string, body any) {
	b.t.Helper()
	b.publishMsg(&nats.Msg{Subject: subject, Data: encode(b.t, body),
		Header: nats.Header{"traceparent": {publisherContext}, "tracestate": {"shop=1"}}})
}

// ofThePublisher fails unless a span is a child of the publisher's, and linked to it.
func ofThePublisher(t *testing.T, s sdk.ReadOnlySpan) {
	t.Helper()
	links := s.Links()
	errorIf(t, s.Parent().SpanID().String() != publisherSpan || s.SpanContext().TraceID().String() != publisherTrace || len(links) != 1 ||
		links[0].SpanContext.SpanID().String() != publisherSpan, "%s has the parent %s and the links %v", s.Name(), s.Parent().SpanID(), links)
}

// From the publisher over the delivery and the upstream's call to the reader of the outcome, it is one trace.
func TestATraceGoesFromThePublisherToTheSubscriber(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		spans, p := &spanRecorder{}, b.mandates()
		p.Tracing.Spans = spans
		b.traced("mandate.enroll.requested", enrollment("done"))
		b.run(p, time.Minute, b.published("mandate.enroll.succeeded.done", 1))

		process := spans.one(t, "process mandate.enroll.requested")
		ofThePublisher(t, process)
		wantSaid(t, process, trace.SpanKindConsumer, "messaging.system=nats", "messaging.operation.name=process",
			"messaging.operation.type=process",
			"messaging.destination.name=mandate.enroll.requested", "messaging.consumer.group.name=mandate-enroll",
			"messaging.message.conversation_id=done",
			"errand.state=succeeded", "errand.delivery=1", "errand.attempt=1", "errand.repeated=false", "errand.probe=false")
		call := spans.one(t, "POST /v3/mandates")
		wantSaid(t, call, trace.SpanKindClient, "http.request.method=POST", "server.address=127.0.0.1", "server.port=8085",
			"url.full=http://127.0.0.1:8085/v3/mandates",
			"http.response.status_code=200", "network.protocol.version=1.1")
		for _, state := range []string{"started", "succeeded"} {
			s, e := spans.one(t, "publish mandate.enroll."+state+".{request_id}"), b.wantOne("mandate.enroll."+state+".done")
			wantSaid(t, s, trace.SpanKindProducer, "messaging.operation.name=publish", "messaging.operation.type=send",
				"messaging.destination.name=mandate.enroll."+state+".done")
			if want := "00-" + publisherTrace + "-" + s.SpanContext().SpanID().String() + "-01"; e.Header.Get("traceparent") != want ||
				e.Header.Get("tracestate") != "shop=1" {
				t.Errorf("%s goes on from %s %s, want %s", state, e.Header.Get("traceparent"), e.Header.Get("tracestate"), want)
			}
			errorIf(t, s.Parent().SpanID() != process.SpanContext().SpanID() || call.Parent().SpanID() != process.SpanContext().SpanID(),
				"%s and the call are children of %s and %s", state, s.Parent().SpanID(), call.Parent().SpanID())
		}
		text := spans.String()
		errorIf(t, !strings.Contains(text, "service.name=mandate-consumer") || strings.Contains(text, "Error"), "spans: %s", text)
	})
}

// Each delivery is a span of the publisher's, with all its calls; what went wrong is an error
// with the reason; a deferral is not.
func TestATraceShowsRetriesRedeliveriesAndFailures(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		spans, p := &spanRecorder{}, b.mandates()
		p.Tracing.Spans, p.RetryTries = spans, 2
		b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 503, Match: "order-busy", Times: 3})
		b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 422, Match: "order-refused",
			Body: []byte(`{"message":"ann@example.test is not wanted"}`)})
		for _, id := range []string{"busy", "refused"} {
			b.traced("mandate.enroll.requested", enrollment(id))
		}
		b.run(p, time.Hour, func() bool {
			return b.count("mandate.enroll.succeeded.busy") > 0 && b.count("mandate.enroll.failed.refused") > 0
		})
		var endings []string
		for _, s := range spans.named("process mandate.enroll.requested") {
			ofThePublisher(t, s)
			id := "busy"
			if strings.Contains(said(s), "conversation_id=refused") {
				id = "refused"
			}
			_, state, _ := strings.Cut(said(s), "errand.state=")
			endings = append(endings, id+" "+strings.Fields(state)[0]+" "+s.Status().Code.String()+s.Status().Description)
			if id == "refused" {
				wantSaid(t, s, trace.SpanKindConsumer, "error.type=refused", "errand.reason=refused")
			}
		}
		slices.Sort(endings)
		got, want := strings.Join(endings, ", "), "busy deferred Unset, busy succeeded Unset, refused failed Errorrefused"
		errorIf(t, got != want, "deliveries: %s, want %s", got, want)
		failed := 0
		for _, s := range spans.named("POST /v3/mandates") {
			if strings.Contains(said(s), "error.type=503") && s.Status().Code.String() == "Error" {
				failed++
			}
		}
		n := len(spans.named("POST /v3/mandates"))
		errorIf(t, n != 5 || failed != 3, "%d calls, %d of them 503, want 5 and 3: %s", n, failed, spans)
		spans.one(t, "publish mandate.enroll.deferred.{request_id}")
		if s := spans.one(t, "publish dead.mandate.enroll.requested"); s.SpanContext().TraceID().String() != publisherTrace {
			t.Errorf("the dead letter is of the trace %s", s.SpanContext().TraceID())
		}
	})
}

// The read of a probe has a separate trace; the request that ends the hold is marked.
func TestATraceShowsTheProbeOfAHold(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		spans, p := &spanRecorder{}, b.mandates()
		p.Tracing.Spans = spans
		b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 401, Times: 2})
		for _, id := range []string{"a", "b"} {
			b.traced("mandate.enroll.requested", enrollment(id))
		}
		b.run(p, time.Hour, b.published("mandate.enroll.succeeded.*", 2))
		probes := 0
		for _, s := range spans.named("process mandate.enroll.requested") {
			ofThePublisher(t, s)
			if strings.Contains(said(s), "errand.probe=true") {
				probes++
				wantSaid(t, s, trace.SpanKindConsumer, "errand.state=succeeded")
			} else if strings.Contains(said(s), "errand.delivery=1 ") {
				wantSaid(t, s, trace.SpanKindConsumer, "errand.state=deferred", "errand.reason=held")
			}
		}
		reads := spans.named("GET /v3/mandates/transactions")
		errorIf(t, probes != 1 || len(reads) == 0 || reads[0].Parent().IsValid(), "%d probes, %d reads: %s", probes, len(reads), spans)
	})
}

// What a request and the upstream's answers say of a payer, an order, a recipient or a secret
// is in no span, whatever became of the request.
func TestNoSpanHoldsWhatARequestSays(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		spans, p, m := &spanRecorder{}, b.mandates(), b.mails()
		p.Tracing.Spans, m.Tracing.Spans, m.BatchSize = spans, spans, 1
		for i, f := range []sandbox.Fault{{Kind: sandbox.Status, Status: 422}, {Kind: sandbox.AcceptCut}, {Kind: sandbox.Status, Status: 200}} {
			f.Operation, f.Match = "enroll", fmt.Sprintf("marked-order-%d", i)
			f.Body = []byte(fmt.Sprintf(`{"message":"%s is not wanted","errors":{"%[1]s":["%[1]s, marked-order-%d"]}}`, payer["payer_email"], i))
			b.fault(f)
		}
		for i := range 4 {
			b.publish("mandate.enroll.requested", ofPayer(fmt.Sprint("e", i), "order_number", fmt.Sprintf("marked-order-%d", i), "portal_key",
				"marked-portal-key", "on_unknown", "report"))
		}
		b.publish("mandate.enroll.requested", []byte(`{"request_id":"bad","payer_email":"zoe@quill.example.test","zoe@quill.example.test":1}`))
		b.publish("mandate.transactions.requested", map[string]any{"request_id": "all", "payer_email": payer["payer_email"],
			"order_number": "marked-order-0"})
		b.publish("mail.send.requested", map[string]any{"request_id": "m", "from": "marked@example.test",
			"to":      []string{"zoe@quill.example.test", "two@quill.example.test", "no address"},
			"subject": "marked-subject", "content": "marked-content"})
		b.run(p, time.Hour, func() bool {
			return b.count("dead.mandate.enroll.requested")+b.count("mandate.enroll.succeeded.*") > 4 &&
				b.count("mandate.transactions.listed.all") > 0
		})
		b.run(m, time.Minute, b.published("mail.send.accepted.m", 1))
		text := strings.ToLower(spans.String())
		for _, secret := range []string{"marked", "quill", "zoe", payer["payer_id"], payer["payer_telephone_number"], "token-for-tests",
			"key-for-tests", "portal-for-tests", "not wanted", "?"} {
			errorIf(t, strings.Contains(text, secret), "a span holds %s: %s", secret, text)
		}
		for name, n := range map[string]int{"POST /v3/mandates": 4, "GET /v3/mandates/transactions": 1, "POST /api/v0/messages": 2,
			"publish mail.batch.accepted.{request_id}":      2,
			"publish mandate.enroll.uncertain.{request_id}": 1} {
			got := len(spans.named(name))
			errorIf(t, got < n, "%d spans are named %s, want %d: it was looked in too little\n%s", got, name, n, text)
		}
	})
}

// A collector that nobody reaches costs the log a line, and requests nothing.
func TestWithoutItsCollectorAProgramWorksAndEnds(t *testing.T) {
	in := install(t)
	in.publishRequests(2)
	for _, c := range writes {
		p := in.start(c.program, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_BSP_SCHEDULE_DELAY=50")
		in.waitOutcomes(c.events(), 2, time.Minute)
		p.stop(time.Minute)
		if !p.logged(`"level":"warn"`, "spans of traces are lost", "connection refused") || strings.Count(p.lastOutput(), "spans of traces") > 1 {
			t.Errorf("%s does not say once that it reaches no collector:\n%s", c.program, p.lastOutput())
		}
		in.wantOnce(c.queue, c.good(), c.call, 2)
	}
}
