package programs

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
)

// Nobody would send anything to a receiver that is not ready, so that it would never learn that there is room again.
func TestAReceiverThatCouldNotStoreStaysReadyToTryAgain(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	r := &runtime{metrics: newMetrics(), nc: nc}
	var err error
	if r.js, err = bus.JetStream(t.Context(), nc); err == nil {
		r.publisher, err = bus.NewPublisher(nc)
	}
	if err != nil {
		t.Fatal(err)
	}
	stream, err := r.js.Stream(t.Context(), bus.MandateCallbacks)
	if err != nil {
		t.Fatal(err)
	}
	full := stream.CachedInfo().Config
	full.MaxBytes, full.Discard = 1, jetstream.DiscardNew
	if _, err := r.js.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	if _, err := r.publisher.Publish(t.Context(), nats.NewMsg("mandate.callback.received.a")); err == nil {
		t.Fatal("it was stored")
	}
	problem := func() string { return r.problem(t.Context(), nil, []string{bus.MandateCallbacks}) }
	if why := problem(); !strings.Contains(why, "maximum bytes exceeded") {
		t.Errorf("a program that tries again by itself: %q", why)
	}
	r.onDemand = true
	if why := problem(); why != "" {
		t.Errorf("a receiver: %q", why)
	}
	if err := r.js.DeleteStream(t.Context(), bus.MandateCallbacks); err != nil {
		t.Fatal(err)
	}
	if why := problem(); why == "" {
		t.Error("a receiver without its stream is ready")
	}
}
