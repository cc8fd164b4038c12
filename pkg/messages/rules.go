package messages

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"errand/internal/wire"
	"errand/internal/wire/mailbox"
)

// value is one value of a request and the name its faults are reported under.
// Its methods read it by a rule; what breaks the rule is noted as a fault and
// comes out as the zero value.
type value struct {
	form *form
	name string
	raw  []byte
	at   span
	kind kind
}

func (v value) fault(rule string) { v.form.fault(v.name, rule) }

// must notes the rule as broken unless it holds.
func (v value) must(hold bool, rule string) bool {
	if !hold {
		v.fault(rule)
	}
	return hold
}

// keep is s if the rule holds.
func (v value) keep(s string, holds bool, rule string) string {
	if !v.must(holds, rule) {
		return ""
	}
	return s
}

// unquoted is the text of a value that is a string.
func (v value) unquoted() string {
	if wire.HasEscape(v.raw) {
		return string(wire.AppendText(nil, v.raw))
	}
	return v.form.slice(span{v.at.from + 1, v.at.to - 1})
}

// string is the text of a string; "" means a fault, since an empty string counts as left out.
func (v value) string() string {
	if !v.must(v.kind == aString, "must be a string") {
		return ""
	}
	return v.unquoted()
}

// text is a string of any length; only NUL is refused.
func (v value) text() string {
	s := v.string()
	return v.keep(s, strings.IndexByte(s, 0) < 0, "must not hold a NUL")
}

// limited is a text of at most limit characters, a number that rule names.
func (v value) limited(limit int, rule string) string {
	s := v.text()
	return v.keep(s, len(s) <= limit || utf8.RuneCountInString(s) <= limit, rule)
}

// line is a string of one line, neither blank nor longer than MaxLine.
func (v value) line() string { return v.lineOf(wire.MaxLine, "must have at most 1000 characters") }

func (v value) lineOf(limit int, rule string) string {
	s := v.string()
	if s == "" {
		return ""
	}
	short := v.must(len(s) <= limit || utf8.RuneCountInString(s) <= limit, rule)
	clean := v.must(wire.IsPlain(s) || !strings.ContainsFunc(s, wire.IsControl), "must not hold control characters or line breaks")
	filled := v.must(s[0] > ' ' && s[0] < utf8.RuneSelf || strings.TrimSpace(s) != "", "must not be blank")
	if !short || !clean || !filled {
		return ""
	}
	return s
}

// requestID is the id of the request, noted in Meta too when it fits.
func (v value) requestID() string {
	s := v.string()
	if s == "" || !v.must(wire.IsID(s), "must be 1 to 64 letters, digits, _ or -") ||
		!v.must(ValidID(s), "is reserved: unmatched, or a stream and a number such as MAIL_REQUESTS-12") ||
		v.form.faults[v.name] != nil {
		return "" // given twice, it names nothing
	}
	v.form.meta.RequestID = s
	return s
}

// choice is one of the words given; rule names them.
func (v value) choice(rule string, words ...string) string {
	s := v.string()
	return v.keep(s, s == "" || slices.Contains(words, s), rule)
}

// time is a time in RFC 3339, in UTC, noted in Meta too.
func (v value) time(note *time.Time) time.Time {
	s := v.string()
	t, err := time.Parse(time.RFC3339, s)
	if s == "" || !v.must(err == nil && isRFC3339(s) && hasYear(t.UTC()),
		"must be a time with Z or an offset from UTC, such as 2026-01-02T15:04:05Z") {
		return time.Time{}
	}
	*note = t.UTC()
	return *note
}

// isRFC3339 refuses what time.Parse takes for RFC 3339 and is not: an hour of one digit, a
// comma before the fraction, an offset beyond 23:59.
func isRFC3339(s string) bool {
	offset, inUTC := s[len(s)-len("00:00"):], strings.HasSuffix(s, "Z")
	return s[len("2006-01-02T15")] == ':' && !strings.Contains(s, ",") && (inUTC || offset[:2] < "24" && offset[3:] < "60")
}

// calendar is a date or a time of day in exactly the layout.
func (v value) calendar(layout, rule string) string {
	s := v.string()
	// Parse alone takes fractions of a second that no layout asked for.
	_, err := time.Parse(layout, s)
	return v.keep(s, s == "" || err == nil && len(s) == len(layout), rule)
}

func (v value) date() string {
	return v.calendar(time.DateOnly, "must be a date such as 2026-01-02")
}

// url is an absolute http or https URL.
func (v value) url() string { return v.absolute(false, "must be an absolute http or https URL") }

// unsubscribe is a URL a mail reader can follow to unsubscribe, RFC 2369.
func (v value) unsubscribe() string {
	return v.absolute(true, "must be an absolute http, https or mailto URL")
}

func (v value) absolute(mailto bool, rule string) string {
	s := v.lineOf(wire.MaxURL, "must have at most 4096 characters")
	if s == "" {
		return ""
	}
	u, err := url.Parse(s)
	if err != nil || strings.Contains(s, " ") {
		return v.keep("", false, rule)
	}
	isWeb := (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != ""
	return v.keep(s, isWeb || mailto && u.Scheme == "mailto" && u.Opaque != "", rule)
}

// email is an email address and nothing else.
func (v value) email() string { return v.address(true, "must be an email address alone") }

// mailbox is an email address that may have a display name.
func (v value) mailbox() string {
	return v.address(false, "must be an email address, a display name allowed")
}

func (v value) address(alone bool, rule string) string {
	s := v.line()
	if s == "" {
		return ""
	}
	address, err := ParseRecipient(s)
	if errors.Is(err, mailbox.ErrInvisible) { // the one reason to refuse an address that looks good
		rule = err.Error()
	}
	return v.keep(s, err == nil && (!alone || address == s), rule)
}

// number is a JSON number as it was written, or the text of a string.
func (v value) number() (s string, ok bool) {
	switch v.kind {
	case aNumber:
		return v.form.slice(v.at), true
	case aString:
		return v.unquoted(), true
	}
	v.fault("must be a number or a string of digits")
	return "", false
}

// digits is a number or a string of digits, as it was written: those in a
// string keep their leading zeros.
func (v value) digits() json.RawMessage {
	s, ok := v.number()
	if !ok || !v.must(allDigits(s), "must hold digits only") ||
		!v.must(len(s) <= wire.MaxDigits, "must have at most 100 digits") {
		return nil
	}
	if v.kind == aString {
		return Digits(s)
	}
	return json.RawMessage(s)
}

// whole is a whole number from least up, at most nine digits, in its one form.
func (v value) whole(least byte, rule string) json.Number {
	s, ok := v.number()
	if !ok || !v.must(allDigits(s) && len(s) <= 9 && (s[0] >= '1' || len(s) == 1) && s[0] >= least, rule) {
		return ""
	}
	return json.Number(s)
}

// Digits is a string of digits for an EnrollRequest: leading zeros are kept.
func Digits(s string) json.RawMessage {
	text, _ := json.Marshal(s) // a string always encodes
	return text
}

func allDigits(s string) bool {
	for i := range len(s) {
		if !wire.IsDigit(s[i]) {
			return false
		}
	}
	return s != ""
}

// amount is a sum of money within the limits of an enrollment, in its shortest
// decimal form. It is looked at digit by digit: no float has seen it.
func (v value) amount() json.Number {
	s, ok := v.number()
	if !ok {
		return ""
	}
	whole, cents, point := strings.Cut(s, ".")
	form := allDigits(whole) && (whole[0] != '0' || len(whole) == 1) && (!point || allDigits(cents))
	if !v.must(form, "must be a plain decimal number such as 100 or 100.50") ||
		!v.must(len(cents) <= 2, "must have at most two decimals") {
		return ""
	}
	cents = strings.TrimRight(cents, "0")
	tooSmall := len(whole) == 1 && whole < "5"
	tooLarge := len(whole) > 5 || len(whole) == 5 && (whole > "30000" || whole == "30000" && cents != "")
	if !v.must(!tooSmall && !tooLarge, "must be between 5.00 and 30000.00") {
		return ""
	}
	if cents == "" {
		return json.Number(whole)
	}
	return json.Number(s[:len(whole)+1+len(cents)])
}
