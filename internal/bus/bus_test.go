package bus_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

func TestMain(m *testing.M) { devtest.Main(m) }

func newLog(t testing.TB, nc *nats.Conn) bus.EventStore {
	t.Helper()
	p, err := bus.NewPublisher(nc)
	if err != nil {
		t.Fatal(err)
	}
	return bus.EventStore{Publisher: p, Source: "/errand/test"}
}

func record(id, writer string, last uint64) history.Record {
	return history.Record{Last: last, Writer: writer, Event: messages.Event{Operation: messages.Enroll, State: messages.Started, ID: id,
		Body: &messages.EnrollStarted{Common: messages.Common{RequestID: id, At: messages.Time{Time: time.Now()}}}}}
}

func TestOfTwoWritersOneIsStored(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	log := newLog(t, nc)
	for i := range 200 {
		id := fmt.Sprint("r", i)
		var stored atomic.Int64
		var wg sync.WaitGroup
		for w := range 6 {
			wg.Go(func() {
				r := record(id, fmt.Sprint("w", w), 0)
				if w%2 == 1 { // another subject of the same history
					r.Event.State = messages.Deferred
				}
				_, err := log.Append(t.Context(), r)
				switch {
				case err == nil:
					stored.Add(1)
				case !errors.Is(err, history.ErrFenced):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if stored.Load() != 1 {
			t.Fatalf("%s: stored %d times", id, stored.Load())
		}
	}
}

func TestLastSeesAllStatesOfOneID(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	log := newLog(t, nc)
	if e, err := log.Last(t.Context(), messages.Enroll, messages.Enroll.Filter("r1")); err != nil || e.Sequence != 0 {
		t.Fatalf("got %+v, %v; want nothing", e, err)
	}
	seq, err := log.Append(t.Context(), record("r1", "w", 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append(t.Context(), record("r2", "w", 0)); err != nil {
		t.Fatal(err)
	}
	e, err := log.Last(t.Context(), messages.Enroll, messages.Enroll.Filter("r1"))
	if err != nil || e.Sequence != seq || e.Subject != "mandate.enroll.started.r1" {
		t.Fatalf("got %+v, %v", e, err)
	}
	if _, err := log.Append(t.Context(), record("r1", "w", seq)); err != nil {
		t.Fatalf("over the last: %v", err)
	}
	if _, err := log.Append(t.Context(), record("r1", "another", seq)); !errors.Is(err, history.ErrFenced) {
		t.Fatalf("over an old one: %v", err)
	}
}

// Two workers write the same step, with the same Nats-Msg-Id, while the server goes away and comes back: whoever's
// write it was knows it again, the other does not take it for its own.
func TestLostAcknowledgementIsFoundOut(t *testing.T) {
	n, nc := devtest.Provisioned(t)
	logs := []bus.EventStore{newLog(t, nc), newLog(t, nc)}
	for i := range 30 {
		id := fmt.Sprint("r", i)
		ended := make(chan error, len(logs))
		for w, log := range logs {
			go func() {
				_, err := log.Append(t.Context(), record(id, fmt.Sprint("w", w), 0))
				ended <- err
			}()
		}
		for began := time.Now(); time.Since(began) < time.Duration(i)*20*time.Microsecond; { // on its way or not
			runtime.Gosched()
		}
		if err := n.Restart(); err != nil {
			t.Fatal(err)
		}
		stored := 0
		for range logs {
			switch err := <-ended; {
			case err == nil:
				stored++
			case !errors.Is(err, history.ErrFenced):
				t.Fatalf("%s: %v", id, err)
			}
		}
		if stored != 1 {
			t.Fatalf("%s: %d writers take it for their own, want 1", id, stored)
		}
	}
}

func TestDeadLetterKeepsTheBytesAndNoExpectations(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	p, err := bus.NewPublisher(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "mail.send.requested", Data: []byte{0, 1, 0xff}, Header: nats.Header{
		"Nats-Msg-Id": {"mine"}, "nats-expected-stream": {"MAIL_REQUESTS"}, "Errand-Reason": {"forged"}, "X-Own": {"a", "b"}}}); err != nil {
		t.Fatal(err)
	}
	c, err := js.Consumer(t.Context(), bus.MailRequests, "mail-send")
	if err != nil {
		t.Fatal(err)
	}
	m, err := bus.NewPull(nc, c).Next(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		why := bus.DeadLetter{RequestID: "r1", Operation: messages.Send, Reason: messages.ReasonInvalidRequest, Message: "a\r\nb"}
		if err := p.StoreDeadLetter(t.Context(), m, why); err != nil {
			t.Fatal(err)
		}
	}
	s, err := js.Stream(t.Context(), bus.DeadLetters)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 1 {
		t.Fatalf("%d dead letters, want 1", n)
	}
	d, err := s.GetLastMsgForSubject(t.Context(), "dead.mail.send.requested")
	if err != nil {
		t.Fatal(err)
	}
	if string(d.Data) != string([]byte{0, 1, 0xff}) {
		t.Errorf("bytes: %q", d.Data)
	}
	for name, want := range map[string]string{"Errand-Msg-Id": "mine", "Errand-Reason": "invalid_request",
		"Errand-Message": "a  b", "Errand-Request-Id": "r1", "Errand-Stream": "MAIL_REQUESTS", "Errand-Sequence": "1", "Errand-Deliveries": "1",
		"X-Own": "a", "nats-expected-stream": "", "Nats-Expected-Stream": ""} {
		if got := d.Header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// A request that was reopened and ended badly again leaves a second dead letter; one whose
// acknowledgement was lost leaves none.
func TestEachEndingLeavesOneDeadLetter(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js, dead := streamOf(t, nc, bus.DeadLetters)
	p, err := bus.NewPublisher(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "mail.send.requested", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	c, err := js.Consumer(t.Context(), bus.MailRequests, "mail-send")
	if err != nil {
		t.Fatal(err)
	}
	m, err := bus.NewPull(nc, c).Next(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, final := range []uint64{3, 3, 9, 9, 3} {
		why := bus.DeadLetter{RequestID: "r1", Operation: messages.Send, Reason: messages.ReasonRefused, Final: final}
		if err := p.StoreDeadLetter(t.Context(), m, why); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := dead.Info(t.Context()); err != nil || info.State.Msgs != 2 {
		t.Errorf("%d dead letters, %v; want 2, one an ending", info.State.Msgs, err)
	}
}
