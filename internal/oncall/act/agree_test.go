package act_test

import (
	"context"
	"fmt"
	"slices"
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

	x, err := index.Open(index.Options{Dir: t.TempDir(), Discarded: act.Discarded, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { x.Follow(ctx, p.Conn, p.JS); close(ended) }()
	for began := time.Now(); !x.Lag().Current.After(began); {
		<-time.After(5 * time.Millisecond)
	}
	stop()
	<-ended
	if err := bus.AnswerFind(p.Conn, x.Find); err != nil {
		t.Fatal(err)
	}
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
		found, err := r.Find(t.Context(), word, known, time.Time{})
		if err != nil || found.Hidden != nil {
			t.Fatal(word, err, found.Hidden)
		}
		var byFind, byErase, byIndex []string
		for _, f := range found.Found {
			byFind = append(byFind, f.RequestID)
			if stories, err := r.Stories(t.Context(), f.RequestID, time.Now()); err != nil || stories[0].Unknown() {
				t.Errorf("%s: show of %s says %+v, %v", word, f.RequestID, stories, err)
			}
		}
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
		for _, secrets := range []*bus.Secrets{known, nil} {
			without, err := r.Find(t.Context(), word, secrets, time.Time{})
			if err != nil {
				t.Fatal(word, err)
			}
			indexed, all := bus.AskFind(t.Context(), p.Conn, secrets.Sought(t.Context(), word))
			with, err := r.FindRest(t.Context(), word, secrets, time.Time{}, indexed)
			if diff := cmp.Diff(without, with, cmpopts.IgnoreUnexported(inspect.Found{}), cmpopts.IgnoreFields(inspect.Found{}, "Messages", "Pages",
				"Rows"), cmpopts.EquateEmpty()); err != nil || !all || diff != "" {
				t.Errorf("%s: a console answers: %v, %v; -without +with it:\n%s", word, all, err, diff)
			}
			for _, q := range indexed.Requests {
				if secrets != nil && !slices.Contains(byIndex, q.ID) {
					byIndex = append(byIndex, q.ID)
				}
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
