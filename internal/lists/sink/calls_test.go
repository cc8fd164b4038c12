package sink_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/sandbox/devkit/devtest"
)

// A person who removes the last of the events, or all of them, or makes the stream again, does
// not keep a poller waiting for what is gone.
func TestEventsThatAreGoneAreNotWaitedFor(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	d := newSink(t, nc)
	publish := func(subjects ...string) {
		t.Helper()
		for _, subject := range subjects {
			if _, err := js.Publish(t.Context(), subject, []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	purge := func(subject string) {
		t.Helper()
		s, err := js.Stream(t.Context(), bus.MailEvents)
		if err == nil {
			err = s.Purge(t.Context(), jetstream.WithPurgeSubject(subject))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	given := func(want ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var got []string
		err := d.Requests(ctx, time.Time{}, func(record history.Entry) error {
			got = append(got, record.Subject)
			return nil
		})
		if err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("given %q, want %q", got, want)
		}
	}
	given()
	publish("mail.send.started.a", "mail.batch.started.a.1", "mail.send.accepted.a")
	given("mail.send.started.a", "mail.batch.started.a.1", "mail.send.accepted.a")
	publish("mail.send.started.b", "mail.send.started.c")
	purge("mail.send.started.c")
	given("mail.send.started.b")
	purge("mail.send.started.b")
	given()
	publish("mail.send.started.d", "mail.send.started.e")
	purge("mail.send.>")
	given()
	publish("mail.send.started.f")
	given("mail.send.started.f")

	if err := js.DeleteStream(t.Context(), bus.MailEvents); err != nil {
		t.Fatal(err)
	}
	if err := devtest.Provision(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	publish("mail.send.started.g")
	given("mail.send.started.g")
}
