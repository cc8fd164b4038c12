package schema

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"errand/internal/wire"
	"errand/pkg/messages"
)

type request struct {
	operation messages.Operation
	of        reflect.Type
	onUnknown string // the rule of on_unknown
	defaults  map[string]any
}

var requests = []request{
	{messages.Enroll, reflect.TypeFor[messages.EnrollRequest](), "reportOrRetry",
		map[string]any{"on_unknown": messages.OnUnknownReport, "max_frequency": 9}},
	{messages.Transactions, reflect.TypeFor[messages.TransactionsRequest](), "", nil},
	{messages.Send, reflect.TypeFor[messages.SendRequest](), "reportOrResend",
		map[string]any{"on_unknown": messages.OnUnknownReport, "as_html": 0, "suppress": true}},
	{messages.Account, reflect.TypeFor[messages.AccountRequest](), "", nil},
}

// fieldsWith lists by rule the fields of all requests but on_unknown. Decoders of pkg/messages check by code, from which
// no schema follows; TestSchemasAcceptAndRefuseWhatDecodersDo holds these rules to them.
var fieldsWith = map[string]string{
	"line": "portal_key payer_name payer_bank_code payer_bank_code_hashed frequency_mode application_reason platform_id checksum " +
		"exchange_reference_number subject",
	"url":       "return_url success_url failed_url maintenance_url termination_url",
	"email":     "payer_email",
	"mailbox":   "from reply_to",
	"digits":    "payer_id payer_telephone_number",
	"positive":  "max_frequency max_pages",
	"date":      "effective_date expiry_date",
	"requestID": "request_id", "time": "not_before give_up_at", "orderNumber": "order_number", "amount": "amount", "whole": "payer_id_type",
	"metadata": "metadata", "dateTime": "link_expired_at", "status": "status", "unsubscribe": "unsubscribe_link", "text": "content",
	"flag": "as_html suppress", "headers": "headers", "recipients": "to", "listObject": "to_object",
}

func (r request) rule(field string) string {
	if field == "on_unknown" {
		return r.onUnknown
	}
	for rule, fields := range fieldsWith {
		if slices.Contains(strings.Fields(fields), field) {
			return rule
		}
	}
	return ""
}

// oneList asks for to or to_object, and not for both. It is written with if, which generators of types ignore.
var oneList = object{
	{"if", object{{"required", []string{"to"}}, {"properties", object{{"to", object{{"not", empty}}}}}}},
	{"then", object{{"properties", object{{"to_object", empty}}}}},
	{"else", object{{"required", []string{"to_object"}}, {"properties", object{{"to_object", object{{"not", empty}}}}}}},
}

// schema is closed: a member that is not listed is refused.
func (r request) schema(w descriptions) (object, error) {
	defs, subject := definitions{}, r.operation.Requested()
	var properties object
	var required []string
	for _, field := range fieldsOf(r.of) {
		about, err := w.of(subject, field.name)
		if err != nil {
			return nil, err
		}
		rule := r.rule(field.name)
		if rule == "" {
			return nil, fmt.Errorf("%s: %s has no rule", subject, field.name)
		}
		property := object{{"description", about}}
		if value, found := r.defaults[field.name]; found {
			property = append(property, member{"default", value})
		}
		if field.optional || rule == "recipients" {
			property = append(property, member{"anyOf", []any{defs.ref(rule), defs.ref("leftOut")}})
		} else {
			required = append(required, field.name)
			property = append(property, defs.ref(rule)...)
		}
		properties = append(properties, member{field.name, property})
	}
	body := object{{"type", "object"}, {"properties", properties}, {"additionalProperties", false}}
	if required != nil {
		body = append(body, member{"required", required})
	}
	if r.operation == messages.Send {
		body = append(body, oneList...)
	}
	if sample := w.sample[subject]; sample != "" {
		body = append(body, member{"examples", []any{json.RawMessage(sample)}})
	}
	return append(body, member{"$defs", defs.sorted()}), nil
}

// field is a member of a struct as JSON has it.
type field struct {
	name     string
	optional bool
	of       reflect.Type
}

// fieldsOf are the members of a struct and of those that are embedded in it.
func fieldsOf(of reflect.Type) (all []field) {
	for f := range of.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous:
			all = append(all, fieldsOf(f.Type)...)
		default:
			all = append(all, field{name, strings.Contains(options, "omit"), f.Type})
		}
	}
	return all
}

// The rules of requests, as far as every validator understands them alike. The rest is in docs/use/reference.md.
//
//   - Patterns mean the same in ECMA-262 and RE2, and are anchored. An invisible character stands
//     for itself.
//   - No keyword divides a number: in floating point, 19.99 is not a multiple of 0.01.
//   - There is no format: validators differ in what they accept.

// Within brackets: a line has no control, and is not made of space alone.
const control = "\x00-\x1f\x7f-\u009f\u2028\u2029"

var space = func() string {
	var b strings.Builder
	for _, r := range unicode.White_Space.R16 {
		for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
			b.WriteRune(c)
		}
	}
	return b.String()
}()

const (
	day    = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
	clock  = "[0-5][0-9]:[0-5][0-9]"
	host   = "[^" + control + " /?#]"
	webURL = "[Hh][Tt][Tt][Pp][Ss]?://" + host + "[^" + control + " ]*"
	within = "[^" + control + "]"
)

// text is a string that matches a pattern, of at most limit characters; 0 for any number.
func text(limit int, pattern string) object {
	o := object{{"type", "string"}}
	if limit > 0 {
		o = append(o, member{"maxLength", limit})
	}
	return append(o, member{"pattern", "^" + pattern + "$"})
}

// number is a whole number within limits, or a string of its digits.
func number(least, most any, pattern string) object {
	return object{{"anyOf", []any{
		object{{"type", "integer"}, {"minimum", least}, {"maximum", most}},
		object{{"type", "string"}, {"pattern", "^" + pattern + "$"}},
	}}}
}

// most is the largest number of n digits.
func most(n int) json.Number { return json.Number(strings.Repeat("9", n)) }

// empty is what counts as left out. The object is not closed: a closed one without members becomes any in TypeScript.
var empty = object{{"$ref", "#/$defs/leftOut"}}

var rules = map[string]object{
	"leftOut": {{"description", "Counts as left out."}, {"anyOf", []any{
		object{{"type", "null"}}, object{{"const", ""}},
		object{{"type", "object"}, {"maxProperties", 0}}, object{{"type", "array"}, {"maxItems", 0}},
	}}},
	"requestID": append(text(64, "[A-Za-z0-9_-]+"),
		member{"not", object{{"pattern", "^(" + messages.Unmatched + "|(" + strings.Join(wire.Streams, "|") + ")-[0-9]+)$"}}}),

	"line":        text(wire.MaxLine, within+"*[^"+control+space+"]"+within+"*"),
	"orderNumber": text(wire.MaxOrderNumber, "[^"+control+space+"]("+within+"*[^"+control+space+"])?"),
	"text":        text(0, "[^\x00]+"),
	"metadata":    text(wire.MaxMetadata, "[^\x00]+"),
	"email":       text(254, within+"+@"+within+"+"),
	"mailbox":     text(wire.MaxLine, within+"+@"+within+"+"),
	"url":         text(wire.MaxURL, webURL),
	"unsubscribe": text(wire.MaxURL, "("+webURL+"|[Mm][Aa][Ii][Ll][Tt][Oo]:[^"+control+" ]+)"),
	"date":        text(0, day),
	"dateTime":    text(0, day+" ([01][0-9]|2[0-3]):"+clock),
	"time":        text(0, day+"T([01][0-9]|2[0-3]):"+clock+"(\\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"),

	"whole":    number(0, most(9), "(0|[1-9][0-9]{0,8})"),
	"positive": number(1, most(9), "[1-9][0-9]{0,8}"),
	"digits":   number(0, most(wire.MaxDigits), fmt.Sprintf("[0-9]{1,%d}", wire.MaxDigits)),
	"amount": {{"anyOf", []any{
		object{{"type", "number"}, {"minimum", 5}, {"maximum", 30000}},
		object{{"type", "string"}, {"pattern", `^(([5-9]|[1-9][0-9]{1,3}|[12][0-9]{4})(\.[0-9]{1,2})?|30000(\.0{1,2})?)$`}},
	}}},
	"status": {{"anyOf", []any{
		object{{"type", "integer"}, {"minimum", 0}, {"maximum", most(9)}},
		text(wire.MaxLine, within+"*[^"+control+space+"]"+within+"*"),
	}}},
	"flag":           {{"enum", []any{0, 1, false, true}}},
	"reportOrRetry":  {{"enum", []string{messages.OnUnknownReport, messages.OnUnknownRetry}}},
	"reportOrResend": {{"enum", []string{messages.OnUnknownReport, messages.OnUnknownResend}}},

	"recipients": {{"anyOf", []any{
		object{{"type", "string"}, {"pattern", someone}},
		object{{"type", "array"}, {"items", object{{"type", "string"}}}, {"contains", object{{"type", "string"}, {"pattern", someone}}}},
	}}},
	"listObject": {
		{"type", "object"},
		{"properties", object{
			{"bucket", text(wire.MaxLine, "[A-Za-z0-9_-]+")},
			{"name", object{{"$ref", "#/$defs/line"}}},
			{"digest", text(wire.MaxLine, "SHA-256=[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]=*")},
		}},
		{"additionalProperties", false},
		{"required", []string{"bucket", "name", "digest"}},
	},
	"headers": {
		{"type", "object"},
		{"propertyNames", append(text(wire.MaxHeaderName, "[!-9;-~]+"), member{"not", object{{"pattern", reserved()}}})},
		{"additionalProperties", object{{"anyOf", []any{
			text(wire.MaxHeaderValue, within+"*[^"+control+space+"]"+within+"*"), empty,
		}}}},
		{"maxProperties", wire.MaxHeaders},
	},
}

// someone matches a list that is not only spaces and commas.
const someone = "[^ \t\r\n,]"

// reserved are the headers that a message must not set, in any case.
func reserved() string {
	var b strings.Builder
	for _, r := range strings.Join(wire.ReservedHeaders, "|") + "|resent-.*" {
		if 'a' <= r && r <= 'z' {
			fmt.Fprintf(&b, "[%c%c]", unicode.ToUpper(r), r)
		} else {
			b.WriteRune(r)
		}
	}
	return "^(" + b.String() + ")$"
}
