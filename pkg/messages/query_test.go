package messages

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAQueryIsReadFieldForField(t *testing.T) {
	got, meta, err := Decode[TransactionsRequest]([]byte(`{"request_id":"q","order_number":"DD001","status":3,
		"exchange_reference_number":"E-1","payer_email":"payer@example.test","max_pages":4}`))
	want := TransactionsRequest{RequestID: "q", OrderNumber: "DD001", Status: "3", ExchangeReferenceNumber: "E-1",
		PayerEmail: "payer@example.test", MaxPages: 4}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || meta.RequestID != "q" {
		t.Errorf("%v, %+v (-want +got):\n%s", err, meta, diff)
	}
	if got, _, err := Decode[TransactionsRequest]([]byte(`{}`)); err != nil || got != (TransactionsRequest{}) {
		t.Errorf("{}: got %+v, %v", got, err)
	}
}

func TestRulesOfTheFieldsOfAQuery(t *testing.T) {
	for _, c := range []struct {
		name      string
		good, bad []string
	}{
		{"status", []string{`0`, `"3"`, `"approved"`, `null`, `""`}, []string{`-1`, `1.5`, `true`, `[3]`, `"3\n"`}},
		{"max_pages", []string{`1`, `"4"`, `null`}, []string{`0`, `-1`, `1.5`, `"many"`, `true`}},
		{"payer_email", []string{`"a@b.example"`}, []string{`"a"`, `1`, `"A <a@b.example>"`}},
		{"order_number", []string{`"1"`}, []string{`1`, `"a\nb"`, `"` + strings.Repeat("a", 256) + `"`}},
		{"exchange_reference_number", []string{`"1"`}, []string{`1`, `"a\u0000b"`}},
		{"page", nil, []string{`1`}},
	} {
		for _, raw := range c.good {
			if _, _, err := Decode[TransactionsRequest](with(t, `{}`, c.name, raw)); err != nil {
				t.Errorf("%s %s: got %v, want none", c.name, raw, err)
			}
		}
		for _, raw := range c.bad {
			_, _, err := Decode[TransactionsRequest](with(t, `{}`, c.name, raw))
			if faults := faultsOf(t, err); len(faults) != 1 || len(faults[c.name]) == 0 {
				t.Errorf("%s %s: got %q, want one fault under %s", c.name, raw, faults, c.name)
			}
		}
	}
}

func TestAnAccountRequestNeedsNothing(t *testing.T) {
	for body, want := range map[string]string{`{}`: "", `{"request_id":"u"}`: "u", `{"request_id":null}`: ""} {
		got, meta, err := Decode[AccountRequest]([]byte(body))
		if err != nil || got.RequestID != want || meta.RequestID != want {
			t.Errorf("%s: got %+v, %+v, %v", body, got, meta, err)
		}
	}
}
