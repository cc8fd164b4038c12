package messages

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

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
