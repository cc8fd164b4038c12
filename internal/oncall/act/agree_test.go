package act_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/oncall/act"
	"errand/internal/oncall/index"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

// What a word finds is the same for errand find, for the plan of an erasure and for the console's index, in every
// spelling and escape, and never a neighbour.
func TestFindEraseShowAndTheIndexAgree(t *testing.T) {
	t.Parallel()
	p := ann(t)
	enroll := func(id, number, payerFields string) {
		store(t, p, "mandate.enroll.started."+id, fmt.Sprintf(`{"order_number":%s}`, number))
		store(t, p, "mandate.enroll.failed."+id, fmt.Sprintf(`{"order_number":%s,"reason":"refused"}`, number))
		store(t, p, "dead.mandate.enroll.requested", fmt.Sprintf(`{"order_number":%s,%s}`, number, payerFields), bus.HeaderRequestID, id)
	}
	enroll("spaced", `"DD 001"`, `"payer_email":"ann@example.com","payer_id":"900101011234"`)
	enroll("plain", `"DD001"`, `"payer_email":"joann@example.com","payer_id":900101011234`)
	enroll("lower", `"dd 001"`, `"payer_name":"Zo\u00eb Tan","payer_id":"0900101011234"`)
	enroll("longer", `"DD0010"`, `"payer_name":"Zoë Tan Lee","payer_email":"ann@example.com.my"`)
	enroll("slashed", `"2026\/001"`, `"payer_name":"Tan \u0026 Sons","payer_telephone_number":"60190000000"`)
	enroll("upper", `"X\u0031"`, `"payer_name":"TAN & SONS LTD","payer_email":"\u0041NN@Example.com"`)
	store(t, p, "mandate.deduction.failed.upper", `{"order_number":"X1","transaction":{"order_number":"DED 7"}}`)
	store(t, p, "mandate.callback.received.slashed", `{"query":"from=caller%40example.com"}`)
	store(t, p, "dead.mandate.enroll.requested", `{"order_number":"DD0020","payer_email":"late@example.com"}`, bus.HeaderRequestID, "late")
	store(t, p, "dead.mail.send.requested", `{"to":"late@example.com"}`, bus.HeaderRequestID, "later")
	store(t, p, "mandate.deduction.failed.unmatched", `{"transaction":{"order_number":"LOST 1","payer_email":"lost@example.com"}}`)
	store(t, p, "mail.delivery.deferred.unmatched", `{"entry":{"from":"shop@example.com","to":"lost@example.com"}}`)
	store(t, p, "mail.delivery.delivered.unmatched", `{"entry":{"from":"shop@example.com","to":"lost@example.com"}}`)
	store(t, p, "mail.delivery.delivered.outlived", `{"entry":{"to":"gone@example.com"}}`)
	store(t, p, "mandate.enroll.requested", `{"request_id":"waits","order_number":"DD\u0020001"}`)
	known := &bus.Secrets{Conn: p.Conn}
	secret, err := bus.RecipientSecret(t.Context(), p.Conn)
	if err != nil {
		t.Fatal(err)
	}
	keys := history.KeysOf(secret, "shop@example.com", []string{`"Ann" <Ann@example.com>`})
	started := &messages.SendStarted{Secret: keys}
	body, err := messages.Event{Operation: messages.Send, State: messages.Started, ID: "news", Body: started}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	store(t, p, "mail.send.started.news", string(body))
	store(t, p, "mail.send.accepted.news", `{"recipients":1,"accepted":1}`)
	store(t, p, "mail.send.accepted.other", `{"recipients":1,"accepted":1}`)
	store(t, p, "mail.delivery.delivered.other", `{"entry":{"from":"shop@example.com","to":"joann@example.com"}}`)

	_, current, stop := followed(t, p)
	current()
	stop()
	// What the index does not have, who asks reads.
	store(t, p, "mandate.enroll.succeeded.after", `{"order_number":"DD001","enrollment":{"payer_email":"after@example.com"}}`)
	store(t, p, "mail.delivery.bounced.other", `{"entry":{"to":"joann@example.com"},"smtp":{"code":550}}`)
	store(t, p, "mandate.deduction.approved.unmatched", `{"transaction":{"order_number":"LOST1"}}`)

	for word, want := range map[string][]string{
		"DD001":              {"after", "lower", "plain", "spaced", "waits"},
		"dd 001":             {"after", "lower", "plain", "spaced", "waits"},
		"after@example.com":  {"after"},
		"lost1":              nil,
		"lost@example.com":   nil,
		"late":               {"late"},
		messages.Unmatched:   nil,
		"DD0010":             {"longer"},
		"DD00":               nil,
		"2026/001":           {"slashed"},
		"x1":                 {"upper"},
		"ded7":               {"upper"},
		"Zoë  tan":           {"lower"},
		"tan & sons":         {"slashed"},
		"Tan":                nil,
		"900101011234":       {"plain", "spaced"},
		"60190000000":        {"slashed"},
		"ann@example.com":    {"news", "spaced", "upper"},
		"joann@example.com":  {"other", "plain"},
		"shop@example.com":   {"other"},
		"caller@example.com": {"slashed"},
		"nn@example.com":     nil,
		"late@example.com":   {"late", "later"}, // a repeat left a dead letter, and the events have expired since
		"gone@example.com":   {"outlived"},
		"waits":              {"waits"},
		"longer":             {"longer"},
	} {
		r := inspect.Reader{Conn: p.Conn, JS: p.JS}
		found(t, p, word, nil)
		byFind, byIndex := found(t, p, word, known)
		for _, id := range byFind {
			if stories, err := r.Stories(t.Context(), id, time.Now()); err != nil || stories[0].Unknown() {
				t.Errorf("%s: show of %s says %+v, %v", word, id, stories, err)
			}
		}
		var byErase []string
		traces, err := act.TracesOf(t.Context(), r, word, known, time.Now())
		if err != nil {
			t.Fatal(word, err)
		}
		for _, e := range traces.Requests {
			if e.RequestID != messages.Unmatched { // which it refuses
				byErase = append(byErase, e.RequestID)
			}
			if word == "late@example.com" && (e.Refused != "" || e.DeadLetters != 1) {
				t.Errorf("%s cannot be erased: %+v", e.RequestID, e)
			}
		}
		later := func(id string) bool { return id == "waits" || id == "after" }
		taken := slices.DeleteFunc(slices.Clone(want), later)
		for what, c := range map[string]struct{ got, want []string }{"find": {byFind, want}, "erase": {byErase, want},
			"index": {byIndex, taken}} {
			slices.Sort(c.got)
			if !slices.Equal(c.got, c.want) {
				t.Errorf("%s by %s: %s", word, what, cmp.Diff(c.want, c.got))
			}
		}
	}
}

// followed is the index of a console that answers, follows the streams until it is stopped, and waits until it has everything.
func followed(t *testing.T, p act.Person) (x *index.Index, current, stop func()) {
	t.Helper()
	x, err := index.Open(index.Options{Dir: t.TempDir(), Discarded: act.Discarded, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { x.Follow(ctx, p.Conn, p.JS); close(ended) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(func() { stop(); _ = x.Close() })
	if err := bus.AnswerFind(p.Conn, x.Find); err != nil {
		t.Fatal(err)
	}
	return x, func() {
		for began := time.Now(); !x.Lag().Current.After(began); {
			<-time.After(5 * time.Millisecond)
		}
	}, stop
}

// found are the requests that are found by a word without a console, which must be the same with one, and what the index has of these.
func found(t *testing.T, p act.Person, word string, secrets *bus.Secrets) (byFind, byIndex []string) {
	t.Helper()
	r := inspect.Reader{Conn: p.Conn, JS: p.JS}
	without, err := r.Find(t.Context(), word, secrets, time.Time{}, bus.Known{})
	if err != nil || without.Hidden != nil {
		t.Fatal(word, err, without.Hidden)
	}
	indexed, all := bus.AskFind(t.Context(), p.Conn, secrets.Sought(t.Context(), word))
	with, err := r.Find(t.Context(), word, secrets, time.Time{}, indexed)
	if diff := cmp.Diff(without, with, cmpopts.IgnoreUnexported(inspect.Found{}), cmpopts.IgnoreFields(inspect.Found{}, "Rows"),
		cmpopts.EquateEmpty()); err != nil || !all || diff != "" {
		t.Errorf("%s: a console answers: %v, %v; -without +with it:\n%s", word, all, err, diff)
	}
	for _, f := range without.Found {
		byFind = append(byFind, f.RequestID)
	}
	for _, q := range indexed.Requests {
		byIndex = append(byIndex, q.ID)
	}
	slices.Sort(byFind)
	slices.Sort(byIndex)
	return byFind, slices.Compact(byIndex)
}

// Pages of a listing, a dead letter that outlived its events, and one's own rows of a message to several are forgotten by the
// index when they are erased, as everything else is.
func TestWhatIsErasedOfAPersonIsFoundNowhere(t *testing.T) {
	t.Parallel()
	p := ann(t)
	store(t, p, "mandate.transactions.page.listing", `{"records":[{"payer_email":"ann@example.com"}]}`)
	store(t, p, "mandate.transactions.listed.listing", `{"pages":1}`)
	store(t, p, "dead.mandate.enroll.requested", `{"order_number":"DD1","payer_email":"ann@example.com"}`, bus.HeaderRequestID, "late")
	store(t, p, "mail.send.accepted.news", `{"recipients":2,"accepted":2}`)
	store(t, p, "mail.delivery.delivered.news", `{"entry":{"from":"shop@example.com","to":"ann@example.com"}}`, "ce-id", "1")
	store(t, p, "mail.delivery.delivered.news", `{"entry":{"from":"shop@example.com","to":"ben@example.com"}}`, "ce-id", "2")
	known := &bus.Secrets{Conn: p.Conn}
	x, current, _ := followed(t, p)
	current()
	want := []string{"late", "listing", "news"}
	if byFind, byIndex := found(t, p, "ann@example.com", known); !slices.Equal(byFind, want) || !slices.Equal(byIndex, want) {
		t.Fatalf("found are %v, in the index %v, want %v", byFind, byIndex, want)
	}
	r := inspect.Reader{Conn: p.Conn, JS: p.JS}
	traces, err := act.TracesOf(t.Context(), r, "ann@example.com", known, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range traces.Requests {
		if e.Refused == "" {
			if err := p.Erase(t.Context(), e, "x"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := p.EraseRows(t.Context(), traces.Rows, "x"); err != nil {
		t.Fatal(err)
	}
	current()
	if byFind, byIndex := found(t, p, "ann@example.com", known); len(byFind)+len(byIndex) > 0 {
		t.Errorf("after the erasure, found are %v, in the index %v", byFind, byIndex)
	}
	if _, byIndex := found(t, p, "ben@example.com", known); !slices.Equal(byIndex, []string{"news"}) {
		t.Errorf("of another recipient, the index has %v", byIndex)
	}
	if letters, err := x.Requests(t.Context(), index.Filter{Dead: true}); err != nil || len(letters.Rows) > 0 {
		t.Errorf("the index lists dead letters that are gone: %+v, %v", letters.Rows, err)
	}
	stories, err := r.Stories(t.Context(), "late", time.Now())
	if err != nil || !strings.HasPrefix(stories[0].Says, "erased, ") {
		t.Errorf("show says %+v, %v", stories, err)
	}
}
