package wire

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// maxText is the longest text of others that an event or a header carries, in
// characters.
const maxText = 500

// Cut makes s fit for an event or a header: at most 500 characters, valid
// UTF-8, control characters made spaces.
func Cut(s string) string { return CutTo(s, maxText) }

// CutTo is Cut with another limit, in characters.
func CutTo(s string, limit int) string {
	if len(s) <= limit && IsPlain(s) {
		return s
	}
	var b strings.Builder
	n := 0
	for _, r := range s { // a broken byte comes out as U+FFFD
		if n == limit {
			break
		}
		if IsControl(r) {
			r = ' '
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// IsPlain says whether s is printable ASCII.
func IsPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= utf8.RuneSelf-1 {
			return false
		}
	}
	return true
}

// IsControl covers the C0 and C1 controls and Unicode's two line separators.
func IsControl(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
}

// encoder encodes again and again, which takes half the allocations of a new one each time.
type encoder struct {
	text bytes.Buffer
	json *json.Encoder
}

var encoders = sync.Pool{New: func() any {
	e := new(encoder)
	e.json = json.NewEncoder(&e.text)
	e.json.SetEscapeHTML(false)
	return e
}}

// Marshal is json.Marshal without the escapes meant for HTML: content is often HTML, and would grow by half.
func Marshal(v any) ([]byte, error) {
	e := encoders.Get().(*encoder)
	e.text.Reset()
	if err := e.json.Encode(v); err != nil {
		return nil, err
	}
	text := bytes.Clone(bytes.TrimSuffix(e.text.Bytes(), []byte("\n")))
	if e.text.Cap() <= 64<<10 {
		encoders.Put(e)
	}
	return text, nil
}

// AppendString appends a JSON string as Marshal writes it.
func AppendString(j []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := Marshal(text) // a string always encodes
			return append(j, quoted...)
		}
	}
	return append(append(append(j, '"'), text...), '"')
}
