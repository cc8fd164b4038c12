package messages

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"errand/internal/wire"
)

// The functions of this file walk over JSON that json.Valid has passed. They read nothing twice and keep nothing.

// span is a part of the text, its end exclusive. No value has a zero span.
type span struct{ from, to int }

func (s span) of(text []byte) []byte { return text[s.from:s.to] }

// cursor goes over the members of an object or the elements of an array.
type cursor struct {
	text []byte
	at   int
}

// enter returns a cursor behind the opening bracket at i.
func enter(text []byte, i int) cursor { return cursor{text, wire.SkipSpace(text, i+1)} }

// element is the next element of an array; false at the end.
func (c *cursor) element() (span, bool) {
	if c.text[c.at] == ']' {
		return span{}, false
	}
	value := span{c.at, wire.SkipValue(c.text, c.at)}
	c.pass(value.to)
	return value, true
}

// member is the next member of an object, the key with its quotes; false at the
// end.
func (c *cursor) member() (key, value span, ok bool) {
	if c.text[c.at] == '}' {
		return span{}, span{}, false
	}
	key = span{c.at, wire.SkipString(c.text, c.at)}
	colon := wire.SkipSpace(c.text, key.to)
	from := wire.SkipSpace(c.text, colon+1)
	value = span{from, wire.SkipValue(c.text, from)}
	c.pass(value.to)
	return key, value, true
}

// pass goes over a comma and the spaces around it.
func (c *cursor) pass(i int) {
	i = wire.SkipSpace(c.text, i)
	if c.text[i] == ',' {
		i = wire.SkipSpace(c.text, i+1)
	}
	c.at = i
}

// kind is what a JSON value is.
type kind byte

const (
	absent kind = iota // left out, null, "", {} or []
	aString
	aNumber
	aBool
	anObject
	anArray
)

func kindOf(raw []byte) kind {
	if len(raw) == 0 {
		return absent
	}
	switch raw[0] {
	case '"':
		if len(raw) == 2 {
			return absent
		}
		return aString
	case '{', '[':
		if last := raw[wire.SkipSpace(raw, 1)]; last == '}' || last == ']' {
			return absent
		}
		if raw[0] == '{' {
			return anObject
		}
		return anArray
	case 't', 'f':
		return aBool
	case 'n':
		return absent
	}
	return aNumber
}

// hasEscape says whether the string in raw holds a backslash. Without one its
// text is what is between the quotes.
func hasEscape(raw []byte) bool { return bytes.IndexByte(raw, '\\') >= 0 }

// appendText appends the text of the JSON string in raw, quotes and escapes
// resolved. Half a surrogate pair becomes U+FFFD, as in encoding/json.
func appendText(dst, raw []byte) []byte {
	raw = raw[1 : len(raw)-1]
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		c := raw[i+1]
		raw = raw[i+2:]
		if c != 'u' {
			if control := strings.IndexByte("bfnrt", c); control >= 0 {
				c = "\b\f\n\r\t"[control]
			}
			dst = append(dst, c) // else a quote, a slash or a backslash
			continue
		}
		r := hex4(raw)
		raw = raw[4:]
		if utf16.IsSurrogate(r) {
			var low rune
			if len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
				low = hex4(raw[2:])
			}
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				raw = raw[6:]
			}
		}
		dst = utf8.AppendRune(dst, r)
	}
}

// hex4 is the number that four hex digits give.
func hex4(raw []byte) rune {
	n, _ := strconv.ParseUint(string(raw[:4]), 16, 16) // json.Valid has passed them
	return rune(n)
}
