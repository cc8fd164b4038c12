package inspect

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// meanwhile is a JetStream in which something happens right before a queue is asked for.
type meanwhile struct {
	jetstream.JetStream
	happens func()
}

func (m *meanwhile) Consumer(ctx context.Context, stream, name string) (jetstream.Consumer, error) {
	if m.happens != nil && name == bus.QueueOf(messages.Enroll).Name {
		m.happens()
		m.happens = nil
	}
	return m.JetStream.Consumer(ctx, stream, name)
}

// A long queue takes a while to be looked through.
func TestARequestThatEndsWhileItIsLookedForIsNotLost(t *testing.T) {
	t.Parallel()
	for _, begun := range []bool{false, true} {
		in := provisioned(t)
		in.store("mandate.enroll.requested", body{"request_id": "r"})
		if begun {
			in.store("mandate.enroll.started.r", body{"deadline": time.Now().Add(time.Hour)})
		}
		in.JS = &meanwhile{in.JS, func() {
			in.store("mandate.enroll.succeeded.r", body{})
			s, err := in.JS.Stream(t.Context(), bus.QueueOf(messages.Enroll).Stream)
			if err == nil {
				err = s.Purge(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		}}
		if s := in.one("r"); s.State != messages.Succeeded || len(s.Events) == 0 ||
			s.Events[len(s.Events)-1].Subject != "mandate.enroll.succeeded.r" {
			t.Errorf("begun %t: it is %s: %q with %d events, want succeeded", begun, s.State, s.Says, len(s.Events))
		}
	}
}

// The programs take another spelling for a field that they do not know.
func TestARequestDoesNotGoByAFieldInAnotherCase(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	in.store("mandate.enroll.requested", body{"Request_ID": "r"})
	if s := in.one("MANDATE_REQUESTS-1"); s.State != Queued {
		t.Errorf("by its place it is %s: %q, want queued", s.State, s.Says)
	}
	if s := in.one("r"); s.State != NeverSeen {
		t.Errorf("by a field of another name it is %s: %q, want never seen", s.State, s.Says)
	}
}

// An order number may be any text, also one that NATS takes for a pattern.
func TestAWordThatIsAPatternFindsNoRequestByItsID(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	in.store("mandate.enroll.succeeded.r", body{})
	for _, word := range []string{"*", ">", "a b", "a.b", ".", "r.", ""} {
		found, err := in.Find(t.Context(), word, nil, time.Time{}, bus.Known{})
		if err != nil || len(found.Found) > 0 {
			t.Errorf("%q: found %+v, %v, want none", word, found.Found, err)
		}
	}
}
