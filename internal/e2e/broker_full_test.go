package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// limit is one way for a server to have no room: what it takes away and returns.
type limit struct {
	name string
	fill func(b *bubble, stream string) (room func())
}

// limits are the ones that an operator meets. The server answers each differently.
var limits = []limit{
	{"bytes of the stream", func(b *bubble, stream string) func() {
		return b.limitStream(stream, func(c *jetstream.StreamConfig, s jetstream.StreamState) { c.MaxBytes = int64(max(s.Bytes, 1)) })
	}},
	{"messages of the stream", func(b *bubble, stream string) func() {
		return b.limitStream(stream, func(c *jetstream.StreamConfig, s jetstream.StreamState) { c.MaxMsgs = int64(max(s.Msgs, 1)) })
	}},
	{"storage of the account", func(b *bubble, _ string) func() { return limitAccount(b.t, b.nats.Server.GlobalAccount()) }},
}

// limitStream leaves a stream no room for more than it holds; it refuses, and drops nothing.
func (b *bubble) limitStream(stream string, change func(*jetstream.StreamConfig, jetstream.StreamState)) (room func()) {
	was, state := b.stream(stream).CachedInfo().Config, b.stream(stream).CachedInfo().State
	if state.Msgs == 0 { // a limit needs something that it lets in
		b.t.Fatalf("%s is empty, it cannot be full", stream)
	}
	was.MaxAge = 0 // an update of a stream with one drops what is there, in virtual time
	b.configure(stream, func(c *jetstream.StreamConfig) {
		*c = was
		c.Discard = jetstream.DiscardNew
		change(c, state)
	})
	return func() { b.configure(stream, func(c *jetstream.StreamConfig) { *c = was }) }
}

// full takes the room away after a time, for a while, and returns when it is back.
func (b *bubble) full(l limit, stream string, after, lasts time.Duration) (back time.Time) {
	b.beside.Go(func() {
		time.Sleep(after)
		room := l.fill(b, stream)
		time.Sleep(lasts)
		room()
	})
	return time.Now().Add(after + lasts)
}

// warm has each service do one request, so that no stream is empty.
func (b *bubble) warm(s *operation) {
	b.t.Helper()
	b.publish(s.Requested(), []byte(`unreadable`)) // for the dead letters
	b.publish(s.Requested(), s.request("warm"))
	b.run(b.program(s, 8), time.Minute, b.haveOutcomes(s.events(), 2))
}

// There is no room for the outcome of a call, for twenty seconds or for longer than the
// call's own deadline: it is kept, and stored when there is.
func TestAnOutcomeWaitsForRoom(t *testing.T) {
	for _, s := range writes {
		for _, l := range limits {
			for _, lasts := range []time.Duration{20 * time.Second, 3 * time.Minute} {
				runInBubble(t, fmt.Sprint(s.call, ", ", l.name, ", ", lasts), func(t *testing.T, b *bubble) {
					b.warm(s)
					b.latency(3 * time.Second)
					b.publish(s.Requested(), s.request("r1", "on_unknown", "report"))
					back := b.full(l, streamOf(s.events()), 2*time.Second, lasts)
					b.run(b.program(s, 8), time.Hour, b.haveOutcomes(s.events(), 3))
					b.beside.Wait()
					wantBy(t, b.outcomes(s.events()), map[string]time.Time{"r1": back.Add(15 * time.Second)}, s.succeeded)
					equal(t, "calls", len(b.writes("r1")), 1)
					b.queueEmpty(s.queue.Stream)
				})
			}
		}
	}
}

// While there is no room to announce a call, the call is not made.
func TestNoCallIsMadeThatCannotBeAnnounced(t *testing.T) {
	for _, c := range writes {
		for _, l := range limits {
			runInBubble(t, fmt.Sprint(c.call, ", ", l.name), func(t *testing.T, b *bubble) {
				b.warm(c)
				b.publish(c.Requested(), c.request("r1", "on_unknown", "report"))
				back := b.full(l, streamOf(c.events()), 0, 10*time.Minute)
				time.Sleep(time.Second)
				b.run(b.program(c, 8), time.Hour, b.haveOutcomes(c.events(), 3))
				b.beside.Wait()
				for _, x := range b.writes("r1") {
					errorIf(t, x.at.Before(back), "a call %v before there was room", back.Sub(x.at))
				}
				e := b.outcomes(c.events())["r1"]
				errorIf(t, e.Subject == "" || e.state() != c.succeeded || len(b.writes("r1")) != 1,
					"%d calls: %s %s", len(b.writes("r1")), e.Subject, e.Raw)
				b.queueEmpty(c.queue.Stream)
			})
		}
	}
}

// There is no room for the dead letter of a request that was refused: the request is acknowledged when its letter is stored, once.
func TestADeadLetterWaitsForRoom(t *testing.T) {
	for _, s := range writes {
		for _, l := range limits {
			runInBubble(t, fmt.Sprint(s.call, ", ", l.name), func(t *testing.T, b *bubble) {
				b.warm(s)
				b.latency(3 * time.Second)
				b.script = refuse(http.StatusUnprocessableEntity)
				b.publish(s.Requested(), s.request("bad"))
				b.full(l, bus.DeadLetters, 2*time.Second, 20*time.Second)
				b.run(b.program(s, 8), 10*time.Minute, func() bool { return b.haveOutcomes(s.events(), 3)() && b.stored(s.queue.Stream) == 0 })
				b.beside.Wait()
				if e := b.outcomes(s.events())["bad"]; e.Subject == "" || e.state() != messages.Failed || e.reason() != "refused" ||
					len(b.writes("bad")) != 1 {
					t.Errorf("%d calls: %s %s", len(b.writes("bad")), e.Subject, e.Raw)
				}
				letters := 0
				for _, d := range b.events("dead." + s.Requested()) {
					if d.Header.Get("Errand-Request-Id") == "bad" {
						letters++
					}
				}
				errorIf(t, letters != 1, "%d dead letters", letters)
				b.queueEmpty(s.queue.Stream)
			})
		}
	}
}

// There is no room for any dead letter: those that need one leave their places to others meanwhile.
func TestRequestsThatWaitForADeadLetterKeepNoOthersWaiting(t *testing.T) {
	const bad, good = 60, 5
	for _, s := range writes {
		runInBubble(t, s.call, func(t *testing.T, b *bubble) {
			b.warm(s)
			room := limits[0].fill(b, bus.DeadLetters)
			for range bad {
				b.publish(s.Requested(), []byte(`unreadable`))
			}
			due := map[string]time.Time{}
			for n := range good {
				b.ask(s, fmt.Sprint("good", n), due, time.Now().Add(30*time.Second))
			}
			b.run(b.program(s, 8), 10*time.Minute, b.haveOutcomes(s.events(), 2+bad+good))
			wantBy(t, b.outcomes(s.events()), due, s.succeeded)
			room()
			b.run(b.program(s, 8), 10*time.Minute, func() bool { return b.stored(s.queue.Stream) == 0 })
			equal(t, "dead letters", len(b.events("dead."+s.Requested())), 1+bad)
		})
	}
}

// There is no room in the middle of a listing, or between the batches of a message: each page and each batch is done once all the same.
func TestWhatHasManyPartsWaitsForRoom(t *testing.T) {
	const parts = 10
	for _, l := range limits {
		runInBubble(t, "pages, "+l.name, func(t *testing.T, b *bubble) {
			s := enrollOp
			b.warm(s)
			b.enrollDirectly(parts*perPage - 1) // and the one before
			b.latency(time.Second)
			b.publish(s.read.Requested(), map[string]any{"request_id": "list"})
			b.full(l, streamOf(s.events()), 4500*time.Millisecond, 20*time.Second)
			b.run(b.program(s, 8), time.Hour, b.haveOutcomes(s.read.events(), 1))
			b.beside.Wait()
			wantListed(t, b.events("mandate.transactions.*.list"), parts, parts*perPage)
			b.wantPagesOnce(parts, 0)
			b.queueEmpty(s.queue.Stream)
		})
		runInBubble(t, "batches, "+l.name, func(t *testing.T, b *bubble) {
			s := sendOp
			b.warm(s)
			b.latency(3 * time.Second)
			b.publish(s.Requested(), message("m1", parts*1000, "on_unknown", "report"))
			b.full(l, streamOf(s.events()), 4*time.Second, 20*time.Second)
			p := b.mails()
			p.BatchParallel = 1
			b.run(p, time.Hour, b.haveOutcomes(s.events(), 3))
			b.beside.Wait()
			e := b.outcomes(s.events())["m1"]
			errorIf(t, e.Subject == "" || e.state() != messages.Accepted || number(e.Body["accepted"]) != parts*1000, "%s %s", e.Subject, e.Raw)
			if o := b.totals(); o.Calls["send"] != parts+1 || o.Mail.TwiceCount != 0 {
				t.Errorf("%d calls for %d batches, %d served twice", o.Calls["send"]-1, parts, o.Mail.TwiceCount)
			}
			b.queueEmpty(s.queue.Stream)
		})
	}
}

// There is no room for the deliveries that the sending log shows: each is published once when there is.
func TestDeliveriesWaitForRoom(t *testing.T) {
	const rows = 250
	for _, l := range limits {
		runInBubble(t, l.name, func(t *testing.T, b *bubble) {
			b.send(message("m1", 5), messages.Accepted)
			b.poll(time.Minute, b.published("mail.delivery.delivered.*", 5))
			b.send(message("m2", rows), messages.Accepted)
			b.full(l, bus.MailDeliveries, 0, 2*time.Minute)
			time.Sleep(time.Second)
			b.poll(time.Hour, b.published("mail.delivery.delivered.*", rows+5))
			b.beside.Wait()
			n := b.count("mail.delivery.delivered.*")
			errorIf(t, n != rows+5, "%d deliveries published, want %d\n%s", n, rows+5, b.logs)
		})
	}
}

// Servers that take messages of 64 KiB, and an upstream that says more than that: each
// request ends, and its outcome says that it was abridged.
func TestOutcomesLargerThanAMessageArePublishedAbridged(t *testing.T) {
	const recipients = 300
	dir := releaseBuild.programs(t)
	parallel(t)
	b := brokers(t, 1, "max_payload: 65536")[0]
	in := installAt(t, dir, b.url, 1, "MAIL_BATCH_SIZE=1", "MAIL_BATCH_PARALLEL=16")
	long := strings.Repeat("é", 100<<10)
	said := func(v any) json.RawMessage {
		body := encode(t, v)
		return body
	}
	var records []map[string]any
	for i := range 100 {
		records = append(records, map[string]any{"id": fmt.Sprint("TXN", i), "order_number": "order-lost", "more": long[:2000]})
	}
	const url = "https://pay.example/?a=1&b=2"
	in.fault(sandbox.Fault{Operation: "enroll", Match: "order-long", Kind: sandbox.AcceptStatus, Status: http.StatusOK,
		Body: said(map[string]any{"url": url, "order_number": "order-long", "more": long})})
	in.fault(sandbox.Fault{Operation: "enroll", Match: "order-lost", Kind: sandbox.AcceptCut})
	in.fault(sandbox.Fault{Operation: "transactions", Kind: sandbox.Status, Status: http.StatusOK, Body: said(map[string]any{"data": records,
		"links": map[string]any{"next": nil}, "meta": map[string]any{"current_page": 1, "last_page": 1, "per_page": 100, "total": 100}})})
	in.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: http.StatusUnprocessableEntity,
		Body: said(map[string]any{"message": long})})
	for _, request := range []string{"long", "lost"} {
		in.publish("mandate.enroll.requested", enrollment(request, "on_unknown", "report"))
	}
	in.publish("mandate.transactions.requested", map[string]any{"request_id": "list"})
	in.publish("mail.send.requested", message("mail", recipients))
	programs := []*process{in.start("mandate-consumer"), in.start("mail-consumer")}
	in.waitOutcomes("mandate.*.*.*", 3, time.Minute)
	in.waitOutcomes("mail.send.*.*", 1, time.Minute)
	for _, p := range programs {
		in.untilReady(p)
		p.stop(time.Minute)
	}

	well := decode[messages.EnrollSucceeded](t, in.wantOne("mandate.enroll.succeeded.long"))
	var answer map[string]string
	if err := json.Unmarshal(well.Enrollment, &answer); err != nil || answer["url"] != url || answer["order_number"] != "order-long" ||
		answer["more"] != "" || !well.Abridged {
		t.Errorf("enrollment: %v, abridged %v: %.300s", err, well.Abridged, well.Enrollment)
	}
	lost := decode[messages.EnrollUncertain](t, in.wantOne("mandate.enroll.uncertain.lost"))
	if n := len(lost.Evidence); lost.Reason != messages.ReasonLinkLost || n == 0 || n == 100 || !lost.Abridged {
		t.Errorf("%s with %d records, abridged %v", lost.Reason, n, lost.Abridged)
	}
	page := decode[messages.TransactionsPage](t, in.wantOne("mandate.transactions.page.list"))
	n := len(page.Records)
	errorIf(t, n == 0 || n == 100 || !page.Abridged, "page of %d records, abridged %v", n, page.Abridged)
	listed := decode[messages.TransactionsListed](t, in.wantOne("mandate.transactions.listed.list"))
	errorIf(t, listed.Total != 100 || listed.Abridged, "listed: %+v", listed)
	mail := decode[messages.SendOutcome](t, in.wantOne("mail.send.failed.mail"))
	if n := len(mail.Unsettled); n == 0 || n == recipients || mail.UnsettledCount != recipients || mail.Recipients != recipients ||
		!mail.Abridged {
		t.Errorf("%d of %d unsettled batches are listed, abridged %v", n, mail.UnsettledCount, mail.Abridged)
	}
	equal(t, "dead letters", in.count("dead.mandate.enroll.requested")+in.count("dead.mail.send.requested"), 2)
	for _, q := range []bus.Queue{bus.EnrollQueue, bus.TransactionsQueue, bus.SendQueue} {
		in.untilSettled(q)
	}
	if o := in.totals(); o.Calls["enroll"] != 2 || o.Calls["send"] != recipients {
		t.Errorf("%d enrollments and %d messages called", o.Calls["enroll"], o.Calls["send"])
	}
}
