package messages

import (
	"bytes"
	"encoding/json"
)

// isJSON is json.Valid, which takes its time for each byte. A long text is mostly inside
// strings, a list of recipients above all: what needs no look there is left out for it.
func isJSON(text []byte) bool {
	if len(text) < 1<<10 {
		return json.Valid(text)
	}
	outline := make([]byte, 0, len(text)/8)
	for {
		quote := bytes.IndexByte(text, '"')
		if quote < 0 {
			return json.Valid(append(outline, text...))
		}
		outline, text = append(outline, text[:quote+1]...), text[quote+1:]
		for inside := true; inside && len(text) > 0; {
			n := 0
			for n < len(text) && isOrdinary[text[n]] {
				n++
			}
			text = text[n:]
			kept := 1 // the closing quote, or what must not be there
			switch {
			case bytes.HasPrefix(text, []byte(`\u`)):
				kept = len(`\u0000`)
			case bytes.HasPrefix(text, []byte(`\`)):
				kept = len(`\n`)
			case len(text) > 0:
				inside = text[0] != '"'
			}
			kept = min(kept, len(text))
			outline, text = append(outline, text[:kept]...), text[kept:]
		}
	}
}

// isOrdinary are the bytes that mean themselves within a JSON string.
var isOrdinary = func() (is [256]bool) {
	for c := range is {
		is[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return is
}()
