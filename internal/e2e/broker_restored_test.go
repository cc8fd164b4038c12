package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// backup gives the messages of a stream, as they are now.
func (b *bubble) backup(stream string) (all []*nats.Msg) {
	b.t.Helper()
	s := b.stream(stream)
	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(b.t.Context(), seq)
		must(b.t, err)
		for name := range m.Header {
			if strings.HasPrefix(name, "Nats-") {
				m.Header.Del(name)
			}
		}
		all = append(all, &nats.Msg{Subject: m.Subject, Data: m.Data, Header: m.Header})
	}
	return all
}

// restore makes a stream again that has only what a backup has.
func (b *bubble) restore(stream string, backup []*nats.Msg) {
	b.t.Helper()
	config := b.stream(stream).CachedInfo().Config
	err := b.js.DeleteStream(b.t.Context(), stream)
	if err == nil {
		_, err = b.js.CreateStream(b.t.Context(), config)
	}
	for i := 0; i < len(backup) && err == nil; i++ {
		var ack *jetstream.PubAck
		if ack, err = b.js.PublishMsg(b.t.Context(), backup[i]); err == nil && ack.Sequence != uint64(i+1) {
			err = fmt.Errorf("stored at %d, want %d", ack.Sequence, i+1)
		}
	}
	must(b.t, err)
}

// An older copy of MANDATE_EVENTS is restored while the poller is at work: what was lost of the
// list is published again, once, and records of enrollments that come then, whose events have
// the sequences of those that were lost, are of their own requests.
func TestARunningPollerPublishesAgainWhatARestoredStreamHasLost(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const n = 10
		enroll := func(from, to int) {
			for i := from; i < to; i++ {
				b.publish("mandate.enroll.requested", enrollment(fmt.Sprint("r", i)))
			}
			b.run(b.mandates(), time.Hour, func() bool { return b.count("mandate.enroll.succeeded.*") == to })
		}
		approve := func(from, to int) {
			for i := from; i < to; i++ {
				b.decide(fmt.Sprint("order-r", i), sandbox.Approve)
			}
		}
		listed := func(status string, n int) func() bool { return b.published("mandate.application."+status+".*", n) }
		await := func(is func() bool) {
			for end := time.Now().Add(3 * time.Hour); !is() && time.Now().Before(end); {
				time.Sleep(10 * time.Second)
			}
		}
		enroll(0, n)
		ctx, stop := context.WithCancel(t.Context())
		b.beside.Go(func() {
			noError(t, b.transactions().Run(ctx))
		})
		await(listed("new", n))
		backup := b.backup(bus.MandateEvents)
		approve(0, n)
		await(listed("approved", n))
		b.restore(bus.MandateEvents, backup)
		enroll(n, 2*n)
		approve(n, 2*n)
		await(listed("approved", 2*n))
		time.Sleep(3 * time.Hour) // the whole list is read again
		stop()
		b.beside.Wait()
		for _, status := range []messages.State{"new", "approved"} {
			for i := range 2 * n {
				got := len(b.events(messages.Application.Subject(status, fmt.Sprint("r", i))))
				if got > 1 || got == 0 && (status == "approved" || i < n) {
					t.Errorf("r%d: %d events say %s", i, got, status)
				}
			}
		}
		if others := b.events("mandate.application.*." + messages.Unmatched); len(others) > 0 {
			t.Errorf("%d records are of no request, such as %s", len(others), others[0].Raw)
		}
	})
}
