package bus_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// Everything that is asked of JetStream goes to the domain or under the prefix that the connection names.
func TestJetStreamMayBeInAnotherDomainOrUnderAnotherPrefix(t *testing.T) {
	ports, err := devkit.Addresses(1)
	must(t, err)
	devtest.Configured(t, fmt.Sprintf(`server_name: hub
		jetstream { domain: hub }
		leafnodes { listen: %q }`, ports[0]))
	leaf := devtest.Configured(t, fmt.Sprintf(`server_name: leaf
		jetstream { domain: leaf }
		leafnodes { remotes: [ { url: "nats-leaf://%s" } ] }`, ports[0]))
	other := devtest.Configured(t, `accounts {
		ERRAND { jetstream: enabled, users: [ { user: a, password: a } ]
			exports: [ { service: "$JS.API.>", response_type: stream }, { service: "$JS.ACK.>" },
			{ service: "*.*" }, { service: "*.*.*" }, { service: "*.*.*.*" } ] }
		OTHER { users: [ { user: b, password: b } ], imports: [ { service: { account: ERRAND, subject: "$JS.API.>" }, to: "JS.errand.API.>" },
			{ service: { account: ERRAND, subject: "$JS.ACK.>" } }, { service: { account: ERRAND, subject: "*.*" } },
			{ service: { account: ERRAND, subject: "*.*.*" } },
			{ service: { account: ERRAND, subject: "*.*.*.*" } } ] } }`)
	for name, to := range map[string]bus.Connection{
		"domain": {URL: leaf.URL, JSDomain: "hub"},
		"prefix": {URL: other.URL, User: "b", Password: "b", JSPrefix: "JS.errand.API."},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, to.Validate())
			nc, err := bus.Connect(to, "test", zerolog.Nop())
			must(t, err)
			defer nc.Close()
			ctx := t.Context()
			var js jetstream.JetStream
			for end := time.Now().Add(10 * time.Second); ; { // the leaf connects
				if js, err = bus.JetStream(ctx, nc); err == nil || time.Now().After(end) {
					break
				}
			}
			must(t, err)
			plan, err := bus.Plan(ctx, js, devtest.Limits(nc))
			must(t, err)
			must(t, bus.Apply(ctx, plan, false, func(bus.Change) {}))
			found, err := bus.Check(ctx, js, bus.Queues(), bus.MailEvents)
			must(t, err)

			_, err = js.Publish(ctx, "mail.account.requested", []byte(`{}`))
			must(t, err)
			pull := bus.NewPull(nc, found.Queues["mail-account"])
			defer pull.Close()
			r, err := pull.Next(ctx, 5*time.Second)
			must(t, err)
			must(t, r.Ack())

			publisher, err := bus.NewPublisher(nc)
			must(t, err)
			_, err = publisher.Publish(ctx, nats.NewMsg("mail.send.started.r1"))
			must(t, err)
			_, there, err := bus.Last(ctx, nc, bus.MailEvents, "mail.send.*.r1")
			must(t, err)
			last, err := bus.EventStore{Publisher: publisher}.Leader(ctx, messages.Send, "mail.send.*.r1")
			must(t, err)
			n, _, err := bus.Count(ctx, nc, bus.MailEvents, "mail.send.*.r1", time.Time{})
			must(t, err)
			if !there || last.Subject != "mail.send.started.r1" || n != 1 {
				t.Errorf("last: %v, of the leader: %v, count: %d", there, last, n)
			}
			for began := time.Now(); ; <-time.After(20 * time.Millisecond) {
				pending, unacknowledged, err := pull.Waiting(ctx)
				must(t, err)
				if pending+unacknowledged == 0 {
					break
				}
				if time.Since(began) > 5*time.Second {
					t.Fatalf("%d wait and %d are not acknowledged", pending, unacknowledged)
				}
			}
		})
	}
	// Without the domain there is only the leaf's own JetStream, which has none of it.
	nc, err := bus.Connect(bus.Connection{URL: leaf.URL}, "test", zerolog.Nop())
	must(t, err)
	defer nc.Close()
	js, err := bus.JetStream(t.Context(), nc)
	must(t, err)
	if _, err := bus.Check(t.Context(), js, bus.Queues(), bus.MailEvents); err == nil {
		t.Error("the leaf has the streams of the hub")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestADomainOrAPrefixIsOne(t *testing.T) {
	for _, c := range []bus.Connection{{JSDomain: "hub", JSPrefix: "JS.hub.API"}, {JSDomain: "a b"}, {JSDomain: ">"}, {JSPrefix: "a..b"}} {
		if c.URL = "nats://127.0.0.1"; c.Validate() == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}
