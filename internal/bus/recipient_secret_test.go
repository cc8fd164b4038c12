package bus_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
	"errand/internal/wire/mailkey"
)

// Several who provision at once make one secret, which nobody can replace, remove or overwrite.
func TestTheSecretOfRecipientsKeysIsMadeOnce(t *testing.T) {
	nc, err := devtest.Server(t).Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js := opened(t, nc)
	if _, err := bus.RecipientSecret(t.Context(), nc); !errors.Is(err, bus.ErrNoSecret) ||
		!strings.Contains(err.Error(), "errand provision --missing") {
		t.Errorf("before there is a stream: %v", err)
	}
	var plans [4][]bus.Change
	for i := range plans {
		plans[i] = planOf(t, js, bus.Limits{})
	}
	if plan := plans[0]; plan[0].Name != bus.Keys ||
		!slices.ContainsFunc(plan, func(c bus.Change) bool { return c.Kind == "secret" && c.Create }) {
		t.Errorf("it plans %v", plan)
	}
	var all sync.WaitGroup
	for _, plan := range plans {
		all.Go(func() {
			if err := bus.Apply(t.Context(), plan, false, func(bus.Change) {}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	_, s := streamOf(t, nc, bus.Keys)
	m, err := s.GetLastMsgForSubject(t.Context(), "keys.recipients")
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Data) != 2*len(rand.Text()) || m.Sequence != 1 {
		t.Errorf("the secret has %d bytes, sequence %d", len(m.Data), m.Sequence)
	}
	id := mailkey.NewSecret(string(m.Data)).ID()
	for _, stream := range []string{bus.MailEvents, bus.MailDeliveries} {
		if note := metadata(t, js, stream)["errand.recipient-keys"]; note != id {
			t.Errorf("%s notes %q, want %q", stream, note, id)
		}
	}
	for range 2 { // the fence is the publisher's; the stream refuses without one, too
		if _, err := js.Publish(t.Context(), "keys.recipients", []byte("another")); err == nil {
			t.Error("it is overwritten")
		}
	}
	if s.Purge(t.Context()) == nil || s.DeleteMsg(t.Context(), 1) == nil || s.SecureDeleteMsg(t.Context(), 1) == nil {
		t.Error("it is removed")
	}
	if read, err := bus.RecipientSecret(t.Context(), nc); err != nil || read.ID() != id || len(planOf(t, js, bus.Limits{})) != 0 {
		t.Errorf("then %v, %v, and again %q", read, err, planned(t, js, bus.Limits{}))
	}
}

func metadata(t *testing.T, js jetstream.JetStream, stream string) map[string]string {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config.Metadata
}

// Stored keys match nothing without their secret: another one is made only by force, and then it is noted that the first is lost.
func TestALostSecretIsNotReplacedSilently(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	first, err := bus.RecipientSecret(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), bus.Keys); err != nil {
		t.Fatal(err)
	}
	plan := planOf(t, js, bus.Limits{})
	if len(plan) != 2 || plan[1].Kind != "secret" || !plan[1].Create || !plan[1].Destructive ||
		!strings.Contains(plan[1].String(), first.ID()) || !strings.Contains(plan[1].String(), "Restore KEYS from a backup") {
		t.Fatalf("it plans %v", plan)
	}
	if err := bus.Apply(t.Context(), plan, false, func(bus.Change) {}); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("without force: %v", err)
	}
	if _, err := js.Stream(t.Context(), bus.Keys); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("without force the stream is made: %v", err)
	}
	apply(t, js, bus.Limits{}, true)
	second, err := bus.RecipientSecret(t.Context(), nc)
	if err != nil || second.ID() == first.ID() {
		t.Fatalf("then %v, %v", second, err)
	}
	_, s := streamOf(t, nc, bus.MailDeliveries)
	if lost := bus.LostSecrets(s.CachedInfo().Config); !slices.Equal(lost, []string{first.ID()}) || len(planOf(t, js, bus.Limits{})) != 0 {
		t.Errorf("lost are %q, and again %q", lost, planned(t, js, bus.Limits{}))
	}
	if err := js.DeleteStream(t.Context(), bus.MailDeliveries); err != nil { // its note goes with it, and nothing is lost
		t.Fatal(err)
	}
	apply(t, js, bus.Limits{}, false)
	if note := metadata(t, js, bus.MailDeliveries)["errand.recipient-keys"]; note != second.ID() {
		t.Errorf("a stream that is made again notes %q", note)
	}
}

// Questions of people find the secret where they may, whatever was given.
func TestASecretIsReadWhenItIsNeeded(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	kept, err := bus.RecipientSecret(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	given := mailkey.NewSecret("given")
	none, ended := (*bus.Secrets)(nil), &bus.Secrets{Conn: nc, Given: []*mailkey.Secret{given}}
	over, stop := context.WithCancel(t.Context())
	stop()
	for name, got := range map[string]*mailkey.Secret{"none": none.Of(t.Context(), kept.ID()), "unread": ended.Of(over, kept.ID()),
		"unknown": ended.Of(t.Context(), "other")} {
		if got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	if s := ended.Of(over, kept.ID()); s == nil || s.ID() != kept.ID() || ended.Of(over, given.ID()) != given {
		t.Errorf("the secret is %v once it was read, want %v", s, kept)
	}
}
