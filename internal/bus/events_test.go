package bus_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// outcome is the record of a success over the event at last.
func outcome(id string, last uint64, enrollment string) history.Record {
	r := record(id, "w", last)
	r.Event.State, r.Event.Body = messages.Succeeded, &messages.EnrollSucceeded{Enrollment: []byte(enrollment)}
	return r
}

func streamOf(t *testing.T, nc *nats.Conn, name string) (jetstream.JetStream, jetstream.Stream) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return js, s
}

// Somebody purges the events while a call is under way: its outcome is stored
// nevertheless, once, and no call is announced over what is gone.
func TestOutcomeIsStoredOverAPurgedHistory(t *testing.T) {
	devtest.InBubble(t, func(t *testing.T, _ *devkit.NATS, nc *nats.Conn) {
		log := newLog(t, nc)
		_, events := streamOf(t, nc, bus.MandateEvents)
		seq, err := log.Append(t.Context(), record("r1", "w", 0))
		if err != nil {
			t.Fatal(err)
		}
		if err := events.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = log.Append(t.Context(), record("r1", "w", seq))
		if err == nil || errors.Is(err, history.ErrFenced) || time.Since(began) > 2*time.Minute {
			t.Errorf("started: got %v after %v, want an error that says neither", err, time.Since(began))
		}
		if _, err := log.Append(t.Context(), outcome("r1", seq, "{}")); err != nil {
			t.Errorf("outcome: %v", err)
		}
		if _, err := log.Append(t.Context(), outcome("r1", seq, `{"other":1}`)); err != nil {
			t.Errorf("our own outcome again: %v", err)
		}
		other := outcome("r1", seq, "{}")
		other.Writer = "another"
		if _, err := log.Append(t.Context(), other); !errors.Is(err, history.ErrFenced) {
			t.Errorf("another's outcome: got %v, want ErrFenced", err)
		}
		if info, err := events.Info(t.Context()); err != nil || info.State.Msgs != 1 {
			t.Errorf("%+v, %v; want one event", info.State, err)
		}
	})
}

// In a stream that was made again another worker's event may have any sequence.
func TestAHistoryMadeAgainEndsTheWaiting(t *testing.T) {
	devtest.InBubble(t, func(t *testing.T, _ *devkit.NATS, nc *nats.Conn) {
		log := newLog(t, nc)
		js, events := streamOf(t, nc, bus.MandateEvents)
		var seq uint64
		for i := range 5 {
			var err error
			if seq, err = log.Append(t.Context(), record(fmt.Sprint("r", i), "w", 0)); err != nil {
				t.Fatal(err)
			}
		}
		if err := js.DeleteStream(t.Context(), bus.MandateEvents); err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateStream(t.Context(), events.CachedInfo().Config); err != nil {
			t.Fatal(err)
		}
		if _, err := log.Append(t.Context(), record("r4", "another", 0)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := log.Append(t.Context(), outcome("r4", seq, "{}")); err == nil || time.Since(began) > 2*time.Minute {
			t.Errorf("got %v after %v, want an error", err, time.Since(began))
		}
	})
}

// Too large for the connection, for the server or for the stream: it is the same.
func TestAnEventThatIsTooLargeIsSaidToBe(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	log := newLog(t, nc)
	large := outcome("r1", 0, `"`+strings.Repeat("x", int(nc.MaxPayload()))+`"`)
	if _, err := log.Append(t.Context(), large); !errors.Is(err, history.ErrTooLarge) {
		t.Errorf("over max_payload: got %v, want ErrTooLarge", err)
	}
	resize(t, nc, bus.MandateEvents, 8<<10)
	if _, err := log.Append(t.Context(), outcome("r1", 0, `"`+strings.Repeat("x", 8<<10)+`"`)); !errors.Is(err, history.ErrTooLarge) {
		t.Errorf("over max_msg_size: got %v, want ErrTooLarge", err)
	}
	if _, err := log.Append(t.Context(), outcome("r1", 0, "{}")); err != nil {
		t.Error(err)
	}
}

func resize(t *testing.T, nc *nats.Conn, stream string, size int32) {
	t.Helper()
	js, s := streamOf(t, nc, stream)
	config := s.CachedInfo().Config
	config.MaxMsgSize = size
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

// A message as large as its stream takes, all of it headers but for a little, leaves
// a dead letter; where the servers take less than when it came, without its headers.
func TestADeadLetterAlwaysFits(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js, requests := streamOf(t, nc, bus.MailRequests)
	p, err := bus.NewPublisher(nc)
	if err != nil {
		t.Fatal(err)
	}
	const headers = 50 << 10
	size := int(requests.CachedInfo().Config.MaxMsgSize) - headers
	m := &nats.Msg{Subject: "mail.send.requested", Data: make([]byte, size-200),
		Header: nats.Header{nats.MsgIdHdr: {"mine"}, "X-Long": {strings.Repeat("h", headers)}}}
	last := func(n uint64) *jetstream.RawStreamMsg {
		t.Helper()
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		c, err := js.Consumer(t.Context(), bus.MailRequests, "mail-send")
		if err != nil {
			t.Fatal(err)
		}
		taken, err := bus.NewPull(nc, c).Next(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		why := bus.DeadLetter{RequestID: strings.Repeat("i", 64), Operation: messages.Send,
			Reason: messages.ReasonInvalidRequest, Message: strings.Repeat("é", 1000)}
		why.RequestID = fmt.Sprint(n, why.RequestID[2:])
		if err := p.StoreDeadLetter(t.Context(), taken, why); err != nil {
			t.Fatal(err)
		}
		_, dead := streamOf(t, nc, bus.DeadLetters)
		d, err := dead.GetMsg(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if string(d.Data) != string(m.Data) || d.Header.Get("Errand-Msg-Id") != m.Header.Get(nats.MsgIdHdr) ||
			d.Header.Get("Errand-Reason") != "invalid_request" {
			t.Errorf("dead letter %d: %d bytes, want %d; %.200v", n, len(d.Data), len(m.Data), d.Header)
		}
		return d
	}
	if d := last(1); len(d.Header.Get("X-Long")) != headers {
		t.Errorf("its own headers are gone: %.200v", d.Header)
	}
	m.Header.Set(nats.MsgIdHdr, "second")
	m.Data, m.Header["X-Long"] = m.Data[:8<<10], []string{strings.Repeat("h", 10<<10)}
	if d := last(2); len(d.Header.Get("X-Long")) != 10<<10 {
		t.Errorf("its own headers are gone: %.200v", d.Header)
	}
	resize(t, nc, bus.DeadLetters, 16<<10)
	m.Header.Set(nats.MsgIdHdr, "third")
	if d := last(3); d.Header.Get("X-Long") != "" {
		t.Errorf("its own headers are still there: %.200v", d.Header)
	}
}

// The look-up of an uncertain enrollment needs to know when its history began: the event
// of the first call, not the one that says uncertain, and not another request's.
func TestAnUncertainEnrollmentComesWithItsBeginning(t *testing.T) {
	devtest.InBubble(t, func(t *testing.T, _ *devkit.NATS, nc *nats.Conn) {
		log := newLog(t, nc)
		store := func(id string, last uint64, state messages.State, body messages.Body) uint64 {
			t.Helper()
			r := record(id, "w", last)
			r.Event.State, r.Event.Body = state, body
			r.Trace.Parent = "00-" + id
			seq, err := log.Append(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			return seq
		}
		store("other", 0, messages.Started, &messages.EnrollStarted{})
		time.Sleep(time.Hour)
		began := time.Now()
		last := store("r1", 0, messages.Started, &messages.EnrollStarted{})
		time.Sleep(time.Hour)
		last = store("r1", last, messages.Started, &messages.EnrollStarted{})
		time.Sleep(time.Hour)
		last = store("r1", last, messages.Uncertain, &messages.EnrollUncertain{})

		uncertain := bus.Rare{Store: log, Operation: messages.Enroll, State: messages.Uncertain}
		open, err := uncertain.Next(t.Context(), 0, time.Unix(0, 0))
		if err != nil {
			t.Fatal(err)
		}
		if open.ID() != "r1" || open.Sequence != last || open.Trace.Parent != "00-r1" || !open.At.Equal(time.Now()) || len(open.Body) == 0 {
			t.Errorf("got %+v; want r1, sequence %d, which ended now", open, last)
		}
		if first, err := log.Next(t.Context(), messages.Enroll, messages.Enroll.Filter("r1"), 1); err != nil || !first.At.Equal(began) {
			t.Errorf("it began at %v, %v; want %v", first.At, err, began)
		}
		if open, err = uncertain.Next(t.Context(), last+1, time.Time{}); err != nil || open.Subject != "" {
			t.Errorf("behind it: got %+v, %v; want none", open, err)
		}
	})
}
