package wire

import (
	"bytes"
	"slices"
	"strconv"
)

// AppendNumber appends the JSON number in raw as the shortest plain decimal of
// the same value: 100.50 and 1.005e2 become 100.5, and -0 becomes 0. It goes by
// the text, so no digit is lost. A number other than zero with an exponent of
// more than two digits is left as it was written: its decimal might not end
// within any memory.
func AppendNumber(dst, raw []byte) []byte {
	mantissa, exponent, small := raw, 0, true
	if e := bytes.IndexAny(raw, "eE"); e >= 0 {
		mantissa = raw[:e]
		exponent, small = smallExponent(raw[e+1:])
	}
	unsigned, negative := bytes.CutPrefix(mantissa, []byte("-"))
	whole, fraction, _ := bytes.Cut(unsigned, []byte("."))
	digits := slices.Concat(whole, fraction)
	significant := bytes.TrimLeft(digits, "0")
	point := len(whole) + exponent - (len(digits) - len(significant)) // digits before the decimal point
	significant = bytes.TrimRight(significant, "0")
	switch {
	case len(significant) == 0:
		return append(dst, '0')
	case !small:
		return append(dst, raw...)
	case negative:
		dst = append(dst, '-')
	}
	if point <= 0 {
		dst = append(dst, "0."...)
		dst = append(dst, bytes.Repeat([]byte("0"), -point)...)
		return append(dst, significant...)
	}
	if missing := point - len(significant); missing >= 0 {
		dst = append(dst, significant...)
		return append(dst, bytes.Repeat([]byte("0"), missing)...)
	}
	dst = append(dst, significant[:point]...)
	dst = append(dst, '.')
	return append(dst, significant[point:]...)
}

// smallExponent is the exponent of a JSON number, if it has at most two digits.
func smallExponent(text []byte) (exponent int, ok bool) {
	exponent, err := strconv.Atoi(string(text))
	return exponent, err == nil && -100 < exponent && exponent < 100
}
