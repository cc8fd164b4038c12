package messages

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// decoders are the four requests; the tests of this file hold for each.
var decoders = map[string]func([]byte) (any, Meta, error){
	"enroll":       func(b []byte) (any, Meta, error) { r, m, err := Decode[EnrollRequest](b); return r, m, err },
	"transactions": func(b []byte) (any, Meta, error) { r, m, err := Decode[TransactionsRequest](b); return r, m, err },
	"send":         func(b []byte) (any, Meta, error) { r, m, err := Decode[SendRequest](b); return r, m, err },
	"account":      func(b []byte) (any, Meta, error) { r, m, err := Decode[AccountRequest](b); return r, m, err },
}

// faultsOf are the fields of an *Invalid, nil when there is no error.
func faultsOf(t *testing.T, err error) map[string][]string {
	t.Helper()
	if err == nil {
		return nil
	}
	var invalid *Invalid
	if !errors.As(err, &invalid) || len(invalid.Fields) == 0 {
		t.Fatalf("got %T %v, want an *Invalid with fields", err, err)
	}
	return invalid.Fields
}

func TestAMessageThatIsNoObjectIsRefusedAsAWhole(t *testing.T) {
	for body, rule := range map[string]string{
		"":                           "is empty",
		" \r\n\t":                    "is empty",
		"null":                       "must be a JSON object",
		`"text"`:                     "must be a JSON object",
		`[{}]`:                       "must be a JSON object",
		`1`:                          "must be a JSON object",
		`{`:                          "is not JSON",
		`{} {}`:                      "is not JSON",
		`{},`:                        "is not JSON",
		"{}\x00":                     "is not JSON",
		`{"a":01}`:                   "is not JSON",
		`{"a":"` + "\n" + `"}`:       "is not JSON",
		"\ufeff{}":                   "is not JSON",
		`{'a':1}`:                    "is not JSON",
		`{"a":NaN}`:                  "is not JSON",
		"{\"request_id\":\"a\xff\"}": "is not UTF-8",
		"\xff\xfe{}":                 "is not UTF-8",
	} {
		for name, decode := range decoders {
			_, meta, err := decode([]byte(body))
			if diff := cmp.Diff(map[string][]string{"body": {rule}}, faultsOf(t, err)); diff != "" {
				t.Errorf("%s %q (-want +got):\n%s", name, body, diff)
			}
			if meta != (Meta{}) {
				t.Errorf("%s %q: got %+v, want nothing", name, body, meta)
			}
		}
	}
}

func TestUnknownFieldsAreRefusedByName(t *testing.T) {
	for body, want := range map[string][]string{
		`{"amuont":1}`:                           {"amuont"},
		`{"Request_id":"a"}`:                     {"Request_id"},
		`{"a":{},"b":[1],"":null}`:               {"a", "b", `""`},
		`{"line\nbreak\u0000":1}`:                {"line break "},
		`{"` + strings.Repeat("é", 200) + `":1}`: {strings.Repeat("é", 64)},
		`{"\ud83d\ude00":1}`:                     {"😀"},
		`{"body":1}`:                             {"body"},
	} {
		for name, decode := range decoders {
			_, meta, err := decode([]byte(body))
			faults := faultsOf(t, err)
			for _, field := range want {
				if !slices.Contains(faults[field], "is not a known field") {
					t.Errorf("%s %s: got %q, want %q refused", name, body, faults, field)
				}
			}
			if meta.Fingerprint == "" {
				t.Errorf("%s %s: no fingerprint", name, body)
			}
		}
	}
}

func TestAKeyGivenTwiceIsRefused(t *testing.T) {
	for body, field := range map[string]string{
		`{"request_id":"a","request_id":"a"}`:                "request_id",
		`{"request_id":"a","\u0072equest_id":"b"}`:           "request_id",
		`{"request_id":null,"request_id":"b"}`:               "request_id",
		`{"a":1,"b":2,"a":1}`:                                "a",
		`{"headers":{"X-A":"1","X-A":"1"}}`:                  "headers X-A",
		`{"headers":{"X-A":"1","\u0058-A":"1"}}`:             "headers X-A",
		`{"to_object":{"name":"a","bucket":"b","name":"a"}}`: "to_object name",
		`{"metadata":[{"deep":{"x":1,"y":2,"x":3}}]}`:        "metadata x",
		`{"unknown":{"x":1,"x":3}}`:                          "unknown x",
	} {
		for name, decode := range decoders {
			_, meta, err := decode([]byte(body))
			top, path, nested := strings.Cut(field, " ")
			rule := "is given twice"
			if nested {
				rule = path + " " + rule
			}
			if faults := faultsOf(t, err); !slices.Contains(faults[top], rule) {
				t.Errorf("%s %s: got %q, want %s refused", name, body, faults, field)
			}
			if meta.RequestID != "" || meta.Fingerprint == "" {
				t.Errorf("%s %s: got %+v, want no id and a fingerprint", name, body, meta)
			}
		}
	}
}

func TestARequestIDMustFit(t *testing.T) {
	longest := strings.Repeat("a", 64)
	for raw, want := range map[string]string{
		`"a"`: "a", `"A_z-09"`: "A_z-09", `"` + longest + `"`: longest, `"\u0061"`: "a", `null`: "", `""`: "",
	} {
		for name, decode := range decoders {
			_, meta, err := decode([]byte(`{"request_id":` + raw + `}`))
			if faults := faultsOf(t, err); faults["request_id"] != nil || meta.RequestID != want {
				t.Errorf("%s %s: got %q, %q, want %q", name, raw, meta.RequestID, faults["request_id"], want)
			}
		}
	}
	for _, raw := range []string{`"a.b"`, `"a b"`, `" "`, `"é"`, `"` + longest + `a"`, `">"`, `"*"`, `1`, `true`, `["a"]`, `{"a":1}`, `"a\n"`,
		`"unmatched"`, `"MAIL_REQUESTS-1"`} {
		for name, decode := range decoders {
			_, meta, err := decode([]byte(`{"request_id":` + raw + `}`))
			if faults := faultsOf(t, err); len(faults["request_id"]) != 1 || meta.RequestID != "" || meta.Fingerprint == "" {
				t.Errorf("%s %s: got %+v, %q", name, raw, meta, faults)
			}
		}
	}
}

// A request of a producer must not end up under an id that the programs give themselves.
func TestAnIDThatTheProgramsGiveIsNoRequestsOwn(t *testing.T) {
	ids := []string{"unmatched"}
	for _, stream := range []string{"MANDATE_REQUESTS", "MANDATE_EVENTS", "MAIL_REQUESTS", "MAIL_EVENTS", "MAIL_DELIVERIES", "DEAD_LETTERS",
		"RATE_LEASES", "AUDIT", "KEYS"} {
		ids = append(ids, stream+"-1", stream+"-18446744073709551615", stream+"-0", stream+"-007")
	}
	for _, id := range ids {
		_, meta, err := Decode[AccountRequest]([]byte(`{"request_id":"` + id + `"}`))
		want := map[string][]string{"request_id": {"is reserved: unmatched, or a stream and a number such as MAIL_REQUESTS-12"}}
		if diff := cmp.Diff(want, faultsOf(t, err)); diff != "" || meta.RequestID != "" || ValidID(id) {
			t.Errorf("%s: %+v (-want +got):\n%s", id, meta, diff)
		}
	}
	for _, id := range []string{"Unmatched", "unmatched-1", "MAIL_REQUESTS", "MAIL_REQUESTS-", "MAIL_REQUESTS-1a", "MAIL_REQUESTS--1",
		"MAIL_REQUESTS-1-1", "MAIL_REQUESTS_1",
		"mail_requests-1", "XMAIL_REQUESTS-1", "ORDERS-1", "AUDIT-", "-1", "1-1"} {
		if !ValidID(id) {
			t.Errorf("%s is refused", id)
		}
	}
}

func TestMetaIsFilledForAnInvalidRequest(t *testing.T) {
	for name, decode := range decoders {
		_, meta, err := decode([]byte(`{"request_id":"a-1","no_such_field":1}`))
		if err == nil || meta.RequestID != "a-1" || len(meta.Fingerprint) != 64 {
			t.Errorf("%s: got %+v, %v", name, meta, err)
		}
	}
}

func TestManyFaultsMakeAShortError(t *testing.T) {
	var b strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&b, `,"%s%d":{"a":1,"a":2}`, strings.Repeat("n", 100), i)
	}
	for name, decode := range decoders {
		_, _, err := decode([]byte("{" + b.String()[1:] + "}"))
		faults := faultsOf(t, err)
		if len(faults) > 60 || len(err.Error()) > 8000 {
			t.Errorf("%s: %d fields, %d octets", name, len(faults), len(err.Error()))
		}
		if !slices.Contains(faults["body"], "has more faults than are listed") {
			t.Errorf("%s: nothing says that there are more: %q", name, slices.Sorted(maps.Keys(faults)))
		}
	}
}

// However many names the producer made up, faults of the known ones are reported.
func TestKnownFieldsAreReportedBehindManyUnknownOnes(t *testing.T) {
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, `"a%d":1,`, i)
	}
	_, _, err := Decode[EnrollRequest]([]byte("{" + b.String() + `"order_number":"1","order_number":"2"}`))
	faults := faultsOf(t, err)
	if !slices.Contains(faults["order_number"], "is given twice") || !slices.Contains(faults["amount"], "is required") {
		t.Errorf("got %q", faults)
	}
}

func TestAStringEndsBehindAnEvenNumberOfBackslashes(t *testing.T) {
	for raw, want := range map[string]string{
		`"a\\"`: `a\`, `"a\\\\"`: `a\\`, `"\\\""`: `\"`, `"\""`: `"`, `"\\"`: `\`, `"\"\\"`: `"\`, `"\u005c\\"`: `\\`,
	} {
		for _, body := range []string{
			`{"order_number":` + raw + `,"payer_email":"a@b.example"}`,
			`{"payer_email":"a@b.example","order_number":` + raw + `}`,
		} {
			got, _, err := Decode[TransactionsRequest]([]byte(body))
			if err != nil || got.OrderNumber != want || got.PayerEmail != "a@b.example" {
				t.Errorf("%s: got %+v, %v, want %s", body, got, err, want)
			}
		}
	}
}

func TestAnErrorNamesFieldsAndRulesInOrder(t *testing.T) {
	err := &Invalid{Fields: map[string][]string{"to": {"is required"}, "amount": {"is wrong", "is bad"}}}
	if got, want := err.Error(), "invalid request: amount is wrong, is bad; to is required"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDeeplyNestedBodiesHaveAFingerprint(t *testing.T) {
	const deep = 9000
	for _, body := range []string{
		`{"a":` + strings.Repeat(`[`, deep) + strings.Repeat(`]`, deep) + `}`,
		`{"a":` + strings.Repeat(`{"b":`, deep) + "1" + strings.Repeat(`}`, deep) + `}`,
	} {
		for name, decode := range decoders {
			if _, meta, err := decode([]byte(body)); err == nil || meta.Fingerprint == "" {
				t.Errorf("%s: got %+v, %v", name, meta, err)
			}
		}
	}
}

// The fingerprint relies on it.
func TestFieldsAreDistinctAndFitAForm(t *testing.T) {
	names := func(n int, name func(int) string) (all []string) {
		for i := range n {
			all = append(all, name(i))
		}
		return all
	}
	for _, all := range [][]string{
		names(len(enrollFields), func(i int) string { return enrollFields[i].name }),
		names(len(sendFields), func(i int) string { return sendFields[i].name }),
		names(len(transactionsFields), func(i int) string { return transactionsFields[i].name }),
		names(len(accountFields), func(i int) string { return accountFields[i].name }),
	} {
		slices.Sort(all)
		if len(slices.Compact(slices.Clone(all))) != len(all) || len(all) > len(form{}.found) {
			t.Errorf("not distinct or too many: %q", all)
		}
		for _, name := range all {
			if !utf8.ValidString(name) || strings.ToLower(name) != name {
				t.Errorf("%q", name)
			}
		}
	}
}
