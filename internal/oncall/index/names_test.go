package index

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/names"
	"errand/pkg/messages"
)

// A word is indexed for a message exactly when a search finds it there, however it is spelled and escaped. This is not a
// fuzz target: instrumenting SQLite takes minutes. FuzzNames of package inspect fuzzes what both read.
func TestTheIndexHashesWhatASearchFinds(t *testing.T) {
	t.Parallel()
	words := []string{"DD 001", "dd001", "DD0010", "2026/001", "Zoë", "ZOË  tan", "Tan & Sons", "ann@example.com", `"Ann" <ANN@example.com>`,
		"joann@example.com", "ann@bücher.example", "ann@xn--bcher-kva.example", "x y@b.", "x y@b", "900101145678", "0900101145678", ""}
	subjects := []string{"mandate.enroll.failed.a", "mandate.callback.received.a", "mandate.deduction.failed.a", "mail.delivery.delivered.a",
		"mail.delivery.delivered.unmatched", "mail.batch.refused.a.1", "mandate.deduction.failed.unmatched", "dead.mandate.enroll.requested",
		"mandate.transactions.page.a"}
	fields := []string{"order_number", "payer_name", "payer_id", "payer_bank_code", "to", "from", "address", "message", "query"}
	x := &Index{hash: newHasher(make([]byte, keySize))}
	random := rand.New(rand.NewPCG(1, 2))
	escaped := func(text string) string {
		var b strings.Builder
		for _, r := range text {
			if random.IntN(2) == 0 || r < ' ' || r == '"' || r == '\\' {
				fmt.Fprintf(&b, `\u%04x`, r)
			} else {
				b.WriteRune(r)
			}
		}
		return b.String()
	}
	named := 0
	for range 5000 {
		word, subject := words[random.IntN(len(words))], subjects[random.IntN(len(subjects))]
		body := fmt.Sprintf(`{"entry":{"%s":"%s"},"%s":["%s"]}`, fields[random.IntN(len(fields))], escaped(words[random.IntN(len(words))]),
			fields[random.IntN(len(fields))], escaped(word))
		b := x.gather([]bus.Message{{Subject: subject, Sequence: 1, Time: time.Now(), Data: []byte(body),
			Header: map[string][]string{bus.HeaderRequestID: {"a"}}}})
		have := map[int64]bool{}
		for _, n := range b.names {
			have[n.hash] = true
		}
		for _, row := range b.rows {
			have[row.hash] = true
		}
		indexed := false
		for _, n := range names.NewWord(word).Names() {
			indexed = indexed || n.Key != "" && have[x.hash.name(n)]
		}
		as := names.NewWord(word).In(messages.ParseSubject(subject).Operation, []byte(body))
		if (as != "") != indexed {
			t.Errorf("%q in %s %s: named as %q, indexed %t", word, subject, body, as, indexed)
		}
		if indexed {
			named++
		}
	}
	if named < 500 {
		t.Errorf("only %d of 5000 name their word", named)
	}
}
