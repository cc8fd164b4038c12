// Package wire is what the contract and the programs that keep it read and write alike. It reads valid JSON once, where
// encoding/json would go over it several times.
package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Object passes each member of an object, in valid JSON, to set, which reports whether it knows the key. It returns false if raw is
// not an object, or if encoding/json, which ignores the case of keys, may see more in it: then read it again with that.
func Object(raw []byte, set func(key, value []byte) bool) bool {
	if raw[0] != '{' {
		return false
	}
	for i := next(raw, 1); raw[i] != '}'; i = next(raw, i) {
		end := SkipString(raw, i)
		key := raw[i+1 : end-1]
		from := next(raw, end)
		i = SkipValue(raw, from)
		if !set(key, raw[from:i]) && bytes.ContainsFunc(key, ambiguous) {
			return false
		}
	}
	return true
}

// Elements returns the elements of a list in valid JSON.
func Elements(list []byte, room int) []json.RawMessage {
	all := make([]json.RawMessage, 0, room)
	for i := next(list, 1); list[i] != ']'; {
		end := SkipValue(list, i)
		all = append(all, list[i:end:end])
		i = next(list, end)
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

// next is the place of the next key or value from i on, or of the closing bracket.
func next(raw []byte, i int) int {
	for raw[i] <= ' ' || raw[i] == ',' || raw[i] == ':' {
		i++
	}
	return i
}

// SkipSpace is the first place from i on that holds no space.
func SkipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}

// Eight bytes at a time: the lowest bit of each, and the highest.
const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
)

// SkipOrdinary is the first place from i on whose byte does not mean itself within a JSON string: a quote, a backslash or a control
// character.
func SkipOrdinary(text []byte, i int) int {
	for ; len(text)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(text[i:])
		quote, backslash := w^lows*'"', w^lows*'\\'
		// What is borrowed from the next byte makes that one look odd only behind one that is.
		if odd := ((w-lows*' ')&^w | (quote-lows)&^quote | (backslash-lows)&^backslash) & highs; odd != 0 {
			return i + bits.TrailingZeros64(odd)/8
		}
	}
	for i < len(text) && text[i] >= ' ' && text[i] != '"' && text[i] != '\\' {
		i++
	}
	return i
}

// SkipStrings is the place behind the strings without escapes that begin at i in an array, with only a comma between one and the next;
// i if none does.
func SkipStrings(text []byte, i int) int {
	for next := i; text[next] == '"'; next = i + 1 {
		end := SkipOrdinary(text, next+1)
		if text[end] == '\\' {
			break
		}
		if i = end + 1; text[i] != ',' {
			break
		}
	}
	return i
}

// SkipString is the place behind the string that begins at i with its quote.
func SkipString(text []byte, i int) int {
	for i++; ; {
		q := i + bytes.IndexByte(text[i:], '"')
		back := q
		for text[back-1] == '\\' { // ends at the opening quote at the latest
			back--
		}
		i = q + 1
		if (q-back)%2 == 0 {
			return i
		}
	}
}

// SkipValue is the place behind the value that begins at i.
func SkipValue(text []byte, i int) int {
	switch text[i] {
	case '"':
		return SkipString(text, i)
	case '{', '[':
		depth := 0
		for {
			switch text[i] {
			case '"':
				i = SkipString(text, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
	}
	for i < len(text) && strings.IndexByte(",}] \n\t\r", text[i]) < 0 {
		i++
	}
	return i
}

// HasEscape says whether the string in raw holds a backslash. Without one its
// text is what is between the quotes.
func HasEscape(raw []byte) bool { return bytes.IndexByte(raw, '\\') >= 0 }

// AppendText appends the text of the JSON string in raw, quotes and escapes
// resolved. Half a surrogate pair becomes U+FFFD, as in encoding/json.
func AppendText(dst, raw []byte) []byte {
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
