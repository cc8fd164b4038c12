package programs

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
)

// A program whose user lacks a right is not ready until it has it, and says which: what it
// may do on the same stream does not make it ready in between.
func TestAMissingRightIsNamedUntilItIsThere(t *testing.T) {
	const config = `accounts { A { jetstream: enabled, users: [
		{ user: admin, password: a }
		{ user: program, password: p, permissions { publish { deny: [%s] } } } ] } }
		no_auth_user: admin`
	n := devtest.Configured(t, fmt.Sprintf(config, `"mail.send.reopened.*"`))
	admin, err := n.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	if err := devtest.Provision(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	r := &runtime{metrics: newMetrics()}
	r.nc, err = bus.Connect(bus.Connection{URL: n.URL, User: "program", Password: "p"}, "program", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.nc.Close)
	r.rights.watch(r.nc)
	if r.js, err = bus.JetStream(t.Context(), r.nc); err == nil {
		r.publisher, err = bus.NewPublisher(r.nc)
	}
	if err != nil {
		t.Fatal(err)
	}
	problem := func() string { return r.problem(t.Context(), bus.Queues(), []string{bus.MailEvents}) }
	if why := problem(); why != "" {
		t.Fatalf("at first: %q", why)
	}
	short, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	if _, err := r.publisher.Publish(short, nats.NewMsg("mail.send.reopened.a")); err == nil {
		t.Fatal("it may do everything")
	}
	if _, err := r.publisher.Publish(t.Context(), nats.NewMsg("mail.send.started.b")); err != nil {
		t.Fatal(err)
	}
	want := "this program's NATS user may not publish to mail.send.reopened.*: compare its permissions with deploy/nats/errand.conf"
	if why := problem(); why != want {
		t.Errorf("without the right: got %q, want %q", why, want)
	}
	if err := n.Reconfigure(fmt.Sprintf(config, `"x"`)); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); problem() != ""; <-time.After(50 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("with the right: %q", problem())
		}
	}
}

// What is of one request is not in the reason, and no request's own choice is one.
func TestAMissingRightIsNamedWithoutTheRequest(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		`Permissions Violation for Publish to "mail.batch.started.order-1.17"`:              "publish to mail.batch.started.*.*",
		`Permissions Violation for Publish to "dead.mail.send.requested"`:                   "publish to dead.mail.send.requested",
		`Permissions Violation for Subscription to "errand.leader.mail.log"`:                "subscribe to errand.leader.mail.log",
		`Permissions Violation for Publish to "$JS.ACK.MAIL_REQUESTS.mail-send.1.2.3.4.0"`:  "publish to $JS.ACK.MAIL_REQUESTS.>",
		`Permissions Violation for Publish to "$JS.API.STREAM.INFO.MAIL_REQUESTS"`:          "publish to $JS.API.STREAM.INFO.MAIL_REQUESTS",
		`Permissions Violation for Publish to "$JS.API.DIRECT.GET.OBJ_theirs"`:              "",
		`Permissions Violation for Subscription to "_INBOX_other.x.*"`:                      "subscribe to _INBOX_other.>",
		`Permissions Violation for Publish to "mail.send.reopened.a", reply "_INBOX_a.b.c"`: "publish to mail.send.reopened.*",
	} {
		var r rights
		r.note(fmt.Errorf("%w: nats: %s", nats.ErrPermissionViolation, said))
		got := ""
		for missing := range r.missing {
			got = missing
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", said, got, want)
		}
	}
}
