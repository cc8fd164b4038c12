package e2e

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"

	"errand/internal/sandbox/devkit"
)

// NATS is away for half an hour, all of it or only its JetStream, with calls in flight and more requests waiting: each
// call has an outcome or is known to be lost, none is made twice, the waiting ones are made, and the log stays short.
func TestHalfAnHourWithoutNATSLosesNothing(t *testing.T) {
	full(t) // nor under the race detector: the server itself races when its JetStream is enabled
	for name, c := range map[string]struct {
		gone, back func(*devkit.NATS, string) error
	}{
		"stopped": {func(n *devkit.NATS, _ string) error { n.Stop(); return nil }, func(n *devkit.NATS, _ string) error { return n.Restart() }},
		"without JetStream": {func(n *devkit.NATS, _ string) error { return n.Server.DisableJetStream() },
			func(n *devkit.NATS, store string) error {
				return n.Server.EnableJetStream(&server.JetStreamConfig{StoreDir: store})
			}},
	} {
		runInBubble(t, name, func(t *testing.T, b *bubble) {
			const requests = 20
			b.latency(3 * time.Second)
			b.request(enrollOp, "r", requests, "on_unknown", "report")
			p, said := b.mandates(), &output{}
			log := zerolog.New(said).Level(zerolog.InfoLevel)
			p.Logger = &log
			stop := b.running(p)
			time.Sleep(4 * time.Second)                     // the first calls are done, the second ones in flight
			store := filepath.Dir(b.nats.Server.StoreDir()) // the server adds a folder of its own
			must(t, c.gone(b.nats, store))
			before := said.count()
			time.Sleep(30 * time.Minute)
			n := said.count() - before
			errorIf(t, n < 1 || n > 30, "%d lines of log in half an hour\n%s", n, said)
			calls := b.calls("enroll")
			must(t, c.back(b.nats, store))
			time.Sleep(3 * time.Minute)
			stop()
			errorIf(t, said.count("what the program needs of NATS is there again") == 0, "it does not say that it works again\n%s", said)
			for i := range requests {
				id := fmt.Sprint("r", i)
				got := b.count("mandate.enroll.succeeded."+id) + b.count("mandate.enroll.uncertain."+id)
				errorIf(t, got != 1, "%s has %d outcomes", id, got)
			}
			o := b.oracle()
			errorIf(t, calls < 8 || calls >= requests || o.Calls["enroll"] != requests || o.Enroll.TwiceCount != 0,
				"%d calls before and %d after, for %d requests", calls, o.Calls["enroll"], requests)
			b.queueEmpty("MANDATE_REQUESTS")
			t.Logf("%d succeeded; %d lines of log", b.count("mandate.enroll.succeeded.*"), said.count())
		})
	}
}
