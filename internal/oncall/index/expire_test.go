package index

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

func TestWhatTheStreamsKeepNoMoreIsForgotten(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	in.store("mandate.enroll.failed.old", body{"reason": "refused", "order_number": "DD1"})
	in.store("mandate.enroll.started.goes_on", body{"order_number": "DD2"})
	in.store("mandate.enroll.failed.dead", body{"reason": "busy", "order_number": "DD3"})
	in.store("mandate.enroll.succeeded.goes_on", body{"order_number": "DD2"})
	in.store("dead.mandate.enroll.requested", body{}, bus.HeaderRequestID, "dead")
	in.store("dead.mandate.enroll.requested", body{}, bus.HeaderRequestID, "goes_on")
	in.store("mail.delivery.delivered.unmatched", body{"entry": body{"to": "ann@example.com"}})
	x := in.open(t.TempDir())
	stop := in.follow(x)
	in.current(x)
	stop()
	purge := func(stream string, to uint64) {
		s, err := in.js.Stream(t.Context(), stream)
		if err == nil {
			err = s.Purge(t.Context(), jetstream.WithPurgeSequence(to))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	purge(bus.MandateEvents, 4)
	purge(bus.MailDeliveries, 2)
	stop = in.follow(x)
	in.current(x)
	stop()
	in.wantListed(x, Filter{}, "dead ", "goes_on succeeded")
	in.wantListed(x, Filter{Dead: true}, "dead ", "goes_on succeeded")
	if known, err := in.find(x, "ann@example.com"); len(known.Messages) > 0 || err != nil {
		t.Errorf("the sending log still says %+v, %v", known.Messages, err)
	}
	purge(bus.DeadLetters, 3)
	stop = in.follow(x)
	in.current(x)
	in.wantListed(x, Filter{}, "goes_on succeeded")
	in.wantListed(x, Filter{Dead: true})
	stop()
	var names int
	f := &follower{Index: x, removed: true}
	if err := f.enter(); err != nil {
		t.Fatal(err)
	}
	defer f.leave()
	if err := f.sweep(); err != nil {
		t.Fatal(err)
	}
	if err := x.store.read.QueryRow("SELECT count(*) FROM name").Scan(&names); err != nil || names != 1 {
		t.Errorf("%d names are left, %v; want goes_on's", names, err)
	}
}

func TestWhatIsErasedIsForgotten(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	row := body{"entry": body{"to": "ann@example.com"}}
	in.store("mandate.enroll.failed.a", body{"order_number": "DD1", "reason": "refused",
		"evidence": []body{{"payer_email": "ann@example.com"}}})
	in.store("dead.mandate.enroll.requested", body{"order_number": "DD1"}, bus.HeaderRequestID, "a")
	started := messages.SendStarted{Secret: history.KeysOf(in.secret, "us@example.com", []string{"ann@example.com"})}
	in.store("mail.send.started.m", &started)
	in.store("mail.send.accepted.m", body{})
	in.store("mail.delivery.delivered.m", row, "ce-id", "row 1")
	in.store("mail.delivery.delivered.unmatched", row, "ce-id", "row 2")
	in.store("mail.delivery.bounced.unmatched", row, "ce-id", "row 3")
	x := in.open(t.TempDir())
	stop := in.follow(x)
	in.current(x)
	in.wantFound(x, "ann@example.com", "a [payer]", "m [recipient]")
	in.store("mandate.enroll.erased.a", body{"was": body{"state": "failed"}})
	in.store("mail.send.erased.m", body{})
	in.store("mail.delivery.erased.m", body{"event_id": "row 1"})
	in.store("mail.delivery.erased.unmatched", body{"event_id": "row 2"})
	in.current(x)
	check := func(x *Index, mails int) {
		t.Helper()
		in.wantFound(x, "ann@example.com")
		in.wantFound(x, "DD1")
		in.wantFound(x, "a", "a [request id]")
		in.wantListed(x, Filter{Dead: true})
		in.wantListed(x, Filter{Classes: []inspect.Class{inspect.CannotRun}}, "a erased", "m erased")
		if known, err := in.find(x, "ann@example.com"); err != nil || len(known.Messages) != mails {
			t.Errorf("mails: %+v, %v; want %d", known.Messages, err, mails)
		}
		in.wantListed(x, Filter{Classes: []inspect.Class{inspect.Underway}})
	}
	check(x, 1)
	// What was removed from the streams after that may have been read before, and come late.
	in.store("mail.batch.started.m.1", &messages.BatchBody{Secret: started.Secret})
	in.store("mail.delivery.delivered.m", row, "ce-id", "row 1")
	in.store("dead.mandate.enroll.requested", body{"order_number": "DD1"}, bus.HeaderRequestID, "a")
	in.current(x)
	check(x, 1)
	stop()
	x = in.open(t.TempDir()) // reads what is erased and its erasure together
	in.follow(x)
	in.current(x)
	check(x, 1)
}
