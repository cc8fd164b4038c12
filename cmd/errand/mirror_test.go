package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
)

// secured is a server under the shipped configuration, where every password is "secret".
func secured(t *testing.T) *devkit.NATS {
	t.Helper()
	n, err := devkit.Configured(t.TempDir(), devtest.Accounts(t, "../..", func(string) string { return "secret" }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// userOf is a connection of one of its users.
func userOf(t *testing.T, n *devkit.NATS, user string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(n.URL, nats.UserInfo(user, "secret"), nats.CustomInboxPrefix("_INBOX_"+user))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// A feed that was made before a filter was narrowed, or changed by hand, sends what no reader
// should have, until errand provision is run again. The copy goes on where it was.
func TestProvisionNarrowsAFeedThatSendsTooMuch(t *testing.T) {
	t.Parallel()
	n := secured(t)
	as := func(user, command string, args ...string) string {
		t.Helper()
		return errand(t, "", append([]string{command, "--nats-url", n.URL, "--nats-user", user, "--nats-password", "secret"}, args...)...)
	}
	as("provisioner", "provision")
	provisioner := userOf(t, n, "provisioner")
	wide := jetstream.ConsumerConfig{Durable: "service", DeliverSubject: "events.service.MAIL_DELIVERIES",
		AckPolicy:   jetstream.AckFlowControlPolicy,
		FlowControl: true, IdleHeartbeat: time.Second, MaxDeliver: -1, MaxAckPending: 500}
	if _, err := provisioner.CreatePushConsumer(t.Context(), bus.MailDeliveries, wide); err != nil {
		t.Fatal(err)
	}
	as("service", "mirror", "service", "MAIL_DELIVERIES")
	service := userOf(t, n, "service")
	log := userOf(t, n, "log-poller")
	copied := func(subject string) uint64 {
		t.Helper()
		s, err := service.Stream(t.Context(), "MAIL_DELIVERIES")
		if err != nil {
			t.Fatal(err)
		}
		for began := time.Now(); ; <-time.After(20 * time.Millisecond) {
			if m, err := s.GetLastMsgForSubject(t.Context(), subject); err == nil {
				return m.Sequence
			}
			if time.Since(began) > time.Minute {
				t.Fatalf("%s is not copied", subject)
			}
		}
	}
	answer(t, log, "mail.log.turn", `{}`)
	copied("mail.log.turn")

	out := as("provisioner", "provision", "--reader", "service")
	for _, want := range []string{"~ consumer service on MAIL_DELIVERIES\n", "FilterSubjects: null -> ", "MaxAckPending: 500 -> 1000",
		"+ consumer service on MAIL_EVENTS"} {
		if !strings.Contains(out, want) {
			t.Errorf("provision says %q, want %q in it", out, want)
		}
	}
	if out := as("provisioner", "provision", "--reader", "service"); out != "nothing to change\n" {
		t.Errorf("a second time: %q", out)
	}
	answer(t, log, "mail.log.turn", `{}`)
	answer(t, log, "mail.delivery.bounced.b", `{}`)
	if last := copied("mail.delivery.bounced.b"); last != 3 {
		t.Errorf("it is copied as message %d, want 3", last)
	}
	s, err := service.Stream(t.Context(), "MAIL_DELIVERIES")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := s.GetLastMsgForSubject(t.Context(), "mail.log.turn"); err != nil || m.Sequence != 1 {
		t.Errorf("the reader has %+v, %v; want the first alone", m, err)
	}
}

// What a server does not change is said, with what to do, which loses nothing.
func TestProvisionSaysWhichFeedItCannotMend(t *testing.T) {
	t.Parallel()
	n := secured(t)
	login := func(user string) []string {
		return []string{"--nats-url", n.URL, "--nats-user", user, "--nats-password", "secret"}
	}
	errand(t, "", append([]string{"provision"}, login("provisioner")...)...)
	provisioner := userOf(t, n, "provisioner")
	mute := jetstream.ConsumerConfig{Durable: "service", DeliverSubject: "events.service.MAIL_EVENTS", AckPolicy: jetstream.AckNonePolicy}
	if _, err := provisioner.CreatePushConsumer(t.Context(), bus.MailEvents, mute); err != nil {
		t.Fatal(err)
	}
	refused(t, "nats consumer rm MAIL_EVENTS service", append([]string{"provision", "--reader", "service"}, login("provisioner")...)...)
}

// A copy that is sent another reader's events stays one: to have it said is better than
// to hear "nothing to change".
func TestMirrorSaysThatACopyIsAnotherReaders(t *testing.T) {
	t.Parallel()
	n := secured(t)
	login := func(user string) []string {
		return []string{"--nats-url", n.URL, "--nats-user", user, "--nats-password", "secret"}
	}
	errand(t, "", append([]string{"provision", "--reader", "service"}, login("provisioner")...)...)
	errand(t, "", append([]string{"mirror", "service"}, login("service")...)...)
	refused(t, "sent to events.service.MANDATE_EVENTS", append([]string{"mirror", "subscriber"}, login("service")...)...)
}

func TestMirrorNamesItsOwnLimits(t *testing.T) {
	t.Parallel()
	misconfigured(t, "--replicas (MIRROR_REPLICAS): must be 1, 3 or 5", "mirror", "service", "--replicas=2")
	misconfigured(t, "--max-age (MIRROR_MAX_AGE): must be a minute or more: a consumer", "mirror", "service", "--max-age=1s")
	misconfigured(t, "--max-age (PROVISION_MAX_AGE): must be a minute or more: a request", "provision", "--max-age=1s")
}
