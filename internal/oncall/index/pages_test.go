package index

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/oncall/inspect"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

type body = map[string]any

// listed are the requests that an index lists, oldest first, with their states.
func (in installation) listed(x *Index, f Filter) (list []string) {
	in.t.Helper()
	page, err := x.Requests(in.t.Context(), f)
	if err != nil {
		in.t.Fatal(err)
	}
	for _, r := range page.Rows {
		list = append(list, r.RequestID+" "+string(r.State))
	}
	slices.Reverse(list)
	return list
}

func (in installation) wantListed(x *Index, f Filter, want ...string) {
	in.t.Helper()
	if diff := cmp.Diff(want, in.listed(x, f)); diff != "" {
		in.t.Errorf("%+v: -want +got:\n%s", f, diff)
	}
}

// found are the requests that are found by a word, in order, and how.
func (in installation) found(x *Index, word string) (list []string) {
	in.t.Helper()
	known, err := in.find(x, word)
	if err != nil {
		in.t.Fatal(err)
	}
	for _, r := range known.Requests {
		list = append(list, fmt.Sprintf("%s [%s]", r.ID, r.As))
	}
	slices.Sort(list)
	return list
}

func (in installation) wantFound(x *Index, word string, want ...string) {
	in.t.Helper()
	if diff := cmp.Diff(want, in.found(x, word)); diff != "" {
		in.t.Errorf("%s: -want +got:\n%s", word, diff)
	}
}

func TestARequestIsInTheStateOfItsLastEvent(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	for _, e := range []struct {
		subject string
		body    body
	}{
		{"mandate.enroll.started.a", body{"attempt": 1}},
		{"mandate.enroll.failed.b", body{"reason": "refused", "http_status": 422}},
		{"mandate.enroll.uncertain.c", body{"reason": "no_answer"}},
		{"mandate.enroll.resolved.c", body{"outcome": "failed"}},
		{"mandate.enroll.uncertain.d", body{"reason": "no_answer", "after_unknown": true}},
		{"mandate.enroll.resolved.d", body{"outcome": "succeeded"}},
		{"mandate.enroll.failed.e", body{"reason": "refused"}},
		{"mandate.enroll.reopened.e", body{"by": "ann"}},
		{"mail.send.deferred.f", body{"reason": "busy"}},
		{"mail.send.partial.g", body{}},
		{"mail.batch.refused.g.2", body{"reason": "refused"}},
		{"mail.account.reported.h", body{}},
		{"mandate.transactions.page.i", body{"page": 1}},
		{"mandate.enroll.uncertain.j", body{"reason": "no_answer"}},
		{"mandate.enroll.failed.a", body{"reason": "unavailable", "attempt": 2}},
	} {
		in.store(e.subject, e.body)
	}
	in.store("dead.mandate.enroll.requested", body{"order_number": "DD1"}, bus.HeaderRequestID, "b")
	in.store("dead.mandate.enroll.requested", body{"order_number": "DD2"}, bus.HeaderRequestID, "d")
	in.store("dead.mandate.enroll.requested", "nothing that can be read", bus.HeaderRequestID, "expired")
	x := in.open(t.TempDir())
	in.follow(x)
	in.current(x)
	enroll := []messages.Operation{messages.Enroll}
	in.wantListed(x, Filter{Operations: enroll, Dead: false}, "b failed", "c resolved", "d resolved", "e reopened", "j uncertain", "a failed",
		"expired ")
	in.wantListed(x, Filter{States: []messages.State{messages.Failed}}, "b failed", "a failed")
	in.wantListed(x, Filter{Reasons: []messages.Reason{messages.ReasonNoAnswer, messages.ReasonBusy}}, "f deferred", "j uncertain")
	in.wantListed(x, Filter{Classes: []inspect.Class{inspect.Twice}}, "j uncertain", "expired ")
	in.wantListed(x, Filter{Classes: []inspect.Class{inspect.WasDone}}, "d resolved")
	in.wantListed(x, Filter{Classes: []inspect.Class{inspect.Safe}, Operations: enroll}, "b failed", "c resolved", "a failed")
	in.wantListed(x, Filter{Dead: true}, "b failed", "d resolved", "expired ")
	in.wantListed(x, Filter{Since: time.Now().Add(time.Minute)})
	in.wantListed(x, Filter{Until: time.Now().Add(-time.Minute)})
	in.wantListed(x, Filter{Classes: []inspect.Class{inspect.Underway}}, "e reopened", "f deferred", "i page")
	rows, err := x.Request(t.Context(), "a")
	if err != nil || len(rows) != 1 {
		t.Fatalf("a: %+v, %v", rows, err)
	}
	if a := rows[0]; a.Attempt != 2 || a.Sequence != 11 || !a.Began.Before(a.At) && !a.Began.Equal(a.At) ||
		a.Reason != messages.ReasonUnavailable {
		t.Errorf("a is %+v", a)
	}
}

func TestPagesFollowEachOtherWhileRequestsChange(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	for i := range 25 {
		in.store(fmt.Sprintf("mandate.enroll.failed.a%d", i), body{"reason": []string{"refused", "busy"}[i%2]})
	}
	x := in.open(t.TempDir())
	in.follow(x)
	in.current(x)
	var got []string
	f := Filter{Limit: 10}
	for {
		page, err := x.Requests(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Rows {
			got = append(got, r.RequestID)
		}
		if page.Next == "" {
			break
		}
		f.Before = page.Next
		in.store("mandate.enroll.failed.later"+string(page.Next), body{})
		in.current(x)
	}
	if len(got) != 25 || got[0] != "a24" || got[24] != "a0" || len(slices.Compact(slices.Clone(got))) != 25 {
		t.Errorf("pages have %v", got)
	}
	if _, err := x.Requests(t.Context(), Filter{Before: "nowhere"}); err == nil {
		t.Error("an invalid cursor is taken")
	}
}

func TestRequestsAreFoundByWhatTheyName(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	in.store("mandate.enroll.started.a", body{"order_number": " Dd001 "})
	in.store("mandate.enroll.succeeded.a", body{"order_number": "DD001", "enrollment": body{"payer_email": "Ann@BÜCHER.example"}})
	in.store("mandate.enroll.uncertain.b", body{"order_number": "DD002", "evidence": []body{{"payer_email": "ann@bücher.example"}}})
	in.store("dead.mandate.enroll.requested", body{"order_number": "DD003", "payer_email": "bob@example.com"}, bus.HeaderRequestID, "c")
	kept, err := bus.RecipientSecret(t.Context(), in.nc)
	if err != nil {
		t.Fatal(err)
	}
	for id, secret := range map[string]*mailkey.Secret{"keyed": in.secret, "plain": kept,
		"other": mailkey.NewSecret("another secret")} {
		in.store("mail.send.started."+id,
			&messages.SendStarted{Secret: history.KeysOf(secret, "us@example.com", []string{"Carol <Carol@example.com>", "dave@example.com"})})
		in.store("mail.send.accepted."+id, body{})
	}
	row := func(to string, code int) body { return body{"entry": body{"to": to}, "smtp": body{"code": code}} }
	in.store("mail.delivery.deferred.keyed", row("carol@example.com", 451))
	in.store("mail.delivery.delivered.keyed", row("carol@example.com", 250))
	in.store("mail.delivery.bounced.keyed", row("dave@example.com", 550))
	in.store("mail.delivery.bounced.other", row("erin@example.com", 550))
	in.store("mail.delivery.delivered.unmatched", row("carol@EXAMPLE.com", 250))
	x := in.open(t.TempDir())
	in.follow(x)
	in.current(x)
	in.wantFound(x, "dd001", "a [order number]")
	in.wantFound(x, "b", "b [request id]")
	in.wantFound(x, "DD003", "c [order number]")
	in.wantFound(x, "DD004")
	in.wantFound(x, "ann@xn--bcher-kva.example", "a [payer]", "b [payer]")
	in.wantFound(x, "bob@example.com", "c [payer]")
	in.wantFound(x, "erin@example.com", "other [recipient]")
	if got := in.found(x, "carol@example.com"); len(got) != 2 || !slices.Contains(got, "keyed [recipient]") ||
		!slices.Contains(got, "plain [recipient]") {
		t.Errorf("carol: %q", got)
	}
	known, err := in.find(x, "carol@example.com") // the last row of a request, and what is of none
	want := []bus.Place{{Stream: bus.MailDeliveries, Sequence: 5}, {Stream: bus.MailDeliveries, Sequence: 2}}
	if err != nil || !slices.Equal(known.Messages, want) || len(known.Unread) != 1 {
		t.Errorf("carol: %+v, %v, unread %q", known.Messages, err, known.Unread)
	}
}

// What is in the file is useless without the key.
func TestTheFileHoldsNoOrderNumberAndNoAddress(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	in.store("mandate.enroll.started.a", body{"order_number": "DD001"})
	in.store("mandate.enroll.succeeded.a", body{"order_number": "DD001", "enrollment": body{"payer_email": "ann@example.com"}})
	in.store("mandate.enroll.failed.b", body{"order_number": "DD001", "reason": "refused", "message": "DD001 of ann@example.com is known"})
	in.store("dead.mandate.enroll.requested", body{"order_number": "DD001", "payer_email": "ann@example.com"}, bus.HeaderRequestID, "b",
		bus.HeaderMessage, "DD001 of ann@example.com")
	in.store("mail.delivery.delivered.unmatched", body{"entry": body{"to": "ann@example.com"}})
	dir := t.TempDir()
	x := in.open(dir)
	stop := in.follow(x)
	in.current(x)
	in.wantFound(x, "ann@example.com", "a [payer]", "b [payer]")
	stop()
	x.Close()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"DD001", "ann@", "example.com"} {
			if strings.Contains(string(data), secret) {
				t.Errorf("%s holds %s", f.Name(), secret)
			}
		}
		if info, err := f.Info(); err != nil || f.Name() == keyFile && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f.Name(), info.Mode(), err)
		}
	}
}

func TestEventsAndRequestsAreCountedByWhatTheyHaveInCommon(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	for i := range 3 {
		in.store(fmt.Sprint("mandate.enroll.succeeded.a", i), body{})
		in.store(fmt.Sprint("mandate.enroll.failed.b", i), body{"reason": "refused"})
		in.store(fmt.Sprint("mail.delivery.bounced.c", i), body{"entry": body{"to": "x@example.com"}})
	}
	in.store("mandate.enroll.deferred.d", body{"reason": "busy"})
	in.store("mandate.enroll.started.d", body{})
	in.store("mandate.enroll.failed.d", body{"reason": "refused"})
	x := in.open(t.TempDir())
	in.follow(x)
	in.current(x)
	since := time.Now().Add(-2 * time.Hour)
	events, err := x.Events(t.Context(), since)
	if err != nil || slices.ContainsFunc(events, func(c Count) bool { return c.At.Before(since) || c.At.After(time.Now()) }) {
		t.Errorf("events: %v, %v", events, err)
	}
	counts, err := x.Counts(t.Context())
	if err != nil {
		t.Error(err)
	}
	summed := func(counts []Count, by func(Kind) Kind) (list []string) {
		for _, c := range Sum(counts, by) {
			list = append(list, fmt.Sprint(c.Operation, " ", c.State, " ", c.Reason, " ", c.Count))
		}
		return list
	}
	for name, c := range map[string]struct{ got, want []string }{
		"by state": {summed(events, func(k Kind) Kind { return Kind{State: k.State} }), []string{" failed  4", " bounced  3", " succeeded  3",
			" deferred  1"}},
		"with a reason": {summed(events, func(k Kind) Kind {
			if k.Reason == "" {
				return Kind{}
			}
			return Kind{Operation: k.Operation, State: k.State, Reason: k.Reason}
		}), []string{"mandate.enroll failed refused 4", "mandate.enroll deferred busy 1"}},
		"requests": {summed(counts, func(k Kind) Kind { return k })[:2],
			[]string{"mandate.enroll failed refused 4", "mandate.enroll succeeded  3"}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s, -want +got:\n%s", name, diff)
		}
	}
	if events, err := x.Events(t.Context(), time.Now().Add(time.Hour)); len(events) > 0 || err != nil {
		t.Errorf("events of the future: %v, %v", events, err)
	}
}
