package e2e

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/sandbox"
	"errand/internal/sandbox/devkit"
)

// filler is a stream that takes the room of the others.
const filler = "FILLER"

// The account, or the whole server, has no room while calls are under way: each program
// says at /readyz what the server answers, for as long as that lasts; it stores its
// outcomes when there is room, and is ready again by itself.
func TestNoRoomShowsInReadinessUntilThereIsSome(t *testing.T) {
	for _, c := range []struct {
		name, says string
		fill       func(*testing.T, *installation) (room func())
	}{
		{"account", "resource limits exceeded for account", func(t *testing.T, in *installation) func() {
			account, err := in.nats.Server.LookupAccount("ERRAND")
			must(t, err)
			return limitAccount(t, account)
		}},
		{"server", "insufficient resources", fillServer},
	} {
		for _, p := range writes {
			t.Run(c.name+", "+p.program, func(t *testing.T) {
				dir := releaseBuild.programs(t)
				parallel(t)
				n, err := devkit.Configured(t.TempDir(), strings.ReplaceAll(natsConfig(t), "max_file: 256MB", "max_file: 1MB")+"jetstream { max_file_store: 10MB }\n")
				must(t, err)
				t.Cleanup(n.Close)
				in := installAt(t, dir, n.URL, 1, "UPSTREAM_TIMEOUT=20s")
				in.nats = n
				in.publish(p.Requested(), p.request("warm"))
				program := in.start(p.program)
				in.waitOutcomes(p.events(), 1, time.Minute)
				in.untilReady(program)

				in.fault(sandbox.Fault{Operation: p.call, Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(2 * time.Second)})
				in.publish(p.Requested(), p.request("r1", "on_unknown", "report"))
				in.until("the call", time.Minute, func() bool { return in.calls(p.call) == 2 })
				room := c.fill(t, in)
				status, page := 0, ""
				shows := func() bool {
					status, page = program.get("/readyz")
					return status == http.StatusServiceUnavailable && strings.Contains(page, c.says)
				}
				for end := time.Now().Add(20 * time.Second); !shows() && time.Now().Before(end); {
					wait(t.Context(), 500*time.Millisecond)
				}
				for range 20 {
					if !shows() {
						t.Errorf("/readyz answers %d %q while there is no room, want 503 and %q", status, page, c.says)
						break
					}
					wait(t.Context(), 500*time.Millisecond)
				}
				room()
				in.waitOutcomes(p.events(), 2, time.Minute)
				in.untilReady(program)
				program.stop(time.Minute)
				if succeeded, calls := in.count(p.good()), in.calls(p.call); succeeded != 2 || calls != 2 {
					t.Errorf("%d of 2 succeeded, with %d calls: %v", succeeded, calls, in.subjects(p.events()))
				}
				if left := in.unsettled(p.queue); left != 0 {
					t.Errorf("%d requests left", left)
				}
			})
		}
	}
}

// fillServer takes all the room that the server has for files.
func fillServer(t *testing.T, in *installation) (room func()) {
	if _, err := in.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: filler, Subjects: []string{"filler"}}); err != nil {
		t.Fatal(err)
	}
	var full *jetstream.APIError
	for block := make([]byte, 256<<10); full == nil; {
		if _, err := in.js.Publish(t.Context(), "filler", block); err != nil && !errors.As(err, &full) {
			t.Fatal(err)
		}
	}
	return func() {
		noError(t, in.js.DeleteStream(t.Context(), filler))
	}
}
