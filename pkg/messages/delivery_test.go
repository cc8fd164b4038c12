package messages

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"errand/internal/wire"
)

// same holds what is appended against encoding/json.
func same(t *testing.T, b DeliveryBody) {
	t.Helper()
	type plain DeliveryBody
	cut := plain(b)
	cut.SMTP.Enhanced = wire.Cut(b.SMTP.Enhanced)
	sameAs(t, b, cut)
}

func sameAs(t *testing.T, b interface{ encoded() ([]byte, error) }, plain any) {
	t.Helper()
	want, err := wire.Marshal(plain)
	if err != nil {
		t.Fatalf("%+v: %v", b, err)
	}
	got, err := b.encoded()
	if err != nil || !bytes.Equal(separated(got), separated(want)) {
		t.Errorf("%+v:\ngot  %s, %v\nwant %s", b, got, err, want)
	}
}

func TestEnrollmentsAreEncodedAsByTheStandardLibrary(t *testing.T) {
	type plainStarted EnrollStarted
	type plainSucceeded EnrollSucceeded
	var started EnrollStarted
	var succeeded EnrollSucceeded
	for _, full := range []bool{false, true} {
		if full {
			fill(reflect.ValueOf(&started).Elem())
			fill(reflect.ValueOf(&succeeded).Elem())
		}
		sameAs(t, started, plainStarted(started))
		sameAs(t, succeeded, plainSucceeded(succeeded))
	}
}

// separated has line separators unescaped: in raw JSON Go 1.26 leaves them, and Go 1.27 escapes them.
func separated(j []byte) []byte {
	return []byte(strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(string(j)))
}

// Each field is set by reflection, so that a field which is added to the body and not appended is found.
func TestDeliveriesAreEncodedAsByTheStandardLibrary(t *testing.T) {
	var full DeliveryBody
	fill(reflect.ValueOf(&full).Elem())
	same(t, DeliveryBody{})
	same(t, full)
	for i := range full.Match.Candidates {
		full.Match.Candidates = full.Match.Candidates[:i]
		same(t, full)
	}
	full.Entry = json.RawMessage(" { \"a b\" :\t[ 1 , \"\\\" c\\\\\" ]\r\n}\n")
	same(t, full)
	full.SMTP.Enhanced = strings.Repeat("\u00e9\"", 400)
	same(t, full)
}

// FuzzDelivery encodes any texts and any row: what a decoder takes for a row is encoded as by encoding/json.
func FuzzDelivery(f *testing.F) {
	f.Add("r1", "2.0.0", []byte(`{"to":"a@example.test"}`))
	f.Add("<&>\u2028\x7f\x00\"\\", "\xff", []byte(" [ \"\\\\\" , \"\\\"\" , {\"a\" :\n1} ] "))
	f.Add("", "5.1.1", []byte("\"\u2029<\xff\""))
	f.Fuzz(func(t *testing.T, text, enhanced string, row []byte) {
		var entry json.RawMessage
		if json.Unmarshal(row, &entry) != nil {
			return
		}
		same(t, DeliveryBody{Common: Common{RequestID: text}, EventID: text, Entry: entry,
			SMTP:  SMTP{Enhanced: enhanced},
			Match: Match{Confidence: Confidence(text), Candidates: []string{text, enhanced}}})
		b := DeliveryBody{Entry: row} // not trimmed
		same(t, b)
	})
}
