package wire

import (
	"net/url"
	"strings"
)

// Streams are the names of errand's streams; none has a dash.
var Streams = []string{
	"MANDATE_REQUESTS", "MANDATE_EVENTS", "MANDATE_CALLBACKS", "MAIL_REQUESTS", "MAIL_EVENTS", "MAIL_DELIVERIES", "DEAD_LETTERS",
	"RATE_LEASES", "AUDIT", "MANDATE_SCHEDULED", "MAIL_SCHEDULED", "SUPPRESSIONS", "KEYS",
}

// MatchSubject reports whether a subject matches a NATS pattern: * is any one token, > all that follow.
func MatchSubject(pattern, subject string) bool {
	want, have := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range want {
		switch {
		case token == ">":
			return len(have) > i
		case i >= len(have) || token != "*" && token != have[i]:
			return false
		}
	}
	return len(want) == len(have)
}

// PatternsOverlap reports whether one subject can match both patterns.
func PatternsOverlap(one, other string) bool {
	a, b := strings.Split(one, "."), strings.Split(other, ".")
	for i := 0; i < len(a) && i < len(b); i++ {
		switch {
		case a[i] == ">" || b[i] == ">":
			return true
		case a[i] != b[i] && a[i] != "*" && b[i] != "*":
			return false
		}
	}
	return len(a) == len(b)
}

// IsID says whether s can be the id in an event's subject: [A-Za-z0-9_-]{1,64}, ids that the
// programs give among them.
func IsID(s string) bool { return s != "" && len(s) <= 64 && IsWord(s) }

// IsWord says whether s has only letters and digits of ASCII, _ and -.
func IsWord(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !IsAlnum(c) && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// IsAlnum reports whether c is a letter or digit of ASCII.
func IsAlnum(c byte) bool {
	return IsDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// IsDigit reports whether c is a digit of ASCII.
func IsDigit(c byte) bool { return '0' <= c && c <= '9' }

// Fold is a text without case: in Greek, two small letters have the same capital. Each character stays one.
func Fold(text string) string {
	if IsPlain(text) {
		return strings.ToLower(text)
	}
	return strings.ToLower(strings.ToUpper(text))
}

// OrderKey is the same for every spelling of an order number: a service that stores one may change case and spaces.
func OrderKey(order string) string { return Fold(strings.Join(strings.Fields(order), "")) }

// SameOrder reports whether two order numbers are the same. An empty one is the same as no other.
func SameOrder(a, b string) bool {
	key := OrderKey(a)
	return key != "" && key == OrderKey(b)
}

// IsLane says whether s can be the name of a lane: [a-z0-9-]{1,32}.
func IsLane(s string) bool {
	return len(s) > 0 && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// SubjectToken is a name as one token of a subject: ann@example.com is ann@example%2Ecom. NameOf returns the name.
func SubjectToken(name string) string { return strings.ReplaceAll(url.PathEscape(name), ".", "%2E") }

// NameOf is the name that a token of a subject stands for.
func NameOf(token string) string {
	if name, err := url.PathUnescape(token); err == nil {
		return name
	}
	return token
}
