package bus_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// A server whose storage is full when a request is due does not try again: the programs have it put into its queue, once, within two
// minutes after there is room. They leave what is not due yet as it is.
func TestWhatCameDueWhileTheStorageWasFullRunsOnceThereIsRoom(t *testing.T) {
	devtest.InBubble(t, func(t *testing.T, n *devkit.NATS, nc *nats.Conn) {
		js := opened(t, nc)
		found, err := bus.Check(t.Context(), js, []bus.Queue{bus.SendSchedules})
		if err != nil {
			t.Fatal(err)
		}
		publisher, err := bus.NewPublisher(nc)
		if err != nil {
			t.Fatal(err)
		}
		schedule := func(id string, at time.Duration) {
			if err := publisher.Schedule(t.Context(), &bus.Request{Data: []byte(id)}, bus.Schedule{Operation: messages.Send, ID: id,
				Fingerprint: strings.Repeat("f", 64), Sequence: 1, At: time.Now().Add(at)}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		const replicas = 2
		for range replicas {
			s := bus.Schedules{Publisher: publisher, Queue: bus.NewPull(nc, found.Queues[bus.SendSchedules.Name]), Logger: zerolog.Nop()}
			go func() { ended <- s.Run(ctx, ctx) }()
		}
		queued := func() string {
			stream, err := js.Stream(t.Context(), bus.MailRequests)
			if err != nil {
				t.Fatal(err)
			}
			scheduled, err := js.Stream(t.Context(), bus.MailScheduled)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%d in the queue, %d scheduled", stream.CachedInfo().State.Msgs, scheduled.CachedInfo().State.Msgs)
		}
		const due = 20
		for i := range due {
			schedule(fmt.Sprint("due-", i), 30*time.Second)
		}
		schedule("later", time.Hour)
		limit := func(storage int64) {
			limits := server.JetStreamAccountLimits{MaxMemory: -1, MaxStore: storage, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1,
				MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1}
			if err := n.Server.GlobalAccount().UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": limits}); err != nil {
				t.Fatal(err)
			}
		}
		limit(1)
		<-time.After(10 * time.Minute)
		if got := queued(); got != fmt.Sprintf("0 in the queue, %d scheduled", due+1) {
			t.Errorf("while it is full: %s", got)
		}
		limit(-1)
		<-time.After(130 * time.Second)
		if got := queued(); got != fmt.Sprintf("%d in the queue, 1 scheduled", due) {
			t.Errorf("two minutes after there is room: %s", got)
		}
		<-time.After(time.Hour)
		if got := queued(); got != fmt.Sprintf("%d in the queue, 0 scheduled", due+1) {
			t.Errorf("an hour later: %s", got)
		}
		stop()
		for range replicas {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// What cannot be stored again, or was cancelled meanwhile, keeps no other overdue request back; where nothing is stored, the rest waits.
func TestOverdueRequestsAreScheduledAgainAroundWhatIsNotTaken(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	publisher, err := bus.NewPublisher(nc)
	if err != nil {
		t.Fatal(err)
	}
	for id, size := range map[string]int{"large": 5000, "cancelled": 1, "last": 1} {
		if err := publisher.Schedule(t.Context(), &bus.Request{Data: make([]byte, size)}, bus.Schedule{Operation: messages.Send, ID: id,
			Fingerprint: "f", Sequence: 1, At: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	overdue := func() (page []bus.Message) {
		for _, id := range []string{"large", "cancelled", "last"} {
			err := bus.Scan{Stream: bus.MailScheduled, Filter: bus.ScheduledFilter(messages.Send, id)}.Each(t.Context(), nc,
				func(m bus.Message) bool {
					m.Time = m.Time.Add(-time.Hour)
					m.Header.Set("Nats-Schedule", "@at "+m.Time.Format(time.RFC3339Nano))
					page = append(page, m)
					return true
				})
			if err != nil {
				t.Fatal(err)
			}
		}
		return page
	}
	page, s := overdue(), bus.Schedules{Publisher: publisher}
	ended, end := context.WithCancel(t.Context())
	end()
	if stored, rest, err := bus.Again(s, ended, page); stored != 0 || len(rest) != len(page) || err == nil {
		t.Errorf("without an answer %d are stored and %d are left (%v), want all %d left", stored, len(rest), err, len(page))
	}
	page = overdue()
	stream, err := js.Stream(t.Context(), bus.MailScheduled)
	if err == nil {
		err = stream.DeleteMsg(t.Context(), page[1].Sequence)
	}
	if err == nil {
		smaller := stream.CachedInfo().Config
		smaller.MaxMsgSize = 4000
		_, err = js.UpdateStream(t.Context(), smaller)
	}
	if err != nil {
		t.Fatal(err)
	}
	if stored, rest, err := bus.Again(s, t.Context(), page); stored != 1 || len(rest) > 0 || !strings.Contains(fmt.Sprint(err), ".large.") {
		t.Errorf("%d are stored and %d are left (%v), want the last stored, none left, and the large one named", stored, len(rest), err)
	}
}
