package inspect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
	"errand/internal/sandbox/devkit/inshort"
	"errand/pkg/messages"
)

// The answers are right among many requests too. How long each takes is logged and not
// judged: that is the machine's.
func TestAnswersAreRightAmongManyRequests(t *testing.T) {
	t.Parallel()
	n := inshort.Choose(t, 100_000, 2000)
	in := provisioned(t)
	in.many(n)
	ended, waiting := n*3/5, n*2/5
	now := time.Now()
	for _, c := range []struct {
		what string
		ask  func() (any, error)
		want string
	}{
		{"status", func() (any, error) { s, err := in.Status(t.Context(), now); return s.Queues[0].Untaken, err }, fmt.Sprint(waiting)},
		{"show one that ended", func() (any, error) { s, err := in.Stories(t.Context(), "e7", now); return s[0].State, err }, "succeeded"},
		{"show one that failed", func() (any, error) {
			s, err := in.Stories(t.Context(), fmt.Sprint("e", 20*(n/40)), now)
			return s[0].State, err
		}, "failed"},
		{"show the last in the queue", func() (any, error) {
			s, err := in.Stories(t.Context(), fmt.Sprint("q", waiting-1), now)
			return s[0].Waits.Place, err
		}, fmt.Sprint(waiting)},
		{"show one that was never seen", func() (any, error) { s, err := in.Stories(t.Context(), "nobody", now); return s[0].State, err },
			"never_seen"},
		{"list the newest", func() (any, error) { l, err := in.List(t.Context(), Query{Limit: 50}, now); return len(l), err }, "50"},
		{"list what failed for a reason", func() (any, error) {
			l, err := in.List(t.Context(), Query{Limit: 50, Since: now.Add(-time.Hour), Reasons: []messages.Reason{messages.ReasonRefused}}, now)
			return len(l), err
		}, "50"},
		{"list all that failed", func() (any, error) {
			l, err := in.List(t.Context(), Query{States: []messages.State{messages.Failed}}, now)
			return len(l), err
		}, fmt.Sprint(ended / 20)},
		{"count by reason", func() (any, error) {
			l, err := in.List(t.Context(), Query{States: Reasoned}, now)
			return fmt.Sprint(ids(ByReason(l), func(g Group) string { return fmt.Sprint(g.State, " ", g.Count) })), err
		}, fmt.Sprint([]string{fmt.Sprint("failed ", ended/20)})},
		{"stuck", func() (any, error) { s, err := in.Stuck(t.Context(), now, 1000, now); return len(s.Requests), err },
			fmt.Sprint(min(1000, waiting))},
		{"dead list", func() (any, error) { d, err := in.DeadLetters(t.Context(), Query{Limit: 50}); return len(d), err }, "50"},
		{"dead show", func() (any, error) {
			d, err := in.DeadLettersOf(t.Context(), fmt.Sprint("e", 20*(n/40)))
			return len(d), err
		}, "1"},
		{"find an order number", func() (any, error) {
			f, err := in.Find(t.Context(), "DD77", nil, time.Time{}, bus.Known{})
			return f.Found[0].RequestID, err
		}, "e77"},
		{"find an address", func() (any, error) {
			f, err := in.Find(t.Context(), "payer77@example.com", nil, time.Time{}, bus.Known{})
			return f.Found[0].RequestID, err
		}, "e77"},
	} {
		began := time.Now()
		got, err := c.ask()
		if t.Logf("%s: %v", c.what, time.Since(began).Round(time.Millisecond)); err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, %v, want %s", c.what, got, err, c.want)
		}
	}
}

// One request that was run again, whether it ended since or waits, makes nobody read the whole queue.
func TestARedriveMakesNobodyReadTheQueue(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	in.many(inshort.Choose(t, 50_000, 10_000))
	read := func() uint64 {
		before := in.Conn.Stats().InMsgs
		if s, err := in.Stuck(t.Context(), time.Now().Add(time.Second), 10, time.Now()); err != nil || len(s.Requests) != 10 {
			t.Errorf("%+v, %v", s.Requests, err)
		}
		return in.Conn.Stats().InMsgs - before
	}
	without := read()
	put := func(subject, body string, header ...string) {
		if _, err := in.js.PublishMsg(t.Context(), devtest.Message(t, subject, body, header...)); err != nil {
			t.Fatal(err)
		}
	}
	<-time.After(1100 * time.Millisecond) // what another server's clock may be behind
	for _, id := range []string{"ended", "waits"} {
		put("mandate.enroll.reopened."+id, fmt.Sprintf(`{"request_id":%q,"by":"ann","why":"INC-1"}`, id))
	}
	put("mandate.enroll.succeeded.ended", `{"request_id":"ended"}`)
	put("mandate.enroll.requested", `{"request_id":"waits"}`, bus.HeaderReopened, "1", bus.HeaderRequestID, "waits")
	if n := read(); n > without+1000 {
		t.Errorf("%d messages were read, %d before", n, without)
	}
}

// However many requests failed, status does not read them.
func TestStatusReadsNoneOfManyFailures(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	const failed = 5000
	for i := range failed {
		m := devtest.Message(t, fmt.Sprint("mail.send.failed.r", i), `{"reason":"refused"}`)
		if _, err := in.js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	<-in.js.PublishAsyncComplete()
	in.store("mail.send.failed.r7", body{"reason": "cancelled"})
	in.store("audit.cancel.ann.r7", body{})
	in.store("audit.cancel.ann.r7", body{"operation": messages.Send, "result": "done"})
	before := in.Conn.Stats().InMsgs
	s, err := in.Status(t.Context(), time.Now())
	failing := func(p Problem) bool { return p.What == "mail.send: 5000 of 5001 failed in the last hour" }
	if n := in.Conn.Stats().InMsgs - before; err != nil || n > 1000 || !slices.ContainsFunc(s.Problems, failing) {
		t.Errorf("%d messages were read for %+v, %v", n, s.Problems, err)
	}
}

// What failed in the last hour is read by few questions: not by one for each request.
func TestManyFailuresOfTheLastHourAreReadByFewQuestions(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	const failed = 20_000
	for i := range failed {
		m := devtest.Message(t, fmt.Sprint("mail.send.failed.r", i), `{"reason":"refused"}`)
		if _, err := in.js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	<-in.js.PublishAsyncComplete()
	in.store("mail.send.reopened.r7", body{"by": "ann"})
	before := in.Conn.Stats().OutMsgs
	rows, err := in.List(t.Context(), Query{States: Reasoned, Since: time.Now().Add(-time.Hour)}, time.Now())
	if n := in.Conn.Stats().OutMsgs - before; err != nil || len(rows) != failed-1 || n > 200 {
		t.Errorf("%d questions for %d rows, %v, want 200 at most for %d", n, len(rows), err, failed-1)
	}
}

// What waits for longer than is asked for is not read.
func TestAListSinceATimeReadsNothingOlderInTheQueue(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	in.many(inshort.Choose(t, 50_000, 10_000))
	<-time.After(100 * time.Millisecond)
	since := time.Now()
	<-time.After(100 * time.Millisecond)
	if _, err := in.js.PublishMsg(t.Context(), devtest.Message(t, "mandate.enroll.requested", `{"request_id":"new"}`)); err != nil {
		t.Fatal(err)
	}
	before := in.Conn.Stats().InMsgs
	rows, err := in.List(t.Context(), Query{Since: since}, time.Now())
	if n := in.Conn.Stats().InMsgs - before; err != nil || len(rows) != 1 || rows[0].RequestID != "new" || n > 2000 {
		t.Errorf("%d messages were read for %d rows, %v: %v, want 2000 at most for the new one", n, len(rows), rows[:min(3, len(rows))], err)
	}
}

// However many wait, a search for one of them reads both ends of its queue, and says what it left out.
func TestASearchReadsNoLongQueueAsAWhole(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	const waiting = 2*searched + 5000
	for i := range waiting {
		body := fmt.Sprintf(`{"request_id":"q%d","order_number":"QQ%d"}`, i, i)
		_, err := in.js.PublishMsgAsync(devtest.Message(t, "mandate.enroll.requested", body), jetstream.WithStallWait(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
	}
	<-in.js.PublishAsyncComplete()
	left := fmt.Sprintf("%d messages in its middle were not searched", waiting-2*searched)
	left = strings.Replace(left, "5000", "5,000", 1)
	bounded := func(what string, ask func()) {
		t.Helper()
		before := in.Conn.Stats().InMsgs
		ask()
		if n := in.Conn.Stats().InMsgs - before; n > 2*searched+15_000 {
			t.Errorf("%s: %d messages were read", what, n)
		}
	}
	bounded("count", func() {
		if rows, err := in.List(t.Context(), Query{States: Reasoned}, time.Now()); err != nil || len(rows) != 0 {
			t.Errorf("%+v, %v, want none", rows, err)
		}
	})
	body, at := []byte(`{"request_id":"later"}`), time.Now().Add(time.Hour)
	named, _ := messages.Check(messages.Enroll, body) // it is not valid
	kept := bus.Schedule{Operation: messages.Enroll, ID: "later", Fingerprint: named.Fingerprint, At: at}.Message(&bus.Request{Data: body})
	for _, m := range []*nats.Msg{kept, devtest.Message(t, "mandate.enroll.deferred.later", fmt.Sprintf(
		`{"reason":"scheduled","not_before":%q,"fingerprint":%q}`, at.UTC().Format(time.RFC3339), named.Fingerprint))} {
		if _, err := in.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	bounded("show what is not in it", func() {
		if s, err := in.Stories(t.Context(), "later", time.Now()); err != nil || len(s) != 1 || s[0].Waits == nil {
			t.Errorf("%+v, %v, want it to be scheduled", s, err)
		}
	})
	for id, place := range map[string]uint64{"q7": 8, fmt.Sprint("q", waiting-7): waiting - 6, fmt.Sprint("q", searched+2500): 0} {
		bounded("show "+id, func() {
			s, err := in.Stories(t.Context(), id, time.Now())
			switch {
			case err != nil || len(s) != 1:
				t.Fatal(s, err)
			case place == 0 && (s[0].State != NeverSeen || !strings.Contains(s[0].Says, left)):
				t.Errorf("%s is %s: %s, want %s", id, s[0].State, s[0].Says, left)
			case place > 0 && (s[0].Waits == nil || s[0].Waits.Place != place):
				t.Errorf("%s waits as %+v, want place %d", id, s[0].Waits, place)
			}
		})
		bounded("find "+id, func() {
			f, err := in.Find(t.Context(), "Q"+id, nil, time.Time{}, bus.Known{})
			if err != nil || len(f.Found) != map[bool]int{true: 1}[place > 0] || f.Hidden == nil || !strings.Contains(f.Hidden.Error(), left) {
				t.Errorf("%s: %+v, %v", id, f, err)
			}
		})
	}
}

// many stores n requests for enrollments: three of five have ended, one in twenty of these
// failed; the others wait.
func (in installation) many(n int) {
	in.t.Helper()
	store := func(subject, body string, header ...string) {
		if _, err := in.js.PublishMsgAsync(devtest.Message(in.t, subject, body, header...), jetstream.WithStallWait(time.Minute)); err != nil {
			in.t.Fatal(err)
		}
	}
	fingerprint := strings.Repeat("4c4a2fac", 8)
	for i := range n * 3 / 5 {
		id := fmt.Sprint("e", i)
		store("mandate.enroll.started."+id,
			fmt.Sprintf(`{"request_id":%q,"at":"2026-01-01T00:00:00.000Z","attempt":1,"deadline":"2026-01-01T00:00:35.000Z","fingerprint":%q,"order_number":"DD%d","max_frequency":9}`, id, fingerprint, i))
		if i%20 != 0 {
			store("mandate.enroll.succeeded."+id,
				fmt.Sprintf(`{"request_id":%q,"at":"2026-01-01T00:00:00.000Z","attempt":1,"order_number":"DD%d","enrollment":{"payer_email":"payer%d@example.com","url":"https://pay.example/enroll/%d"},"fingerprint":%q}`, id, i, i, i, fingerprint))
			continue
		}
		ack, err := in.js.PublishMsg(in.t.Context(), devtest.Message(in.t, "mandate.enroll.failed."+id,
			fmt.Sprintf(`{"request_id":%q,"reason":"refused","http_status":422,"order_number":"DD%d"}`, id, i)))
		if err != nil {
			in.t.Fatal(err)
		}
		store("dead.mandate.enroll.requested", "{}", bus.HeaderRequestID, id, nats.MsgIdHdr,
			fmt.Sprintf("dead.mandate.enroll.%s.%d", id, ack.Sequence))
	}
	for i := range n * 2 / 5 {
		store("mandate.enroll.requested",
			fmt.Sprintf(`{"request_id":"q%d","order_number":"QQ%d","amount":100.5,"payer_id_type":1,"payer_id":"900101011234","payer_name":"Test Payer","payer_email":"payer@example.com","payer_telephone_number":"60190000000","frequency_mode":"MT","application_reason":"Monthly fee"}`, i, i))
	}
	<-in.js.PublishAsyncComplete()
}
