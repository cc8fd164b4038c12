package telemetry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	"errand/internal/history/historytest"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// lines is a log that several goroutines write.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// deliver makes the spans of a delivery.
func deliver(ctx context.Context, t *Tracer) {
	_, span := t.Process(ctx, Delivery{Subject: "mandate.enroll.requested", Consumer: "mandate-enroll", Number: 1})
	span.End(Ending{Request: "a", State: messages.Succeeded})
}

// What a program without a collector pays for traces.
func TestWithoutACollectorNothingIsAllocated(t *testing.T) {
	tracer, err := Config{}.Open("program", "dev", zerolog.Nop())
	if err != nil || tracer != nil {
		t.Fatalf("got %v, %v", tracer, err)
	}
	log := &historytest.Log{}
	if tracer.Log(log) != log {
		t.Error("the log is another one")
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if n := testing.AllocsPerRun(100, func() {
		deliver(t.Context(), tracer)
		if response, err := tracer.Transport(none{}).RoundTrip(r); err == nil {
			_ = response.Body.Close()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	tracer.Close(t.Context())
}

// none is a network without a server.
type none struct{}

var errNone = errors.New("nobody is there")

func (none) RoundTrip(*http.Request) (*http.Response, error) { return nil, errNone }

func TestTracesAreOnWhereThereIsACollector(t *testing.T) {
	for _, c := range []struct {
		config   Config
		on       bool
		variable string // that is wrong
	}{
		{Config{}, false, ""},
		{Config{Protocol: "grpc", Exporter: "zipkin"}, false, ""}, // for the others of a cluster
		{Config{Exporter: "otlp"}, false, ""},
		{Config{Endpoint: "http://127.0.0.1:4318"}, true, ""},
		{Config{TracesEndpoint: "https://traces.example.test/in"}, true, ""},
		{Config{Endpoint: "http://127.0.0.1:4318", Exporter: "none"}, false, ""},
		{Config{Endpoint: "http://127.0.0.1:4318", Disabled: "True"}, false, ""},
		{Config{Endpoint: "http://127.0.0.1:4318", Disabled: "false", Exporter: "otlp", Protocol: "http/protobuf",
			Headers: "a=b, c=d%20e"}, true, ""},
		{Config{Endpoint: "127.0.0.1:4318"}, true, "OTEL_EXPORTER_OTLP_ENDPOINT"},
		{Config{Endpoint: "http://me:hush@127.0.0.1:4318"}, true, "OTEL_EXPORTER_OTLP_ENDPOINT"},
		{Config{TracesEndpoint: "traces"}, true, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"},
		{Config{Endpoint: "http://127.0.0.1:4317", Protocol: "grpc"}, true, "OTEL_EXPORTER_OTLP_PROTOCOL"},
		{Config{Endpoint: "http://127.0.0.1:4318", Exporter: "zipkin"}, true, "OTEL_TRACES_EXPORTER"},
		{Config{Endpoint: "http://127.0.0.1:4318", Headers: "hush"}, true, "OTEL_EXPORTER_OTLP_HEADERS"},
		{Config{Endpoint: "http://127.0.0.1:4318", Certificate: "/nowhere"}, true, "OTEL_EXPORTER_OTLP_CERTIFICATE"},
	} {
		variable, problem := c.config.Fault()
		if c.config.On() != c.on || variable != c.variable || (problem == "") != (variable == "") || strings.Contains(problem, "hush") {
			t.Errorf("%+v: on %v, %s %s", c.config, c.config.On(), variable, problem)
		}
	}
}

// A collector gets what the standard says, where and as it says.
func TestACollectorGetsSpansByOTLP(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=here")
	var got *otlp.TracesData
	var asked string
	tries := 0
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tries++; tries == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		body, err := io.ReadAll(r.Body)
		got = &otlp.TracesData{}
		if err != nil || proto.Unmarshal(body, got) != nil {
			t.Errorf("got %q, %v", body, err)
		}
		asked = r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type") + " " + r.Header.Get("X-Key")
	}))
	defer web.Close()
	said := &lines{}
	tracer, err := Config{Endpoint: web.URL + "/", Headers: "X-Key=its%20key"}.Open("mandate-consumer", "1.2.3", zerolog.New(said))
	if err != nil {
		t.Fatal(err)
	}
	deliver(t.Context(), tracer)
	if err := tracer.provider.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
	tracer.Close(t.Context())
	if want := "POST /v1/traces application/x-protobuf its key"; asked != want || said.String() != "" {
		t.Fatalf("got %s, want %s; the log: %s", asked, want, said)
	}
	about := map[string]string{}
	for _, a := range got.GetResourceSpans()[0].GetResource().GetAttributes() {
		about[a.GetKey()] = a.GetValue().GetStringValue()
	}
	for key, want := range map[string]string{"service.name": "mandate-consumer", "service.version": "1.2.3",
		"service.namespace": "errand", "deployment.environment.name": "here"} {
		if about[key] != want {
			t.Errorf("%s is %q, want %q", key, about[key], want)
		}
	}
	if s := got.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans(); len(s) != 1 || s[0].GetName() != "process mandate.enroll.requested" {
		t.Errorf("spans: %v", s)
	}
}

// silent is a collector that takes spans and never answers.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// Without its collector a program works as fast as with it, says so once an hour at most, and
// ends when it is to.
func TestACollectorThatIsGoneKeepsNobodyWaiting(t *testing.T) {
	for name, network := range map[string]http.RoundTripper{"none": none{}, "silent": silent{}} {
		synctest.Test(t, func(t *testing.T) {
			said := &lines{}
			to := &collector{url: "http://collector.example.test", transport: network,
				log: zerolog.New(said), said: rate.Sometimes{Interval: retry.SpansLost}, ending: make(chan struct{})}
			provider := sdk.NewTracerProvider(sdk.WithBatcher(otlptrace.NewUnstarted(to)))
			tracer := &Tracer{tracer: provider.Tracer("test"), provider: provider, ends: func() { close(to.ending) }}
			for minute := range 90 { // an hour and a half
				began, n := time.Now(), 10
				if minute == 0 {
					n = 5000 // more than are kept
				}
				for range n {
					deliver(t.Context(), tracer)
				}
				if waited := time.Since(began); waited != 0 {
					t.Fatalf("%s: spans took %v", name, waited)
				}
				time.Sleep(time.Minute)
			}
			deliver(t.Context(), tracer)
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			tracer.Close(ctx)
			if waited := time.Since(began); waited > time.Second {
				t.Errorf("%s: the end took %v", name, waited)
			}
			if n := strings.Count(said.String(), "\n"); n != 2 || !strings.Contains(said.String(), "spans of traces are lost") {
				t.Errorf("%s: the log has %d lines, want 2:\n%s", name, n, said)
			}
			time.Sleep(time.Minute) // what is under way gives up
		})
	}
}

// An error of a call is named by its kind, and not by its text.
func TestErrorsOfCallsHaveKinds(t *testing.T) {
	got := map[string]string{}
	for name, err := range map[string]error{"deadline": context.DeadlineExceeded, "canceled": context.Canceled,
		"cut": io.ErrUnexpectedEOF, "other": errors.New("ann@example.test")} {
		got[name] = kindOf(err)
	}
	want := map[string]string{"deadline": "timeout", "canceled": "canceled", "cut": "cut_off", "other": "connection"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
