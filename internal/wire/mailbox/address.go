// Package mailbox reads and compares addresses.
package mailbox

import (
	"bytes"
	"errors"
	"net/mail"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"errand/internal/wire"
)

// Why an address is refused: a closed set, without the address.
var (
	errEmpty     = errors.New("is empty")
	errUTF8      = errors.New("is not UTF-8")
	errControl   = errors.New("holds a control character")
	ErrInvisible = errors.New("holds an invisible character")
	errLength    = errors.New("is too long")
	errForm      = errors.New("is not an email address")
)

// The most octets of an address, RFC 5321 section 4.5.3.1, and of one with the
// display name and the comments around it.
const (
	maxLocal   = 64
	maxAddress = 254
	Longest    = 2000
)

// Parse returns the bare address of one recipient; a display name or a
// comment around it is dropped. Addresses outside ASCII are taken, RFC 6531,
// but no character that nobody sees: an address with one looks like another.
// In a display name characters of Unicode's category Cf are refused as well, such
// as U+200B and what turns the direction of writing; other spaces and
// variation selectors are not, since names and emoji have them.
// The error is the reason in a few words, without the address.
func Parse(text string) (address string, err error) {
	if isPlainAddress(text) {
		return text, nil
	}
	text = strings.Trim(text, " ")
	switch {
	case text == "":
		return "", errEmpty
	case !utf8.ValidString(text):
		return "", errUTF8
	case strings.ContainsFunc(text, wire.IsControl):
		return "", errControl
	case strings.ContainsFunc(text, isFormat):
		return "", ErrInvisible
	case len(text) > Longest:
		return "", errLength
	}
	parsed, err := mail.ParseAddress(text)
	if err != nil {
		return "", errForm
	}
	// net/mail takes the quotes off the local part; String puts back those needed.
	parsed.Name = ""
	address = strings.TrimSuffix(strings.TrimPrefix(parsed.String(), "<"), ">")
	at := strings.LastIndexByte(address, '@')
	switch {
	case strings.ContainsFunc(address, isInvisible):
		return "", ErrInvisible
	case at < 1 || at == len(address)-1:
		return "", errForm
	case at > maxLocal || len(address) > maxAddress:
		return "", errLength
	}
	return address, nil
}

// isFormat covers Unicode's format characters, category Cf.
func isFormat(r rune) bool { return unicode.Is(unicode.Cf, r) }

// isInvisible covers what shows as nothing or as space: format characters, all
// else that Unicode has ignored where it is not supported, and its spaces but
// for ASCII's, which a quoted local part may have.
func isInvisible(r rune) bool {
	return r >= utf8.RuneSelf && (unicode.IsSpace(r) ||
		unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector))
}

// isPlainAddress says whether s is one of those addresses that nearly all are:
// a dot-atom, an @ and a host name, in ASCII. Those it refuses are for net/mail
// to judge.
func isPlainAddress(s string) bool {
	at := strings.IndexByte(s, '@')
	if at < 1 || at > maxLocal || len(s) > maxAddress {
		return false
	}
	for i := range at {
		if !isAtom[s[i]] && (s[i] != '.' || i == 0 || s[i-1] == '.' || i == at-1) {
			return false
		}
	}
	for i := at + 1; i < len(s); i++ {
		c := s[i]
		if isHost[c] {
			continue
		}
		if last := s[i-1]; c != '.' && c != '-' || !isHost[last] && (c != '-' || last != '-') || i == len(s)-1 {
			return false
		}
	}
	return at < len(s)-1
}

// isHost are the letters and digits of a host name.
var isHost = func() (is [256]bool) {
	for c := range is {
		is[c] = wire.IsAlnum(byte(c))
	}
	return is
}()

// isAtom are the characters of an atom, RFC 5322 section 3.2.3.
var isAtom = func() (is [256]bool) {
	for c := range is {
		is[c] = c < utf8.RuneSelf && (wire.IsAlnum(byte(c)) || strings.IndexByte("!#$%&'*+-/=?^_`{|}~", byte(c)) >= 0)
	}
	return is
}()

// Append appends an address in the form in which recipients are compared: two addresses have the same exactly when
// they are taken for one recipient. The local part is compared as it is, the domain without case, in its ASCII form (see
// appendDomain) and without the dot that may end it.
func Append(text []byte, address string) []byte {
	before := len(text)
	text = append(text, address...)
	var isASCII byte // below utf8.RuneSelf if it is
	for at := len(address) - 1; at >= 0; at-- {
		c := address[at]
		if c == '@' {
			if isASCII >= utf8.RuneSelf {
				text = appendDomain(text[:before+at+1], address[at+1:])
			}
			return bytes.TrimSuffix(text, []byte("."))
		}
		isASCII |= c
		if 'A' <= c && c <= 'Z' {
			text[before+at] = c + 'a' - 'A'
		}
	}
	return append(text[:before], address...)
}

// maxLabel is how many octets a part of a domain has at most, RFC 1035 section 2.3.4.
const maxLabel = 63

// appendDomain appends a domain in lower case and in ASCII, RFC 5891: BÜCHER.example
// becomes xn--bcher-kva.example. The full stops of other scripts separate labels
// too, RFC 3490. Letters are not normalised, as the standard library cannot do
// that: ü written as u and a combining diaeresis makes another domain, and so
// does a full-width letter.
func appendDomain(dst []byte, domain string) []byte {
	label := make([]rune, 0, maxLabel)
	for _, r := range domain {
		switch r {
		case '.', '\u3002', '\uff0e', '\uff61':
			dst = append(appendLabel(dst, label), '.')
			label = label[:0]
		default:
			label = append(label, unicode.ToLower(r))
		}
	}
	return appendLabel(dst, label)
}

// appendLabel appends one label of a domain in ASCII. One that is too long for
// the domain name system has no such form and stays as it is.
func appendLabel(dst []byte, label []rune) []byte {
	if len(label) <= maxLabel && slices.ContainsFunc(label, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return appendPunycode(append(dst, "xn--"...), label)
	}
	return append(dst, string(label)...)
}

// The parameters of Punycode, RFC 3492 section 5.
const (
	punyBase        = 36
	punyTMin        = 1
	punyTMax        = 26
	punySkew        = 38
	punyDamp        = 700
	punyInitialBias = 72
	punyInitialN    = utf8.RuneSelf
)

// appendPunycode appends a label as RFC 3492 section 6.3 encodes it. A label is
// short, so that no number overflows.
func appendPunycode(dst []byte, label []rune) []byte {
	done := 0 // characters that are encoded
	for _, r := range label {
		if r < utf8.RuneSelf {
			dst = append(dst, byte(r))
			done++
		}
	}
	basic := done
	if basic > 0 {
		dst = append(dst, '-')
	}
	n, delta, bias := rune(punyInitialN), 0, punyInitialBias
	for done < len(label) {
		next := rune(unicode.MaxRune)
		for _, r := range label {
			if r >= n {
				next = min(next, r)
			}
		}
		delta += int(next-n) * (done + 1)
		n = next
		for _, r := range label {
			if r < n {
				delta++
			}
			if r == n {
				dst = appendPunyDelta(dst, delta, bias)
				bias = punyBias(delta, done+1, done == basic)
				delta = 0
				done++
			}
		}
		delta++
		n++
	}
	return dst
}

// appendPunyDelta appends delta as an integer of variable length.
func appendPunyDelta(dst []byte, delta, bias int) []byte {
	const digits = "abcdefghijklmnopqrstuvwxyz0123456789"
	for k := punyBase; ; k += punyBase {
		t := min(max(k-bias, punyTMin), punyTMax)
		if delta < t {
			return append(dst, digits[delta])
		}
		dst = append(dst, digits[t+(delta-t)%(punyBase-t)])
		delta = (delta - t) / (punyBase - t)
	}
}

// punyBias adapts the bias, RFC 3492 section 6.1.
func punyBias(delta, points int, first bool) int {
	if first {
		delta /= punyDamp
	} else {
		delta /= 2
	}
	delta += delta / points
	k := 0
	for ; delta > (punyBase-punyTMin)*punyTMax/2; k += punyBase {
		delta /= punyBase - punyTMin
	}
	return k + (punyBase-punyTMin+1)*delta/(delta+punySkew)
}
