package devtest

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit"
)

func TestMain(m *testing.M) { Main(m) }

func TestBubbleHasATopologyAndVirtualTime(t *testing.T) {
	began := time.Now()
	InBubble(t, func(t *testing.T, _ *devkit.NATS, nc *nats.Conn) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		js, err := bus.JetStream(ctx, nc)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := bus.Plan(ctx, js, Limits(nc))
		if err != nil || len(plan) > 0 {
			t.Errorf("provisioned server still needs %v, %v", plan, err)
		}
		<-time.After(time.Hour)
	})
	if took := time.Since(began); took > time.Minute {
		t.Errorf("an hour in the bubble took %v", took)
	}
}
