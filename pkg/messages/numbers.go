package messages

import (
	"encoding/json"
	"strings"
)

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
		!v.must(len(s) <= MaxDigits, "must have at most 100 digits") {
		return nil
	}
	if v.kind == aString {
		return append(append(append(make([]byte, 0, len(s)+2), '"'), s...), '"')
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
		if !isDigit(s[i]) {
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
