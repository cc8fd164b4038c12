// Package scan reads valid JSON once, byte by byte, where encoding/json would go over it several times.
package scan

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Object passes each member of an object, in valid JSON, to set, which reports whether it knows the key. It returns false if raw is
// not an object, or if encoding/json, which ignores the case of keys, may see more in it: then read it again with that.
func Object(raw []byte, set func(key, value []byte) bool) bool {
	if raw[0] != '{' {
		return false
	}
	for i := skipBetween(raw, 1); raw[i] != '}'; i = skipBetween(raw, i) {
		end := skipValue(raw, i)
		key := raw[i+1 : end-1]
		from := skipBetween(raw, end)
		i = skipValue(raw, from)
		if !set(key, raw[from:i]) && bytes.ContainsFunc(key, ambiguous) {
			return false
		}
	}
	return true
}

// Elements returns the elements of a list in valid JSON.
func Elements(list []byte, room int) []json.RawMessage {
	all := make([]json.RawMessage, 0, room)
	for i := skipBetween(list, 1); list[i] != ']'; {
		end := skipValue(list, i)
		all = append(all, list[i:end:end])
		i = skipBetween(list, end)
	}
	return all
}

// ambiguous are the characters that let a key be a field's name in another spelling.
func ambiguous(r rune) bool { return 'A' <= r && r <= 'Z' || r == '\\' || r >= utf8.RuneSelf }

// Text reads a string, or what else there is, as encoding/json does.
func Text(field *string, value []byte) {
	if value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 || !utf8.Valid(value) {
		_ = json.Unmarshal(value, field) // anything but a string leaves the field alone
		return
	}
	*field = string(value[1 : len(value)-1])
}

// skipBetween is the place of the next key or value from i on, or of the closing bracket.
func skipBetween(raw []byte, i int) int {
	for raw[i] <= ' ' || raw[i] == ',' || raw[i] == ':' {
		i++
	}
	return i
}

// skipValue is the place behind the value at i.
func skipValue(raw []byte, i int) int {
	for depth := 0; ; i++ {
		switch c := raw[i]; c {
		case '"':
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		}
		// A number or a word goes on; what ends it is still to come, at the latest the bracket around it.
		if next := raw[i+1]; depth == 0 && (next <= ' ' || next == ',' || next == ':' || next == '}' || next == ']') {
			return i + 1
		}
	}
}
