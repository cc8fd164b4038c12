package programs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

// Rather than mail somebody who is suppressed, a program that cannot read whom mail bounces from waits, and says what for. An address
// is known by the key of each secret.
func TestAProgramIsNotReadyUntilItKnowsWhomMailBouncesFrom(t *testing.T) {
	t.Parallel()
	const config = `accounts { A { jetstream: enabled, users: [
		{ user: admin, password: a }
		{ user: program, password: p, permissions { publish { deny: [%s] } } } ] } }
		no_auth_user: admin`
	n := devtest.Configured(t, fmt.Sprintf(config, `"$JS.API.STREAM.MSG.GET.SUPPRESSIONS"`))
	admin, err := n.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	if err := devtest.Provision(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	p, err := bus.NewPublisher(admin)
	if err != nil {
		t.Fatal(err)
	}
	old, now := mailkey.NewSecret("old"), mailkey.NewSecret("new")
	bounced := bus.Suppression{Key: old.KeyOf("ann@example.com"), At: messages.Time{Time: time.Now()}}
	if err := p.Suppress(t.Context(), []bus.Suppression{bounced}); err != nil {
		t.Fatal(err)
	}
	r := &runtime{log: zerolog.Nop()}
	if r.nc, err = bus.Connect(bus.Connection{URL: n.URL, User: "program", Password: "p"}, "program", zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.nc.Close)
	known := make(chan *bus.Suppressed, 1)
	go func() {
		s, err := r.suppressed(t.Context(), time.Hour)
		if err != nil {
			t.Error(err)
		}
		known <- s
	}()
	waits := func() bool {
		faults := strings.Join(r.ready.faults(), "\n")
		return strings.Contains(faults, "the stream SUPPRESSIONS cannot be read") && strings.Contains(faults, "MSG.GET.SUPPRESSIONS")
	}
	for began := time.Now(); !waits(); <-time.After(50 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("it says %q", r.ready.faults())
		}
	}
	select {
	case <-known:
		t.Fatal("it goes on without")
	default:
	}
	if n := r.suppressFor.Load(); n != 0 {
		t.Errorf("it says that it leaves addresses out for %d s", n)
	}
	if err := n.Reconfigure(fmt.Sprintf(config, `"x"`)); err != nil {
		t.Fatal(err)
	}
	s := <-known
	if _, _, found := keyed(s, []*mailkey.Secret{now, old})("Ann@example.com"); !found {
		t.Error("what it has read does not count")
	}
	if n := r.suppressFor.Load(); n != 3600 {
		t.Errorf("it says that it leaves addresses out for %d s", n)
	}
}
