package mail

import (
	"bytes"
	"encoding/json"
	"slices"
	"unicode/utf8"
)

// scan goes over the members of an object once, in JSON that is known to be valid, and gives each to set, which reports whether it
// knows the key. encoding/json checks the row again, goes over each byte some five times, and looks fields up without case: so false means
// that it may see more in the object, or that there is no object, and what was set is to be read by it.
func scan(raw []byte, set func(key, value []byte) bool) bool {
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

// cutRows takes the rows out of a page, which encoding/json would go over twice as often; the rest is as if there were none. Of what
// encoding/json may read otherwise, such as a key in another spelling, nothing is taken. The rows are parts of page.
func cutRows(page []byte) (rest []byte, rows []json.RawMessage) {
	if !json.Valid(page) {
		return page, nil
	}
	var list []byte // the last one of that name counts
	data := func(key, value []byte) bool {
		if string(key) == "data" {
			list = value
		}
		return string(key) == "data"
	}
	if !scan(bytes.TrimSpace(page), data) || list == nil || !scan(list, data) || list[0] != '[' {
		return page, nil
	}
	rows = make([]json.RawMessage, 0, len(list)/usualRow+1)
	for i := skipBetween(list, 1); list[i] != ']'; {
		end := skipValue(list, i)
		rows = append(rows, list[i:end:end])
		i = skipBetween(list, end)
	}
	from := cap(page) - cap(list)
	return slices.Concat(page[:from], []byte("[]"), page[from+len(list):]), rows
}

// ambiguous are the characters that let a key be a field's name in another spelling.
func ambiguous(r rune) bool { return 'A' <= r && r <= 'Z' || r == '\\' || r >= utf8.RuneSelf }

// setText reads a string, or what else there is, as encoding/json does.
func setText(field *string, value []byte) {
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
