package inspect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/style"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

// one is the only story of an id.
func (in installation) one(id string) Story {
	in.t.Helper()
	stories, err := in.Stories(in.t.Context(), id, time.Now())
	if err != nil || len(stories) != 1 {
		in.t.Fatalf("%s has the stories %+v, %v, want one", id, stories, err)
	}
	return stories[0]
}

func TestAStorySaysWhereARequestIs(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	for i := range 43 {
		in.store("mandate.enroll.requested", body{"request_id": fmt.Sprint("r", i)})
		in.store("mandate.transactions.requested", body{})
	}
	in.store("mandate.enroll.started.r1", body{"deadline": time.Now().Add(time.Hour)})
	in.store("mandate.enroll.failed.bad", body{"reason": "refused", "http_status": 422, "message": "No such bank."})
	in.store("mandate.enroll.uncertain.odd", body{"reason": "no_answer"})
	in.store("mandate.enroll.resolved.odd", body{"outcome": "succeeded"})
	in.store("mandate.enroll.started.lost", body{})
	in.store("mandate.enroll.succeeded.twin", body{})
	in.store("mail.account.reported.twin", body{})
	for _, c := range []struct{ id, state, says string }{
		{"r40", "queued", "queued, place 41: no mandate-consumer answers, published "},
		{"r1", "started", "started: a call is under way, published "},
		{"MANDATE_REQUESTS-2", "queued", "queued, place 1: no mandate-consumer answers"},
		{"bad", "failed", "failed: refused 422, No such bank, "},
		{"odd", "resolved", "resolved: succeeded, "},
		{"lost", "started", "started, and its queue no longer has it"},
		{"nobody", "never_seen", "never seen: no queue has it, and no event of it is kept"},
		{"MAIL_REQUESTS-2", "never_seen", "never seen"},
	} {
		if s := in.one(c.id); string(s.State) != c.state || !strings.HasPrefix(s.Says, c.says) {
			t.Errorf("%s is %s: %q, want %s: %q", c.id, s.State, s.Says, c.state, c.says)
		}
	}
	stories, err := in.Stories(t.Context(), "twin", time.Now())
	if err != nil || len(stories) != 2 || stories[0].Operation != messages.Enroll || stories[1].Operation != messages.Account {
		t.Errorf("an id of two operations: %+v, %v", stories, err)
	}
}

// A person who decides on a redrive reads what the sending log shows of the batches of unknown fate, and how far it was read.
func TestTheStoryOfAnUncertainMessageSaysWhatTheLogShows(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	called := time.Date(2026, 11, 23, 10, 43, 0, 0, time.UTC)
	in.store("mail.batch.started.m.2", body{"batch": 2, "count": 1000, "at": called})
	in.store("mail.send.uncertain.m", body{"reason": "no_answer", "recipients": 2000, "batches": 2, "unsettled_count": 1,
		"unsettled": []body{{"batch": 2, "first": 1000, "count": 1000, "state": "uncertain"}}})
	says := func(want string) {
		t.Helper()
		if s := in.one("m"); !strings.HasSuffix(s.Says, want) {
			t.Errorf("%q, want %q", s.Says, want)
		}
	}
	says("; of 1,000 recipients of batch 2 the log shows 0, which no poller has read")
	in.store("mail.log.watermark", body{"complete_through": called.Add(-2 * time.Minute)})
	const newest = "; its newest row is of 23 Nov 10:41 UTC"
	if s := in.one("m"); s.Evidence == nil || s.Evidence.Read == nil || time.Since(s.Evidence.Read.Time) > time.Minute {
		t.Errorf("no poller answers: %q, want the time at which the watermark was stored", s.Says)
	}
	read := messages.Time{Time: time.Now().Add(time.Hour).Truncate(time.Second)} // after the watermark
	called = read.Add(-77 * time.Second)
	if err := bus.AnswerStatus(in.Conn, bus.LogPoller, func() bus.ProgramStatus { return bus.ProgramStatus{ReadThrough: &read} }); err != nil {
		t.Fatal(err)
	}
	in.store("mail.batch.started.m.2", body{"batch": 2, "count": 1000, "at": called})
	last := "; last read " + read.UTC().Format("2 Jan 15:04 MST")
	says("; of 1,000 recipients of batch 2 the log shows 0" + last + ", 77s after the call" + newest)
	for _, place := range []string{"1.0", "2.1000", "2.1001?", "2.1000", ""} {
		in.store("mail.delivery.delivered.m", body{}, "Errand-Recipient", place)
	}
	says("; of 1,000 recipients of batch 2 the log shows 2" + last + ", 77s after the call" + newest)
	in.store("mail.send.uncertain.n", body{"reason": "no_answer", "recipients": 3, "batches": 2, "unsettled_count": 2,
		"unsettled": []body{{"batch": 1, "count": 2, "state": "uncertain"}, {"batch": 2, "first": 2, "count": 1, "state": "uncertain"}}})
	want := "; of 3 recipients of 2 batches of unknown fate the log shows 0" + last + newest
	if s := in.one("n"); !strings.HasSuffix(s.Says, want) {
		t.Errorf("%q, want %q", s.Says, want)
	}
}

func TestAStoryHasBatchesDeliveriesAndDeadLetters(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	dead := func(id string, final uint64) []string {
		return []string{"Errand-Request-Id", id, "Errand-Reason", "refused", "Nats-Msg-Id", bus.DeadLetterID(messages.Send, id, final)}
	}
	in.store("dead.mail.send.requested", body{"of": "another life of the id"}, dead("m", 1)...)
	in.store("mail.send.started.m", body{"batches": 120})
	for n := range 120 {
		in.store(fmt.Sprintf("mail.batch.accepted.m.%d", n+1), body{})
	}
	in.store("mail.send.failed.m", body{"reason": "refused"})
	in.store("dead.mail.send.requested", body{"of": "another"}, dead("n", 5)...)
	in.store("dead.mail.send.requested", body{"of": "m"}, dead("m", 122)...)
	in.store("mail.send.failed.mm", body{})
	in.store("mail.delivery.delivered.m", body{})
	in.store("mail.delivery.bounced.m", body{})
	in.store("mail.delivery.delivered.mm", body{})
	s := in.one("m")
	if n := len(s.Events); n != 102 || s.More != 20 { // started, 100 batches, failed
		t.Errorf("%d events, %d more, want 102 and 20", n, s.More)
	}
	if s.Deliveries["delivered"] != 1 || s.Deliveries["bounced"] != 1 || len(s.Delivered) != 2 {
		t.Errorf("deliveries %v, %d events, want one delivered and one bounced", s.Deliveries, len(s.Delivered))
	}
	if len(s.Dead) != 1 || string(s.Dead[0].Event.Message.Data) != `{"of":"m"}` || s.Dead[0].Reason != messages.ReasonRefused ||
		s.Dead[0].Sequence != 3 {
		t.Errorf("its dead letter is %+v", s.Dead)
	}
	letters, err := in.DeadLettersOf(t.Context(), "n")
	if err != nil || len(letters) != 1 || letters[0].Sequence != 2 {
		t.Errorf("of a request without events: %v, %v", letters, err)
	}
	if letters, err = in.DeadLettersOf(t.Context(), "nn"); !errors.Is(err, ErrNoDeadLetter) {
		t.Errorf("of a request that nobody saw: %v, %v", letters, err)
	}
	letters, err = in.DeadLettersOf(t.Context(), "seq:2")
	if err != nil || len(letters) != 1 || letters[0].RequestID != "n" {
		t.Errorf("by its sequence: %+v, %v", letters, err)
	}
	letters, err = in.DeadLetters(t.Context(), Query{Limit: 2})
	names := ids(letters, func(d DeadLetter) string { return fmt.Sprint(d.Sequence, d.RequestID, d.Now) })
	if want := []string{"3mfailed", "2n"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("the newest two are %q, %v, want %q", names, err, want)
	}
}

func TestRequestsAreFoundByOrderNumberAndAddress(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	in.store("mandate.enroll.started.a", body{"request_id": "a", "order_number": "DD001"})
	in.store("mandate.enroll.succeeded.a", body{"request_id": "a", "order_number": "DD001",
		"enrollment": body{"payer_email": "Ann@Example.com"}})
	in.store("mandate.enroll.started.b", body{"request_id": "b", "order_number": "DD0011"})
	in.store("mandate.enroll.failed.c", body{"request_id": "c", "order_number": "dd001"})
	for email, id := range map[string]string{"ANN@example.com": "c", "joann@example.com": "b"} {
		in.store("dead.mandate.enroll.requested", body{"payer_email": email}, "Errand-Request-Id", id)
	}
	in.store("mandate.enroll.requested", body{"request_id": "waits", "order_number": "DD001", "payer_email": "ann@example.com"})
	secret := mailkey.NewSecret(strings.Repeat("s", 32))
	kept, err := bus.RecipientSecret(t.Context(), in.Conn)
	if err != nil {
		t.Fatal(err)
	}
	for id, with := range map[string]*mailkey.Secret{"plain": kept, "keyed": secret} {
		in.store("mail.batch.started."+id+".2",
			&messages.BatchBody{Batch: 2, Secret: history.KeysOf(with, "shop@example.com", []string{"bob@example.com", "Ann@EXAMPLE.com"})})
		in.store("mail.send.accepted."+id, body{})
	}
	to := func(address string, candidates ...string) body {
		return body{"entry": body{"to": address}, "smtp": body{"code": 250, "enhanced": "2.0.0"}, "match": body{"candidates": candidates}}
	}
	in.store("mail.send.requested", body{"request_id": "later", "to": "cho@example.com"})
	in.store("mail.send.failed.refused", body{"invalid": []body{{"address": "cho@example.com"}}})
	in.store("mail.delivery.deferred.plain", to("ann@example.com"))
	in.store("mail.delivery.delivered.plain", to("ann@example.com"))
	in.store("mail.delivery.bounced.plain", to("bob@example.com"))
	in.store("mail.delivery.summary.plain", body{})
	in.store("mail.delivery.delivered.unmatched", to("ANN@example.com", "plain", "other"))
	in.store("mail.delivery.delivered.unmatched", to("joann@example.com"))
	find := func(word string, secrets ...*mailkey.Secret) (names []string, all Finding) {
		in.t.Helper()
		found, err := in.Find(t.Context(), word, &bus.Secrets{Conn: in.Conn, Given: secrets}, time.Time{}, bus.Known{})
		if err != nil {
			t.Fatal(err)
		}
		names = ids(found.Found, func(f Found) string {
			return strings.TrimSpace(fmt.Sprint(f.RequestID, " ", f.State, " ", f.As, " ", f.Mail))
		})
		slices.Sort(names)
		return names, found
	}
	for _, c := range []struct {
		word string
		want []string
	}{
		{"DD001", []string{"a succeeded order number", "c failed order number", "waits queued order number"}},
		{"dd0011", []string{"b started order number"}},
		{"a", []string{"a succeeded request id"}},
		{"waits", []string{"waits queued request id"}},
		{"plain", []string{"plain accepted request id"}},
		{"DD00", nil},
		{"cho@example.com", []string{"later queued recipient", "refused failed recipient"}}, // nothing was sent
		{"bob@example.com", []string{"plain accepted recipient bounced 250 2.0.0"}},
		{"ann@example.com", []string{"a succeeded payer", "c failed payer", "plain accepted recipient delivered 250 2.0.0",
			"waits queued payer"}},
	} {
		if got, _ := find(c.word); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.word, got, c.want)
		}
	}
	_, without := find("ann@example.com")
	if !slices.Equal(without.Unread, []string{secret.ID()}) || len(without.Rows) != 1 {
		t.Errorf("without the secret %v cannot be read, %d rows, want one of each", without.Unread, len(without.Rows))
	}
	got, with := find("ann@example.com", secret)
	if len(got) != 5 || !slices.Contains(got, "keyed accepted recipient "+NoRow) || len(with.Unread) != 0 {
		t.Errorf("with the secret %q, %v", got, with.Unread)
	}
}

func TestNumbersAndTimesAreReadable(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "0s", time.Minute: "1m", 90 * time.Second: "90s", 2 * time.Minute: "2m",
		119 * time.Minute: "119m", 30 * time.Hour: "30h", 50 * time.Hour: "2d"} {
		if got := style.Span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestWhatWasFoundOutIsSaidInWords(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[messages.State]string{messages.Accepted: "it was accepted, as was found out",
		messages.Succeeded: "it has succeeded, as was found out"} {
		if _, got := ClassOf(messages.Send, messages.Resolved, history.Facts{Outcome: outcome}); got != want {
			t.Errorf("%s: %q, want %q", outcome, got, want)
		}
	}
}
