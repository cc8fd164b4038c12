package bus_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
)

// A replica that lags behind, and answers direct gets, does not have what was stored last: only
// the leader can say that it is gone.
func TestAMessageThatAReplicaLacksIsAskedOfTheLeader(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js, events := streamOf(t, nc, bus.MandateEvents)
	config := events.CachedInfo().Config
	config.AllowDirect = false // the replica is played here
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	stored, err := js.Publish(t.Context(), "mandate.enroll.started.r1", []byte("{}"), jetstream.WithExpectStream(bus.MandateEvents))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Subscribe("$JS.API.DIRECT.GET."+bus.MandateEvents, func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"404"}, "Description": {"Message Not Found"}}})
	}); err != nil {
		t.Fatal(err)
	}
	for sequence, want := range map[uint64]string{stored.Sequence: "mandate.enroll.started.r1", stored.Sequence + 1: ""} {
		if got, err := bus.SubjectAt(t.Context(), nc, bus.MandateEvents, sequence); err != nil || got != want {
			t.Errorf("at %d: %q, %v; want %q", sequence, got, err, want)
		}
	}
}
