package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"errand/internal/sandbox/devkit/inshort"
	"errand/pkg/messages"
)

// These tests hold the schemas of requests to the decoders: what a decoder accepts is valid,
// and what it refuses is not, but for what JSON Schema cannot say.

var bodies = flag.Int("bodies", 2000, "random bodies of each operation")

// unsaid are the rules that a schema does not say, or not completely: it accepts more than the
// decoder. Each is the end of a rule.
var unsaid = []string{
	"must be a date such as 2026-01-02",                   // 30 February
	"must be a date and time such as 2026-01-02 15:04:05", // the same
	"offset from UTC, such as 2026-01-02T15:04:05Z",       // the same, and zones that do not exist
	"must be an absolute http or https URL",               // more than how it begins
	"must be an absolute http, https or mailto URL",       // the same
	"must be an email address alone",                      // more than its @
	"must be an email address, a display name allowed",    // the same
	"holds an invisible character",                        //
	"must have at most two decimals",                      // of a number: floating-point validators would refuse 19.99
	"is given twice",                                      // of a header in another case: other repetitions are gone once the body is read
	"has more faults than are listed",                     // follows from others
}

var decode = map[messages.Operation]func([]byte) error{
	messages.Enroll:       func(b []byte) error { _, _, err := messages.Decode[messages.EnrollRequest](b); return err },
	messages.Transactions: func(b []byte) error { _, _, err := messages.Decode[messages.TransactionsRequest](b); return err },
	messages.Send:         func(b []byte) error { _, _, err := messages.Decode[messages.SendRequest](b); return err },
	messages.Account:      func(b []byte) error { _, _, err := messages.Decode[messages.AccountRequest](b); return err },
}

// verdict is what decoder and schema say about a body.
type verdict string

const (
	accepted   verdict = "accepted by both"
	refusedAs  verdict = "refused by both"
	refusedYet verdict = "refused by the decoder alone, for what no schema says"
	notJSON    verdict = "no JSON"
)

// judge compares decoder and schema. The schema judges what a reader of JSON makes of the
// body, where a member has one value and a number one form; so does the decoder then.
func judge(t *testing.T, op messages.Operation, schema *jsonschema.Schema, body []byte) verdict {
	t.Helper()
	if longExponent.Match(body) {
		return notJSON
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil || !utf8.Valid(body) {
		return notJSON
	}
	fault := schema.Validate(value)
	if err := decode[op](body); err == nil {
		if fault != nil {
			t.Fatalf("%s: accepted, but for its schema it is wrong: %s\n%v", op, body, fault)
		}
		return accepted
	}
	read, err := json.Marshal(plainNumbers(value))
	if err != nil {
		t.Fatal(err)
	}
	var invalid *messages.Invalid
	if !errors.As(decode[op](read), &invalid) { // the body was refused for how it was written
		if fault != nil {
			t.Fatalf("%s: %s is accepted as %s, but for its schema it is wrong: %v", op, body, read, fault)
		}
		return accepted
	}
	if fault != nil {
		return refusedAs
	}
	for name, rules := range invalid.Fields {
		for _, rule := range rules {
			if !slices.ContainsFunc(unsaid, func(u string) bool { return strings.HasSuffix(rule, u) }) {
				t.Fatalf("%s: refused since %s %s, but its schema takes it: %s", op, name, rule, body)
			}
		}
	}
	return refusedYet
}

// longExponent finds a number that the validator works out in full, and dies of.
var longExponent = regexp.MustCompile(`[eE][+-]?[0-9]{5}`)

// plainNumbers gives numbers the one form that a decoder accepts, unless that is long.
func plainNumbers(value any) any {
	switch v := value.(type) {
	case json.Number:
		if _, exponent, _ := strings.Cut(strings.ToLower(v.String()), "e"); len(exponent) > 4 {
			return v
		}
		number, _ := new(big.Rat).SetString(v.String())
		digits, _ := number.FloatPrec()
		return json.Number(number.FloatString(digits))
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = plainNumbers(v[name])
		}
	}
	return value
}

func TestSchemasAcceptAndRefuseWhatDecodersDo(t *testing.T) {
	all, met := compiled(t), map[string]bool{}
	share := inshort.Choose(t, 1, 10) // under the race detector each body takes ten times as long
	for _, op := range operations {
		verdicts, random := map[verdict]int{}, newMutator(op)
		try := func(body []byte) bool {
			verdicts[judge(t, op, all[op.Requested()], body)]++
			for _, rule := range rulesBroken(decode[op](body)) {
				met[rule] = true
			}
			return true
		}
		n := 0
		random.each(func(body []byte) bool {
			n++
			return n%share != 0 || try(body)
		})
		for range *bodies / share {
			try(random.body())
		}
		t.Logf("%s: %v", op, verdicts)
		if least := *bodies / share / 20; verdicts[accepted] < least || verdicts[refusedAs] < least {
			t.Errorf("%s: hardly anything was accepted, or refused: %v", op, verdicts)
		}
	}
	for _, rule := range everyRule {
		if !met[rule] && share == 1 {
			t.Errorf("no random body is refused since it %s", rule)
		}
	}
}

func rulesBroken(err error) (rules []string) {
	if invalid, is := errors.AsType[*messages.Invalid](err); is {
		for _, of := range invalid.Fields {
			rules = append(rules, of...)
		}
	}
	return rules
}

// everyRule has one rule of each kind that the random bodies must break.
var everyRule = []string{
	"is required", "is not a known field", "must be a string", "must have at most 1000 characters", "must have at most 255 characters",
	"must have at most 4096 characters", "must have at most 65536 characters", "must not hold a NUL", "must not be blank",
	"must not begin or end with a space",
	"must not hold control characters or line breaks", "must be 1 to 64 letters, digits, _ or -", "must hold digits only",
	"must have at most 100 digits",
	"must be between 5.00 and 30000.00", "must hold at least one address", "must be a string or an array of strings",
	"must not be given beside to",
	"is required, or to_object instead", "X-A must have at most 8000 characters", "must have at most 100 members",
	"must be 0, 1, true or false",
	"digest must be SHA-256= and the base64url of 32 octets, not their hexadecimal form",
	"bucket must be letters, digits, _ or -", "must be a JSON object",
}

func FuzzSchemasAcceptAndRefuseWhatDecodersDo(f *testing.F) {
	for _, op := range operations {
		for range 50 {
			f.Add(newMutator(op).body())
		}
	}
	f.Add([]byte(`{"amount":1e999999999}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		all := compiled(t)
		for _, op := range operations {
			judge(t, op, all[op.Requested()], body)
		}
	})
}

var operations = []messages.Operation{messages.Enroll, messages.Transactions, messages.Send, messages.Account}
