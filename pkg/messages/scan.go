package messages

import (
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
