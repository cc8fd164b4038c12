//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/devkit"
)

// users are those of the shipped configuration; the programs have their names.
var users = []string{"mandate-consumer", "mail-consumer", "log-poller", "provisioner", "producer", "subscriber", "operator"}

// password is a user's; keptItsSecrets looks for it in all that is said.
func password(user string) string { return user + "-password-" + secretMark }

// variable is where the shipped configuration has a user's password from.
func variable(user string) string {
	return strings.ToUpper(strings.ReplaceAll(user, "-", "_")) + "_PASSWORD"
}

// natsConfig is the configuration that is shipped, with passwords, and with an admin
// for the tests' own hands: who names no user is that one.
func natsConfig(t *testing.T) string {
	t.Helper()
	shipped, err := os.ReadFile("../../deploy/nats/errand.conf")
	if err != nil {
		t.Fatal(err)
	}
	var passwords strings.Builder
	for _, user := range users {
		fmt.Fprintf(&passwords, "%s: %q\n", variable(user), password(user))
	}
	const begin = "users: ["
	if n := strings.Count(string(shipped), begin); n != 1 {
		t.Fatalf("the shipped configuration has %d lists of users, want one", n)
	}
	return passwords.String() + strings.Replace(string(shipped), begin, begin+" { user: admin, password: admin }", 1) + "no_auth_user: admin\n"
}

// guarded is a server of its own under natsConfig, for the length of the test.
func guarded(t *testing.T) *devkit.NATS {
	t.Helper()
	n, err := devkit.Configured(t.TempDir(), natsConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// connectAs gives a connection of one of users, set up as the programs are.
func connectAs(t *testing.T, url, user string, options ...nats.Option) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc := connect(t, url, append(slices.Clip(options), nats.Name("test "+user), nats.UserInfo(user, password(user)), nats.CustomInboxPrefix("_INBOX_"+user))...)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// wasRefused finds what a program, a client or a nats-server says of a permission
// that is missing.
var wasRefused = regexp.MustCompile(`(?i).*(permissions|publish|subscription) violation.*`)

// refusedNothing fails the test when somebody tried what it has no permission for.
func (p *process) refusedNothing() {
	p.t.Helper()
	for _, line := range wasRefused.FindAllString(p.said.String(), 3) {
		p.t.Errorf("%s tells of a permission that is missing: %s", p.name, line)
	}
}

func tellsSecret(m jetstream.Msg) bool {
	return strings.Contains(m.Subject()+fmt.Sprint(m.Headers())+string(m.Data()), secretMark)
}

// eventsKeptTheirSecrets fails the test when an event or a dead letter holds a secret
// of the programs. Who the payers and recipients are is in them by design.
func (in *installation) eventsKeptTheirSecrets() {
	in.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // the test's own is over
	defer cancel()
	for _, stream := range []string{bus.MandateEvents, bus.MailEvents, bus.MailDeliveries, bus.DeadLetters} {
		if !in.n.Server.Running() {
			return // the story took it away, as it may have a stream
		}
		c, err := in.js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{})
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			in.t.Errorf("read %s: %v", stream, err)
			continue
		}
		all, err := c.Messages()
		for left := c.CachedInfo().NumPending; left > 0 && err == nil; left-- {
			var m jetstream.Msg
			if m, err = all.Next(jetstream.NextContext(ctx)); err == nil && tellsSecret(m) {
				in.t.Errorf("%s tells a secret: %v %s", m.Subject(), m.Headers(), m.Data())
			}
		}
		if err != nil {
			in.t.Errorf("read %s: %v", stream, err)
			continue
		}
		all.Stop()
	}
}
