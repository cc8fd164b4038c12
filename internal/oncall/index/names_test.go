package index

import (
	"encoding/json"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// FuzzNames holds the index to the search: a word is indexed for a message exactly when the message names it.
func FuzzNames(f *testing.F) {
	for _, word := range []string{"DD 001", "dd001", "2026/001", "Zoë", "Tan & Sons", "ann@example.com", "joann@example.com", "900101145678", "a@b."} {
		text, _ := json.Marshal(word) // a string always encodes
		for _, subject := range []string{"mandate.enroll.failed.a", "mandate.callback.received.a", "mail.delivery.delivered.a", "mail.delivery.delivered.unmatched",
			"dead.mandate.enroll.requested", "mandate.transactions.page.a"} {
			f.Add(word, subject, []byte(`{"order_number":`+string(text)+`,"records":[{"payer_name":"Zo\u00eb"}],"entry":{"to":`+string(text)+`,"from":"x@example.com"}}`))
		}
	}
	x := &Index{hash: newHasher(make([]byte, keySize))}
	f.Fuzz(func(t *testing.T, word, subject string, body []byte) {
		s := messages.ParseSubject(subject)
		op, id := s.Request()
		m := bus.Message{Subject: subject, Sequence: 1, Time: time.Now(), Data: body, Header: map[string][]string{bus.HeaderRequestID: {"a"}}}
		if numberOf(op) == 0 || s.Operation == messages.Log || !s.Dead && id != "a" && (id != messages.Unmatched || s.Operation != messages.Delivery) {
			return // it is about no request
		}
		switch s.State {
		case messages.Summary, messages.Overdue, messages.Erased: // they name nobody, and are not looked into
			return
		}
		b := x.gather([]bus.Message{m})
		have := map[int64]bool{}
		for _, n := range b.names {
			have[n.hash] = true
		}
		for _, row := range b.mails {
			have[row.hash] = true
		}
		indexed := false
		for _, n := range messages.NewWord(word).Names() {
			indexed = indexed || n.Key != "" && have[x.hash.name(n)]
		}
		if as := messages.NewWord(word).In(s.Operation, body); (as != "") != indexed {
			t.Errorf("%q in %s %q: named as %q, indexed %t", word, subject, body, as, indexed)
		}
	})
}
