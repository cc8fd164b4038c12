package schema

import (
	"fmt"
	"strings"
	"unicode"

	"errand/pkg/messages"
)

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
func most(n int) jsonNumber { return jsonNumber(strings.Repeat("9", n)) }

type jsonNumber string

// MarshalJSON writes the digits.
func (n jsonNumber) MarshalJSON() ([]byte, error) { return []byte(n), nil }

// empty is what counts as left out. The object is not closed: a closed one without members becomes any in TypeScript.
var empty = object{{"$ref", "#/$defs/leftOut"}}

var rules = map[string]object{
	"leftOut": {{"description", "Counts as left out."}, {"anyOf", []any{
		object{{"type", "null"}}, object{{"const", ""}},
		object{{"type", "object"}, {"maxProperties", 0}}, object{{"type", "array"}, {"maxItems", 0}},
	}}},
	"requestID": append(text(64, "[A-Za-z0-9_-]+"),
		member{"not", object{{"pattern", "^(" + messages.Unmatched + "|(" + strings.Join(streams, "|") + ")-[0-9]+)$"}}}),

	"line":        text(messages.MaxLine, within+"*[^"+control+space+"]"+within+"*"),
	"orderNumber": text(messages.MaxOrderNumber, "[^"+control+space+"]("+within+"*[^"+control+space+"])?"),
	"text":        text(0, "[^\x00]+"),
	"metadata":    text(messages.MaxMetadata, "[^\x00]+"),
	"email":       text(254, within+"+@"+within+"+"),
	"mailbox":     text(messages.MaxLine, within+"+@"+within+"+"),
	"url":         text(messages.MaxURL, webURL),
	"unsubscribe": text(messages.MaxURL, "("+webURL+"|[Mm][Aa][Ii][Ll][Tt][Oo]:[^"+control+" ]+)"),
	"date":        text(0, day),
	"dateTime":    text(0, day+" ([01][0-9]|2[0-3]):"+clock),
	"time":        text(0, day+"T([01][0-9]|2[0-3]):"+clock+"(\\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"),

	"whole":    number(0, most(9), "(0|[1-9][0-9]{0,8})"),
	"positive": number(1, most(9), "[1-9][0-9]{0,8}"),
	"digits":   number(0, most(messages.MaxDigits), fmt.Sprintf("[0-9]{1,%d}", messages.MaxDigits)),
	"amount": {{"anyOf", []any{
		object{{"type", "number"}, {"minimum", 5}, {"maximum", 30000}},
		object{{"type", "string"}, {"pattern", `^(([5-9]|[1-9][0-9]{1,3}|[12][0-9]{4})(\.[0-9]{1,2})?|30000(\.0{1,2})?)$`}},
	}}},
	"status": {{"anyOf", []any{
		object{{"type", "integer"}, {"minimum", 0}, {"maximum", most(9)}},
		text(messages.MaxLine, within+"*[^"+control+space+"]"+within+"*"),
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
			{"bucket", text(messages.MaxLine, "[A-Za-z0-9_-]+")},
			{"name", object{{"$ref", "#/$defs/line"}}},
			{"digest", text(messages.MaxLine, "SHA-256=[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]=*")},
		}},
		{"additionalProperties", false},
		{"required", []string{"bucket", "name", "digest"}},
	},
	"headers": {
		{"type", "object"},
		{"propertyNames", append(text(messages.MaxHeaderName, "[!-9;-~]+"), member{"not", object{{"pattern", reserved()}}})},
		{"additionalProperties", object{{"anyOf", []any{
			text(messages.MaxHeaderValue, within+"*[^"+control+space+"]"+within+"*"), empty,
		}}}},
		{"maxProperties", messages.MaxHeaders},
	},
}

// someone matches a list that is not only spaces and commas.
const someone = "[^ \t\r\n,]"

// streams are the names with which, before a dash and a number, no request id may begin.
var streams = []string{
	"MANDATE_REQUESTS", "MANDATE_EVENTS", "MAIL_REQUESTS", "MAIL_EVENTS", "MAIL_DELIVERIES", "DEAD_LETTERS", "RATE_LEASES", "AUDIT",
}

// reserved are the headers that a message must not set, in any case.
func reserved() string {
	names := []string{
		"from", "to", "cc", "bcc", "subject", "reply-to", "return-path", "sender", "message-id", "received", "dkim-signature",
		"content-type", "content-transfer-encoding", "mime-version", "resent-.*",
	}
	var b strings.Builder
	for _, r := range strings.Join(names, "|") {
		if 'a' <= r && r <= 'z' {
			fmt.Fprintf(&b, "[%c%c]", unicode.ToUpper(r), r)
		} else {
			b.WriteRune(r)
		}
	}
	return "^(" + b.String() + ")$"
}
