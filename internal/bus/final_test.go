package bus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/retry"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// Whatever the server answers, an event that may still be stored later is stored later.
// Only what the server never takes is final, after one try.
func TestNoAnswerThatMayBecomeBetterIsFinal(t *testing.T) {
	for _, c := range []struct {
		code, err int
		what      string
		final     bool
	}{
		{400, 10002, "resource limits exceeded for account", false},
		{503, 10008, "JetStream system temporarily unavailable", false},
		{503, 10023, "insufficient resources", false},
		{500, 10047, "insufficient storage resources available", false},
		{503, 10077, "maximum bytes exceeded", false},
		{400, 10109, "invalid operation on sealed stream", false},
		{409, 10158, "message id is duplicate and in process", false},
		{429, 10167, "too many requests", false},
		{400, 10999, "what no version so far has said", false},
		{404, 10059, "stream not found", false},
		{400, 10054, "message size exceeds maximum allowed", true},
		{400, 10097, "header size exceeds maximum allowed of 64k", true},
	} {
		t.Run(c.what, func(t *testing.T) {
			devtest.InBubble(t, func(t *testing.T, _ *devkit.NATS, nc *nats.Conn) {
				log := newLog(t, nc)
				var tries atomic.Int64
				answer := func(m *nats.Msg) {
					text := `{"stream":"MANDATE_EVENTS","seq":7}`
					if tries.Add(1) <= 3 {
						text = fmt.Sprintf(`{"error":{"code":%d,"err_code":%d,"description":%q},"stream":"MANDATE_EVENTS","seq":0}`, c.code, c.err, c.what)
					}
					_ = m.Respond([]byte(text))
				}
				inPlaceOf(t, nc, bus.MandateEvents, "mandate.enroll.>", answer)
				seq, err := log.Append(t.Context(), record("r1", "w", 0))
				if c.final && (err == nil || tries.Load() != 1) {
					t.Errorf("got %v after %d tries, want an error after one", err, tries.Load())
				}
				if !c.final && (err != nil || seq != 7) {
					t.Errorf("got %d, %v after %d tries, want 7", seq, err, tries.Load())
				}
			})
		})
	}
}

// inPlaceOf deletes a stream and answers what is published to it.
func inPlaceOf(t *testing.T, nc *nats.Conn, stream, subject string, answer nats.MsgHandler) {
	t.Helper()
	js, _ := streamOf(t, nc, stream)
	if err := js.DeleteStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Subscribe(subject, answer); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// The storage is full and gets room again twenty minutes later: the outcome is stored
// then, and readiness says all the while that it is not, and of which stream.
func TestAnOutcomeWaitsForRoomInAFullStream(t *testing.T) {
	devtest.InBubble(t, func(t *testing.T, _ *devkit.NATS, nc *nats.Conn) {
		js, events := streamOf(t, nc, bus.MandateEvents)
		log := newLog(t, nc)
		seq, err := log.Append(t.Context(), record("r1", "w", 0))
		if err != nil {
			t.Fatal(err)
		}
		config := events.CachedInfo().Config
		full := config
		full.MaxBytes, full.Discard = 1, jetstream.DiscardNew
		if _, err := js.UpdateStream(t.Context(), full); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := log.Append(t.Context(), outcome("r1", seq, "{}"))
			ended <- err
		}()
		for range 20 {
			time.Sleep(time.Minute)
			synctest.Wait()
			if fault := log.Publisher.Fault(); fault != "NATS does not store in MANDATE_EVENTS: maximum bytes exceeded" {
				t.Fatalf("fault %q, want the stream and why", fault)
			}
			// Other streams store meanwhile: that says nothing of this one.
			if _, err := js.Publish(t.Context(), "mail.log.turn", nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatalf("the outcome is lost: %v", err)
		}
		if fault := log.Publisher.Fault(); fault != "" {
			t.Errorf("fault %q after it was stored", fault)
		}
	})
}

// A stream that refuses is at fault until it stores, whatever other streams do, or until nobody tries again: a poller that lost
// the lead never does, and would not be ready for as long as it stands by.
func TestAFaultLastsUntilItsOwnStreamStoresOrNobodyTries(t *testing.T) {
	devtest.InBubble(t, func(t *testing.T, _ *devkit.NATS, nc *nats.Conn) {
		log := newLog(t, nc)
		var stores atomic.Bool
		inPlaceOf(t, nc, bus.MailEvents, "mail.send.*.*", func(m *nats.Msg) {
			text := `{"error":{"code":503,"err_code":10077,"description":"no space left on device"}}`
			if stores.Load() {
				text = `{"stream":"MAIL_EVENTS","seq":1}`
			}
			_ = m.Respond([]byte(text))
		})
		write := func(subject string) error {
			_, err := log.Publisher.Publish(t.Context(), &nats.Msg{Subject: subject, Data: []byte("{}"), Header: nats.Header{}})
			return err
		}
		if err := write("mail.send.accepted.r1"); err == nil {
			t.Fatal("stored")
		}
		if err := write("mail.log.turn"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(retry.Refused)
		if got, want := log.Publisher.Fault(), "NATS does not store in MAIL_EVENTS: "; !strings.HasPrefix(got, want) {
			t.Errorf("soon after: fault %q, want %q and why", got, want)
		}
		time.Sleep(time.Second)
		if got := log.Publisher.Fault(); got != "" {
			t.Errorf("after nobody tried again: fault %q", got)
		}
		if err := write("mail.send.accepted.r1"); err == nil || log.Publisher.Fault() == "" {
			t.Fatalf("refused again (%v), and no fault", err)
		}
		stores.Store(true)
		if err := write("mail.send.accepted.r1"); err != nil {
			t.Fatal(err)
		}
		if got := log.Publisher.Fault(); got != "" {
			t.Errorf("after a write was stored: fault %q", got)
		}
	})
}

// Storing an event takes longer than a write is waited for, since two of three servers
// are away: it is found when they are back, and stored once.
func TestAnEventThatIsSlowToStoreIsNotLost(t *testing.T) {
	c := devtest.NewCluster(t)
	js := c.Replicate(bus.MandateEvents)
	lead := c.Leader(js, bus.MandateEvents)
	log := newLog(t, c.Conns[lead])
	seq, err := log.Append(t.Context(), record("r1", "w", 0))
	if err != nil {
		t.Fatal(err)
	}
	others := []int{(lead + 1) % 3, (lead + 2) % 3}
	for _, i := range others {
		c.Stop(i)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := log.Append(context.WithoutCancel(t.Context()), outcome("r1", seq, "{}"))
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("without a majority of the servers: %v", err)
	case <-time.After(retry.Answer + time.Second): // it is written a second time
	}
	for _, i := range others {
		c.Start(i)
	}
	if err := <-ended; err != nil {
		t.Fatalf("the outcome is lost: %v", err)
	}
	again := outcome("r1", seq, "{}")
	again.Writer = "another"
	if _, err := log.Append(t.Context(), again); !errors.Is(err, history.ErrFenced) {
		t.Errorf("another's outcome: %v, want ErrFenced", err)
	}
	got, err := log.Last(t.Context(), messages.Enroll, messages.Enroll.Filter("r1"))
	if err != nil || got.Sequence != seq+1 {
		t.Errorf("the last event is %d, %v; want one behind %d", got.Sequence, err, seq)
	}
}

// What is read after a long outage may come from a replica that lags behind: a conflict
// that it does not explain at once is not a reason to give an outcome up.
func TestAConflictIsGivenTimeToBeExplained(t *testing.T) {
	devtest.InBubble(t, func(t *testing.T, _ *devkit.NATS, nc *nats.Conn) {
		log := newLog(t, nc)
		began, writer := time.Now(), ""
		inPlaceOf(t, nc, bus.MandateEvents, "mandate.enroll.>", func(m *nats.Msg) {
			if writer = m.Header.Get("Errand-Writer"); time.Since(began) > 2*time.Minute { // stored, its acknowledgement was lost
				_ = m.Respond([]byte(`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 7"}}`))
			}
		})
		if _, err := nc.Subscribe("$JS.API.DIRECT.GET."+bus.MandateEvents, func(m *nats.Msg) {
			r := nats.NewMsg(m.Reply)
			r.Header = nats.Header{"Nats-Subject": {"mandate.enroll.started.r1"}, "Nats-Sequence": {"5"}}
			if time.Since(began) > 2*time.Minute+10*time.Second { // the replica has caught up
				r.Header = nats.Header{"Nats-Subject": {"mandate.enroll.succeeded.r1"}, "Nats-Sequence": {"7"},
					"Errand-Writer": {writer}, "ce-id": {"mandate.enroll.succeeded.r1.5"}}
			}
			r.Header.Set("Nats-Time-Stamp", began.Format(time.RFC3339Nano))
			_ = m.RespondMsg(r)
		}); err != nil {
			t.Fatal(err)
		}
		if seq, err := log.Append(t.Context(), outcome("r1", 5, "{}")); err != nil || seq != 7 {
			t.Errorf("got %d, %v; want the event at 7, which is ours", seq, err)
		}
	})
}

// A fence keeps events single; an id would only let the server refuse them.
func TestFencedEventsHaveNoMessageID(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	seq, err := newLog(t, nc).Append(t.Context(), record("r1", "w", 0))
	if err != nil {
		t.Fatal(err)
	}
	_, s := streamOf(t, nc, bus.MandateEvents)
	m, err := s.GetMsg(t.Context(), seq)
	if err != nil {
		t.Fatal(err)
	}
	want := [2]string{"mandate.enroll.started.r1.0", ""}
	if got := [2]string{m.Header.Get("ce-id"), m.Header.Get(nats.MsgIdHdr)}; got != want {
		t.Errorf("ce-id and Nats-Msg-Id are %q, want %q", got, want)
	}
}
