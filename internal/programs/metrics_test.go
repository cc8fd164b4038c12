package programs

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/internal/requests/consumer"
	"errand/internal/requests/hold"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// A request that makes several calls at once is still one busy worker; one that waits for a retry is not busy.
func TestBusyWorkersAreRequestsInCalls(t *testing.T) {
	for _, c := range []struct {
		one, other int
		calls      int64
		want       float64
	}{{0, 0, 0, 0}, {2, 0, 8, 0.5}, {2, 1, 1, 0.25}, {3, 1, 4, 1}, {0, 1, 1, 0.25}} {
		calls := new(atomic.Int64)
		calls.Store(c.calls)
		h := workers{4, []func() int{func() int { return c.one }, func() int { return c.other }}, calls}
		if got := h.busyRatio(); got != c.want {
			t.Errorf("%d and %d in flight, %d calls: %v, want %v", c.one, c.other, c.calls, got, c.want)
		}
	}
}

// What alerts look for exists from the start: a counter at zero, and a lag that grows until the first sweep is complete. Until
// then a poller does not say how far it has read.
func TestAPollerIsMeasuredBeforeItsFirstSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics()
		m.ofDeliveries()
		time.Sleep(time.Hour)
		families, err := m.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]float64{}
		for _, f := range families {
			for _, one := range f.GetMetric() {
				found[f.GetName()] += one.GetGauge().GetValue() + one.GetCounter().GetValue() + float64(one.GetHistogram().GetSampleCount())
			}
		}
		r := &runtime{metrics: m, natsCheck: natsCheck{onDemand: true}} // it has stored nothing
		if read := r.status().ReadThrough; read != nil {
			t.Errorf("it says that it has read through %v", read)
		}
		m.readThrough(time.Minute)
		if read := r.status().ReadThrough; read == nil || !read.Equal(time.Now().Add(-time.Minute)) {
			t.Errorf("it says that it has read through %v, not a minute ago", read)
		}
		for name, want := range map[string]float64{"errand_poll_lag_seconds": 3600, "errand_upstream_call_duration_seconds": 0} {
			if got, there := found[name]; !there || got != want {
				t.Errorf("%s is %v (%v), want %v", name, got, there, want)
			}
		}
	})
}

// A copy counts while it follows the leader; without a report nothing is shown of a stream.
func TestStreamsShowTheirSizeAndTheCopiesThatFollow(t *testing.T) {
	m := newMetrics()
	m.ofStreams([]string{"A", "B"}, func() map[string]string { return map[string]string{"B": "full"} })
	peers := []*jetstream.PeerInfo{{Current: true}, {Current: true, Offline: true}, {}}
	m.set(bus.Found{Queues: map[string]jetstream.Consumer{}, Streams: map[string]*jetstream.StreamInfo{
		"A": {Config: jetstream.StreamConfig{MaxBytes: -1, Replicas: 1, Discard: jetstream.DiscardNew}, State: jetstream.StreamState{Bytes: 10}},
		"B": {Config: jetstream.StreamConfig{MaxBytes: 30, Replicas: 4, Discard: jetstream.DiscardNew}, State: jetstream.StreamState{Bytes: 20},
			Cluster: &jetstream.ClusterInfo{Leader: "n0", Replicas: peers}},
	}})
	want := map[string]float64{
		"errand_stream_bytes A": 10, "errand_stream_max_bytes A": 0, "errand_stream_replicas A": 1, "errand_stream_replicas_current A": 1,
		"errand_stream_fault A": 0,
		"errand_stream_bytes B": 20, "errand_stream_max_bytes B": 30, "errand_stream_replicas B": 4, "errand_stream_replicas_current B": 2,
		"errand_stream_fault B": 1,
	}
	if diff := cmp.Diff(want, streamValues(t, m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	m.set(bus.Found{})
	if diff := cmp.Diff(map[string]float64{"errand_stream_fault A": 0, "errand_stream_fault B": 1}, streamValues(t, m)); diff != "" {
		t.Errorf("no answer (-want +got):\n%s", diff)
	}
}

// What goes wrong is there at zero from the start, and is counted by its reason; no text
// of another program becomes a label.
func TestRequestsAreCountedByReason(t *testing.T) {
	m := newMetrics()
	m.ofRequests(workers{1, nil, new(atomic.Int64)}, messages.Enroll, messages.Account)
	for _, o := range []consumer.Outcome{
		{Operation: messages.Enroll, State: messages.Succeeded, Took: 300 * time.Millisecond, Age: time.Hour},
		{Operation: messages.Enroll, State: messages.Failed, Reason: messages.ReasonRefused, DeadLetter: true, Took: 3 * time.Second,
			Age: 3 * time.Second},
		{Operation: messages.Enroll, State: messages.Failed, Reason: messages.ReasonRefused, DeadLetter: true, Repeated: true},
		{Operation: messages.Enroll, State: messages.Failed, Reason: "of a newer program"},
	} {
		m.requests.settled(o)
	}
	log := countingLog{&historytest.Log{}, m.requests}
	h := &history.History{Log: log, Operation: messages.Enroll, ID: "a"}
	if err := h.Store(t.Context(), messages.Deferred, &messages.DeferredBody{Reason: messages.ReasonBusy}); err != nil {
		t.Fatal(err)
	}
	page := string(scrape(t, m))
	for _, want := range []string{
		`errand_requests_total{operation="mandate.enroll",outcome="succeeded",reason=""} 1`,
		`errand_requests_total{operation="mandate.enroll",outcome="failed",reason="refused"} 1`,
		`errand_requests_total{operation="mandate.enroll",outcome="failed",reason="other"} 1`,
		`errand_requests_total{operation="mandate.enroll",outcome="repeated",reason=""} 1`,
		`errand_requests_total{operation="mandate.enroll",outcome="uncertain",reason="no_answer"} 0`,
		`errand_requests_total{operation="mail.account",outcome="failed",reason="held"} 0`,
		`errand_dead_letters_total{operation="mandate.enroll",reason="refused"} 2`,
		`errand_deferred_total{operation="mandate.enroll",reason="busy"} 1`,
		`errand_request_duration_seconds_bucket{operation="mandate.enroll",le="0.3"} 3`,
		`errand_request_duration_seconds_bucket{operation="mandate.enroll",le="3"} 4`,
		`errand_request_age_seconds_bucket{operation="mandate.enroll",outcome="succeeded",le="900"} 0`,
		`errand_request_age_seconds_bucket{operation="mandate.enroll",outcome="succeeded",le="3600"} 1`,
	} {
		if !strings.Contains(page, "\n"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(page, `outcome="uncertain",reason="no_answer",operation="mail.account"`) || strings.Contains(page, "newer program") {
		t.Error(page)
	}
}

// A hold is counted by what began it.
func TestHoldsAreCountedByCause(t *testing.T) {
	m := newMetrics()
	h := &hold.Hold{Interval: time.Minute, Log: zerolog.Nop()}
	m.ofHold(messages.Enroll, h)
	for _, id := range []string{"a", "b", "c"} {
		p := h.Permit()
		p.Admit(id)
		p.Observe(hold.Call{Err: &clients.Error{Fate: clients.Held, Status: 401}})
	}
	page := string(scrape(t, m))
	for _, want := range []string{`errand_holds_total{cause="refused",operation="mandate.enroll"} 1`,
		`errand_holds_total{cause="no_answer",operation="mandate.enroll"} 0`} {
		if !strings.Contains(page, "\n"+want+"\n") {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
}

// A person who reads the log from its start knows what runs, and what it works with.
func TestAStartSaysWhatIsStarted(t *testing.T) {
	var said bytes.Buffer
	r := &runtime{log: zerolog.New(&said)}
	r.logStart(bus.Connection{URL: "nats://me:hush@nats.example.test:4222"}.Servers(), "https://mandates.example.test/base")
	version, revision, goVersion := build()
	want := fmt.Sprintf(`{"level":"info","version":%q,"revision":%q,"go":%q,"nats":["nats://nats.example.test:4222"],`+
		`"upstream":"mandates.example.test","message":"starting"}`+"\n",
		version, revision, goVersion)
	if said.String() != want {
		t.Errorf("got %s, want %s", said.String(), want)
	}
}

// scrape is what /metrics shows.
func scrape(t *testing.T, m *metrics) []byte {
	t.Helper()
	w := httptest.NewRecorder()
	adminServer(&readiness{}, m.registry).Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatal(w.Body)
	}
	return w.Body.Bytes()
}

// streamValues are the metrics about streams, by name and stream.
func streamValues(t *testing.T, m *metrics) map[string]float64 {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			if strings.HasPrefix(f.GetName(), "errand_stream_") {
				out[f.GetName()+" "+one.GetLabel()[0].GetValue()] = one.GetGauge().GetValue()
			}
		}
	}
	return out
}
