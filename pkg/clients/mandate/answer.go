package mandate

import (
	"bytes"
	"encoding/json"
	"strings"
)

// readEnrolled wants a url. An answer with another order number belongs to another request: behind its url is another payer.
func readEnrolled(body []byte) (url, order string, ok bool) {
	if !json.Valid(body) {
		return "", "", false
	}
	if url, order, ok = scanEnrolled(body); !ok {
		var answer struct {
			OrderNumber any    `json:"order_number"` // of an unexpected type it names none
			URL         string `json:"url"`
		}
		if json.Unmarshal(body, &answer) != nil {
			return "", "", false
		}
		url = answer.URL
		order, _ = answer.OrderNumber.(string)
	}
	return url, strings.TrimSpace(order), strings.TrimSpace(url) != "" && len(url) <= longestURL
}

// longestURL is far more than any browser opens, and little enough for an event.
const longestURL = 8 << 10

// scanEnrolled reads a valid answer as encoding/json does, quicker; false: one that is not as simple as answers are.
func scanEnrolled(body []byte) (url, order string, ok bool) {
	rest := space(body)
	if rest[0] != '{' {
		return "", "", false
	}
	for rest = space(rest[1:]); rest[0] == '"'; rest = space(rest) {
		name, after := cut(rest)
		rest = space(space(after)[1:]) // behind the colon
		value, after := cut(rest)
		rest = space(after)
		if rest[0] == ',' {
			rest = rest[1:]
		}
		field, simple := asciiText(name)
		if !simple {
			return "", "", false
		}
		into := &url
		switch {
		case strings.EqualFold(field, "url"):
		case strings.EqualFold(field, "order_number"):
			into = &order
		default:
			continue
		}
		if *into, simple = asciiText(value); !simple || field != "url" && field != "order_number" {
			return "", "", false
		}
	}
	return url, order, true
}

// space is the text from where it is no space.
func space(text []byte) []byte { return bytes.TrimLeft(text, " \t\r\n") }

// cut parts a value from what is behind it.
func cut(text []byte) (value, rest []byte) {
	depth, quoted := 0, false
	for i := 0; ; i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
			continue
		case c == '"':
			quoted = !quoted
		case quoted:
			continue
		case c == '{' || c == '[':
			depth++
			continue
		case depth > 0 && (c == '}' || c == ']'):
			depth--
		case depth == 0 && (c == ',' || c == '}' || c == ' ' || c == '\t' || c == '\r' || c == '\n'): // behind a number or a word
			return text[:i], text[i:]
		default:
			continue
		}
		if depth == 0 && !quoted {
			return text[:i+1], text[i+1:]
		}
	}
}

// asciiText is the text of a JSON text that is ASCII and has no escapes; false: it is not.
func asciiText(value []byte) (text string, ok bool) {
	if value[0] != '"' {
		return "", false
	}
	value = value[1 : len(value)-1]
	for _, c := range value {
		if c == '\\' || c >= 0x80 {
			return "", false
		}
	}
	return string(value), true
}
