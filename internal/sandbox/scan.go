package sandbox

import (
	"encoding/json"
	"iter"
	"strings"
)

// Bodies are scanned here rather than decoded into structs: the checksum covers the text that was sent, a wrong type is
// reported by field, and in a benchmark the sandbox must be cheaper than what it measures.

// members yields the members of a JSON object: key, and value as it is written. text must be valid JSON and an object.
func members(text string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		at := space(text, space(text, 0)+1)
		for text[at] != '}' {
			end := skip(text, at)
			key := unquote(text[at:end])
			at = space(text, space(text, end)+1)
			end = skip(text, at)
			if !yield(key, text[at:end]) {
				return
			}
			if at = space(text, end); text[at] == ',' {
				at = space(text, at+1)
			}
		}
	}
}

// elements yields the elements of a JSON array, as they are written. text must be valid JSON, without space around it.
func elements(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		at := space(text, 1)
		for text[at] != ']' {
			end := skip(text, at)
			if !yield(text[at:end]) {
				return
			}
			if at = space(text, end); text[at] == ',' {
				at = space(text, at+1)
			}
		}
	}
}

// skip returns the end of the value that begins at from.
func skip(text string, from int) int {
	switch text[from] {
	case '"':
		at := from + 1
		for {
			at += strings.IndexByte(text[at:], '"')
			slashes := 0
			for text[at-1-slashes] == '\\' {
				slashes++
			}
			at++
			if slashes%2 == 0 {
				return at
			}
		}
	case '{', '[':
		depth := 0
		for at := from; ; {
			switch text[at] {
			case '"':
				at = skip(text, at)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			at++
			if depth == 0 {
				return at
			}
		}
	}
	end := strings.IndexAny(text[from:], ",]} \t\r\n")
	if end < 0 {
		return len(text)
	}
	return from + end
}

// space returns the first index from at on that is not white space.
func space(text string, at int) int {
	for at < len(text) && strings.IndexByte(" \n\t\r", text[at]) >= 0 {
		at++
	}
	return at
}

// unquote returns the text of a JSON string.
func unquote(raw string) string {
	if strings.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	var text string
	if json.Unmarshal([]byte(raw), &text) != nil {
		return ""
	}
	return text
}

// appendText appends text as a JSON string.
func appendText(dst []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(text) // a string always marshals
			return append(dst, quoted...)
		}
	}
	return append(append(append(dst, '"'), text...), '"')
}

// appendFields appends `"name":"text"` pairs, each followed by a comma.
func appendFields(dst []byte, pairs ...string) []byte {
	for i := 0; i < len(pairs); i += 2 {
		dst = append(append(append(dst, '"'), pairs[i]...), `":`...)
		dst = append(appendText(dst, pairs[i+1]), ',')
	}
	return dst
}
