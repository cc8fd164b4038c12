package e2e

import (
	"context"
	"testing"
	"time"

	"errand/internal/sandbox/devkit/devtest"
)

// A killed server that comes back over its store has what it acknowledged, and its
// clients come back by themselves.
func TestABrokerSurvivesItsKill(t *testing.T) {
	t.Parallel()
	b := brokers(t, 1, "")[0]
	nc := connect(t, b.url)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, devtest.Provision(ctx, nc))
	b.kill()
	b.start()
	b.ready()
	must(t, devtest.Provision(ctx, nc))
}
