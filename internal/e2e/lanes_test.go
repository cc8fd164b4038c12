package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// declare provisions a lane.
func (w *world) declare(lane string) {
	w.t.Helper()
	must(w.t, devtest.Provision(w.t.Context(), w.js.Conn(), lane))
}

// Where requests of several lanes wait, calls are made by weight, whatever limits them, retries and long lists included: the first of
// a lane begins within a second, behind any number of others.
func TestLanesHaveCallsByWeight(t *testing.T) {
	full(t)
	const rate, minute = 20, time.Minute
	for name, limit := range map[string]func(*programs.MailConsumer){
		"RATE":        func(p *programs.MailConsumer) { p.Rate = rate },
		"FLEET_RATE":  func(p *programs.MailConsumer) { p.FleetRate = rate },
		"CONCURRENCY": func(p *programs.MailConsumer) { p.Concurrency = rate },
	} {
		runInBubble(t, name, func(t *testing.T, b *bubble) {
			b.declare("bulk")
			b.latency(time.Second)
			var posts atomic.Int64
			b.script = func(exchange) reply {
				if posts.Add(1)%7 == 0 {
					return reply{status: http.StatusServiceUnavailable}
				}
				return reply{}
			}
			p := b.mails()
			p.Concurrency, p.BatchSize = 64, 10
			p.Lanes = programs.Lanes{{Name: messages.DefaultLane, Weight: 4}, {Name: "bulk", Weight: 1}}
			limit(p)
			publish := func(subject, id string, n int) {
				for i := range n {
					recipients := 1
					if i%50 == 25 {
						recipients = 50
					}
					b.publish(subject, message(fmt.Sprint(id, i), recipients))
				}
			}
			calls := func(lane string, from, to time.Time) int {
				return len(b.exchanges(func(x exchange) bool {
					return strings.HasPrefix(x.id, lane) && !x.at.Before(from) && x.at.Before(to)
				}))
			}
			publish("mail.send.requested.lane.bulk", "bulk", 1500)
			stop := b.running(p)
			defer stop()
			time.Sleep(minute / 2)
			began := time.Now()
			b.publish("mail.send.requested", message("first", 1))
			time.Sleep(5 * time.Second)
			first := b.exchanges(func(x exchange) bool { return x.id == "first" })
			fatalIf(t, len(first) == 0 || first[0].at.Sub(began) > time.Second, "the first of a lane is called: %v", first)
			alone := calls("bulk", began.Add(-10*time.Second), began)
			errorIf(t, alone < 10*(rate-2), "a lane alone has %d calls in ten seconds, of %d", alone, 10*rate)
			publish("mail.send.requested", "default", 1500)
			time.Sleep(5 * time.Second)
			from := time.Now()
			time.Sleep(minute)
			d, bulk := calls("default", from, from.Add(minute)), calls("bulk", from, from.Add(minute))
			t.Logf("first after %v; alone %d in 10 s; %d and %d in a minute", first[0].at.Sub(began), alone, d, bulk)
			byWeight := bulk*10 >= d*9/4 && bulk*10 <= d*11/4
			if name == "CONCURRENCY" { // what is in flight anyway is called when the other lane has nothing there at that moment
				byWeight = bulk*10 >= d*9/4 && bulk*2 < d
			}
			errorIf(t, !byWeight || d+bulk < rate*57, "%d and %d calls, by weight it is 4 to 1", d, bulk)
		})
	}
}

// A request stays in its lane when it is deferred, scheduled or run again, and is the same request in another one. A lane that is
// not declared takes none; one that was declared after the program started has none of its requests lost.
func TestARequestStaysInItsLane(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const bulk = "mail.send.requested.lane.bulk"
		_, err := b.js.Publish(t.Context(), bulk, []byte("{}"))
		errorIf(t, !errors.Is(err, jetstream.ErrNoStreamResponse), "a lane that is not declared: %v", err)
		b.declare("bulk")
		b.script = func(x exchange) reply {
			if x.id == "m1" && len(b.writes("m1")) < 1 {
				return reply{status: http.StatusBadRequest}
			}
			return reply{}
		}
		stop := b.running(b.mails())
		b.publish(bulk, message("m1", 1))
		b.publish(bulk, message("m2", 1, "not_before", time.Now().Add(time.Minute).UTC().Format(time.RFC3339)))
		time.Sleep(10 * time.Second)
		b.wantOne("mail.send.failed.m1")
		b.wantOne("dead." + bulk)
		b.redrive("m1")
		scheduled := func() uint64 {
			q, err := (inspect.Reader{Conn: b.js.Conn(), JS: b.js}).Queue(t.Context(), bus.SendQueue, time.Now())
			must(t, err)
			return q.Scheduled
		}
		equal(t, "scheduled requests", scheduled(), 1)
		time.Sleep(2 * time.Minute)
		equal(t, "scheduled requests", scheduled(), 0)
		b.publish("mail.send.requested", message("m2", 1))
		b.declare("late")
		b.publish("mail.send.requested.lane.late", message("m3", 1))
		time.Sleep(10 * time.Second)
		stop()
		for _, id := range []string{"m1", "m2"} {
			for _, state := range []messages.State{messages.Started, messages.Accepted} {
				all := b.events("mail.send." + string(state) + "." + id)
				for _, e := range all {
					errorIf(t, !strings.Contains(e.Raw, `"lane":"bulk"`), "%s has another lane: %s", e.Subject, e.Raw)
				}
				errorIf(t, len(all) == 0, "%s was never %s", id, state)
			}
		}
		equal(t, "calls of m2", len(b.writes("m2")), 1)
		b.run(b.mails(), time.Minute, b.published("mail.send.accepted.m3", 1))
		b.wantOne("mail.send.accepted.m3")
	})
}

// Queues that have nothing keep no other from its requests, though there are more lanes than calls at once.
func TestIdleLanesKeepNoPlaceFromOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		subjects := []string{"mail.send.requested"}
		for _, lane := range []string{"a", "b", "c", "d"} {
			b.declare(lane)
			subjects = append(subjects, "mail.send.requested.lane."+lane)
		}
		p := b.mails()
		p.Concurrency = 2
		defer b.running(p)()
		for i, subject := range subjects {
			time.Sleep(10 * time.Second)
			b.publish("mail.account.requested", map[string]any{"request_id": fmt.Sprint("a", i)})
			b.publish(subject, message(fmt.Sprint("m", i), 1))
			time.Sleep(10 * time.Second)
			b.wantOne(fmt.Sprint("mail.send.accepted.m", i))
			b.wantOne(fmt.Sprint("mail.account.reported.a", i))
		}
	})
}

// A request in a lane that is gone, which may be a restored stream's, runs in the default one.
func TestARequestOutlivesItsLane(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const bulk = "mail.send.requested.lane.bulk"
		b.declare("bulk")
		b.script = func(x exchange) reply {
			if x.id == "m1" && len(b.writes("m1")) < 1 {
				return reply{status: http.StatusBadRequest}
			}
			return reply{}
		}
		defer b.running(b.mails())()
		b.publish(bulk, message("m1", 1))
		b.publish(bulk, message("m2", 1, "not_before", time.Now().Add(time.Minute).UTC().Format(time.RFC3339)))
		time.Sleep(10 * time.Second)
		b.wantOne("mail.send.failed.m1")
		s, err := b.js.Stream(t.Context(), bus.MailRequests)
		must(t, err)
		config := s.CachedInfo().Config
		config.Subjects = slices.DeleteFunc(config.Subjects, func(subject string) bool { return subject == bulk })
		must(t, b.js.DeleteConsumer(t.Context(), bus.MailRequests, bus.SendQueue.In("bulk").Name))
		_, err = b.js.UpdateStream(t.Context(), config)
		must(t, err)
		b.redrive("m1")
		time.Sleep(2 * time.Minute)
		b.wantOne("mail.send.accepted.m1")
		b.wantOne("mail.send.accepted.m2")
	})
}

// A request as large as its queue takes begins at its time, though what is noted beside a scheduled one has no room there.
func TestTheLargestRequestsBeginAtTheirTime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		s, err := b.js.Stream(t.Context(), bus.MailRequests)
		must(t, err)
		largest := int(s.CachedInfo().Config.MaxMsgSize)
		at := time.Now().Add(time.Minute)
		for id, header := range map[string]int{"header": 500, "body": 0} {
			m := &nats.Msg{Subject: "mail.send.requested", Header: nats.Header{nats.MsgIdHdr: {id}, "Own": {strings.Repeat("x", header)}}}
			body := message(id, 1, "not_before", at.UTC().Format(time.RFC3339))
			body["content"] = ""
			body["content"] = strings.Repeat("x", largest-m.Size()+len(m.Subject)-len(encode(t, body)))
			m.Data = encode(t, body)
			_, err = b.js.PublishMsg(t.Context(), m)
			must(t, err)
		}
		defer b.running(b.mails())()
		time.Sleep(2 * time.Minute)
		for _, id := range []string{"header", "body"} {
			b.wantOne("mail.send.accepted." + id)
			calls := b.writes(id)
			errorIf(t, len(calls) != 1 || calls[0].at.Before(at) || calls[0].at.Sub(at) > 5*time.Second, "%s: %d calls", id, len(calls))
		}
	})
}
