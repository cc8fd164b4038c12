package messages

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"errand/internal/wire"
)

// aField is what the document says of a field of a request.
type aField struct{ Name, Types, Required string }

func TestEveryFieldOfARequestIsDocumented(t *testing.T) {
	requestIsDocumented(t, Enroll, "enroll", enrollFields)
	requestIsDocumented(t, Transactions, "transactions", transactionsFields)
	requestIsDocumented(t, Send, "send", sendFields)
	requestIsDocumented(t, Account, "account", accountFields)
}

func requestIsDocumented[R any](t *testing.T, o Operation, kind string, fields []field[R]) {
	t.Helper()
	s := sectionOf(t, reference, "`"+o.Requested()+"`")
	var got, want []aField
	for _, row := range s.rows() {
		for _, name := range codesIn("`" + row[0] + "`") {
			outer, part, nested := strings.Cut(name, ".")
			types, optional := strings.CutSuffix(row[1], "?")
			switch {
			case nested:
				got = append(got, aField{Name: name})
			case optional:
				got = append(got, aField{name, types, "no"})
			default:
				got = append(got, aField{name, types, "yes"})
			}
			for _, rule := range rulesOf(t, kind, outer, part) {
				for _, number := range numbers.FindAllString(rule, -1) {
					if !slices.Contains(numbers.FindAllString(row[2], -1), number) {
						t.Errorf("%s: %s: the program says %q, the document does not say %s", o, name, rule, number)
					}
				}
			}
		}
	}
	for _, f := range fields {
		need := "no"
		if f.need == required {
			need = "yes"
		}
		want = append(want, aField{f.name, typesOf(t, kind, f.name), need})
		if f.name == "to_object" {
			for part := range reflect.TypeFor[ObjectRef]().Fields() {
				want = append(want, aField{Name: "to_object." + part.Tag.Get("json")})
			}
		}
	}
	byName := func(a, b aField) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(got, byName)
	slices.SortFunc(want, byName)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-code +document):\n%s", o, diff)
	}
	if len(s.examples()) == 0 {
		t.Errorf("%s has no example", o)
	}
	for _, example := range s.examples() {
		if _, _, err := decoders[kind]([]byte(example)); err != nil {
			t.Errorf("the example of %s: %v", o, err)
		}
	}
}

// All fields but errand's own go to the services.
func TestErrandsOwnFieldsAreDocumented(t *testing.T) {
	_, sentence, _ := strings.Cut(sectionOf(t, reference, "Requests").text, "Errand's own fields are ")
	sentence, _, _ = strings.Cut(sentence, ".")
	own := strings.Fields("request_id on_unknown not_before give_up_at max_pages suppress to_object")
	if diff := cmp.Diff(own, codesIn(sentence)); diff != "" {
		t.Errorf("(-code +document):\n%s", diff)
	}
}

func TestLimitsOfHeadersAreDocumented(t *testing.T) {
	for _, row := range sectionOf(t, reference, "`mail.send.requested`").rows() {
		if row[0] != "headers" {
			continue
		}
		want := []string{strconv.Itoa(wire.MaxHeaders), strconv.Itoa(wire.MaxHeaderName), strconv.Itoa(wire.MaxHeaderValue)}
		if diff := cmp.Diff(want, numbers.FindAllString(row[2], -1)); diff != "" {
			t.Errorf("(-code +document):\n%s", diff)
		}
	}
}

// numbers are limits, dates and times.
var numbers = regexp.MustCompile(`\d[\d:.T-]*\d(Z\b)?|\d`)

// faultsWith are the faults of one field that has the value.
func faultsWith(t *testing.T, kind, name, value string) []string {
	t.Helper()
	_, _, err := decoders[kind]([]byte(`{"` + name + `":` + value + `}`))
	var invalid *Invalid
	if !errors.As(err, &invalid) {
		return nil
	}
	return invalid.Fields[name]
}

// rulesOf are what a decoder says to values that are too long or none of what it takes.
func rulesOf(t *testing.T, kind, name, part string) (rules []string) {
	t.Helper()
	for _, text := range []string{strings.Repeat("a", 1<<17), strings.Repeat("9", 1<<17), "1.234", "99999", "SHA-256=", "?"} {
		value := strconv.Quote(text)
		switch {
		case part != "":
			value = `{"` + part + `":` + value + `}`
		case name == "headers":
			value = fmt.Sprintf(`{"X":%s}`, value)
		}
		for _, rule := range faultsWith(t, kind, name, value) {
			if part == "" || strings.HasPrefix(rule, part+" ") {
				rules = append(rules, rule)
			}
		}
	}
	return rules
}

// typesOf are the types of JSON values that a field takes.
func typesOf(t *testing.T, kind, name string) string {
	t.Helper()
	var types []string
	for _, c := range []struct {
		name   string
		values []string
	}{
		{"number", []string{"1", "100"}},
		{"string", []string{`"7"`, `"100"`, `"a@b.example"`, `"2026-01-02"`, `"2026-01-02 15:04:05"`, `"2026-01-02T15:04:05Z"`,
			`"https://a.example"`, `"report"`}},
		{"boolean", []string{"true"}},
		{"array", []string{`["a@b.example"]`}},
		{"object", []string{`{"X-A":"1"}`, `{"bucket":"b","name":"n","digest":"` + someDigest + `"}`}},
	} {
		if slices.ContainsFunc(c.values, func(v string) bool { return faultsWith(t, kind, name, v) == nil }) {
			types = append(types, c.name)
		}
	}
	return strings.Join(types, ", ")
}

func TestOnUnknownIsDocumented(t *testing.T) {
	kinds := map[string]string{"mandate.enroll": "enroll", "mail.send": "send", "mandate.transactions": "transactions",
		"mail.account": "account"}
	documented := map[string]bool{}
	for _, row := range sectionOf(t, "outcomes.md", "Calls of unknown fate").rows() {
		value := codesIn(row[1])[0]
		documented[row[0]+" "+value] = true
		isDefault := value == OnUnknownReport
		if isDefault != strings.Contains(row[1], "default") {
			t.Errorf("%s: %s", row[0], row[1])
		}
	}
	for operation, kind := range kinds {
		for _, value := range constants(t, "OnUnknown", "") {
			if taken := faultsWith(t, kind, "on_unknown", strconv.Quote(value)) == nil; taken != documented[operation+" "+value] {
				t.Errorf("%s takes %s: %v, and documented: %v", operation, value, taken, !taken)
			}
		}
	}
	if enroll, _, _ := Decode[EnrollRequest](nil); enroll.OnUnknown != OnUnknownReport {
		t.Errorf("an enrollment's default is %s", enroll.OnUnknown)
	}
	if send, _, _ := Decode[SendRequest](nil); send.OnUnknown != OnUnknownReport {
		t.Errorf("a message's default is %s", send.OnUnknown)
	}
}

func TestTheDocumentedListHasTheDocumentedDigest(t *testing.T) {
	s := sectionOf(t, "publish.md", "Long lists: to_object")
	_, list, _ := strings.Cut(s.text, "<<'END'\n")
	list, _, found := strings.Cut(list, "END\n")
	if !found || len(s.examples()) != 1 {
		t.Fatal("no list, or not one request")
	}
	sum := sha256.Sum256([]byte(list))
	r, _, err := Decode[SendRequest]([]byte(s.examples()[0]))
	if want := "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:]); err != nil || r.ToObject.Digest != want {
		t.Errorf("got %+v, %v, want %s", r.ToObject, err, want)
	}
	for text, err := range Lines(strings.NewReader(list)) {
		if _, invalid := ParseRecipient(text); err != nil || invalid != nil {
			t.Errorf("%s: %v, %v", text, err, invalid)
		}
	}
}
