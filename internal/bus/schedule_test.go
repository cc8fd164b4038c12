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
