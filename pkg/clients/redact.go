package clients

import (
	"bytes"
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"errand/internal/wire"
)

// secrets removes known secrets from what an upstream says, in the forms in which they come back.
type secrets struct {
	all    []Secret // the latest first
	fields []string // names of members whose values are secret, in every request
	long   [][]byte // forms that are cut out of whole bodies; too short ones would break unrelated JSON
	short  []string // secrets that may be a part of any word, cut out of texts where they stand alone

	given string                  // the request's
	last  atomic.Pointer[secrets] // that with gave: requests mostly have the same
}

const longSecret = 6

func newSecrets(all []Secret, fields ...string) *secrets {
	s := &secrets{all: all, fields: fields}
	var forms []string
	for _, secret := range all {
		if secret.Empty() {
			continue
		}
		text := secret.Reveal()
		forms = append(forms, formsOf(text)...)
		if len(text) < longSecret {
			s.short = append(s.short, text)
		}
	}
	slices.Sort(forms)
	forms = slices.Compact(forms)
	// The longest first: one secret may begin with another.
	slices.SortStableFunc(forms, func(a, b string) int { return len(b) - len(a) })
	for _, form := range forms {
		if len(form) >= longSecret {
			s.long = append(s.long, []byte(form))
		}
	}
	return s
}

// formsOf are the ways in which a text comes back, but for what JSON writes with escapes.
func formsOf(text string) []string {
	quoted, _ := json.Marshal(text) // a string always encodes
	query, path := url.QueryEscape(text), url.PathEscape(text)
	return []string{text, string(quoted[1 : len(quoted)-1]), strings.ReplaceAll(text, "/", `\/`), html.EscapeString(text),
		query, path, lowerEscapes(query), lowerEscapes(path)}
}

var percentEscape = regexp.MustCompile("%[0-9A-F]{2}")

func lowerEscapes(text string) string {
	return percentEscape.ReplaceAllStringFunc(text, strings.ToLower)
}

// with returns these secrets and one request's; "" means that it has no secret.
func (s *secrets) with(own string) *secrets {
	secret := NewSecret(own)
	if secret.Empty() {
		return s
	}
	if last := s.last.Load(); last != nil && last.given == own {
		return last
	}
	both := newSecrets(append(slices.Clip(s.all), secret), s.fields...)
	both.given = own
	s.last.Store(both)
	return both
}

// clean replaces every known secret in a body, which stays the same slice when there is none: in its bytes, and in its texts, however JSON
// escapes them.
func (s *secrets) clean(body []byte) []byte {
	for _, form := range s.long {
		if bytes.Contains(body, form) {
			body = bytes.ReplaceAll(body, form, []byte(redacted))
		}
	}
	named := func(field string) bool { return bytes.Contains(body, []byte(field)) }
	if len(s.short) == 0 && bytes.IndexByte(body, '\\') < 0 && !slices.ContainsFunc(s.fields, named) {
		return body
	}
	return s.cleanTexts(body)
}

// Link is the member of an answer that is a link for somebody who may see some secrets: then it is published as it came.
type Link struct {
	Member string
	Shows  []string // the secrets
}

// cleanBut is clean, but for a link that holds no other secrets than it may show.
func (s *secrets) cleanBut(link Link, body []byte) []byte {
	clean := s.clean(body)
	object := bytes.TrimSpace(body)
	if len(link.Shows) == 0 || bytes.Equal(clean, body) || !json.Valid(body) {
		return clean
	}
	from, to := 0, 0
	wire.Object(object, func(key, value []byte) bool {
		if string(key) == link.Member {
			from = cap(object) - cap(value)
			to = from + len(value)
		}
		return true
	})
	others := newSecrets(slices.DeleteFunc(slices.Clone(s.all), func(o Secret) bool { return slices.Contains(link.Shows, o.Reveal()) }))
	if value := object[from:to]; bytes.Equal(others.clean(value), value) {
		return slices.Concat(s.clean(object[:from]), value, s.clean(object[to:]))
	}
	return clean
}

// cleanTexts redacts the texts of a body, and the values of the members named in fields, lists and objects included. In a
// body that is not JSON it redacts what looks like a text or such a member.
func (s *secrets) cleanTexts(body []byte) []byte {
	var out []byte // nil until something is replaced
	copied := 0
	replace := func(from, to int) {
		out = append(append(append(append(out, body[copied:from]...), '"'), redacted...), '"')
		copied = to
	}
	hide := false // the next value is secret
	for at := 0; at < len(body); {
		switch c := body[at]; {
		case c == '"':
			end := textEnd(body, at)
			text, escaped := unquote(body[at:end])
			name := isName(body[end:])
			if hide && !name {
				replace(at, end)
			} else if escaped || len(s.short) > 0 { // else it was cleaned with the bytes
				if clean := s.cleanText(text); clean != text {
					quoted, _ := json.Marshal(clean) // a string always encodes
					out = append(append(out, body[copied:at]...), quoted...)
					copied = end
				}
			}
			hide = name && slices.Contains(s.fields, text)
			at = end
		case hide && (c == '-' || '0' <= c && c <= '9'):
			end := at
			for end < len(body) && strings.IndexByte("+-.0123456789eE", body[end]) >= 0 {
				end++
			}
			replace(at, end)
			hide, at = false, end
		case hide && (c == '[' || c == '{'):
			end := nestedEnd(body, at)
			replace(at, end)
			hide, at = false, end
		default:
			hide = hide && (c == ':' || c == ' ' || c == '\t' || c == '\r' || c == '\n')
			at++
		}
	}
	if out == nil {
		return body
	}
	return append(out, body[copied:]...)
}

// unquote reads a JSON text; "" if it is not one.
func unquote(quoted []byte) (text string, escaped bool) {
	if len(quoted) > 1 && bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1]), false
	}
	_ = json.Unmarshal(quoted, &text)
	return text, true
}

// isName reports whether the JSON text before rest is the name of a member.
func isName(rest []byte) bool {
	for _, c := range rest {
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c == ':'
		}
	}
	return false
}

// textEnd is where the JSON text ends that begins at from.
func textEnd(body []byte, from int) int {
	for at := from + 1; at < len(body); at++ {
		switch body[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
	return len(body)
}

// nestedEnd is where the list or object ends that begins at from.
func nestedEnd(body []byte, from int) int {
	depth := 0
	for at := from; at < len(body); at++ {
		switch body[at] {
		case '"':
			at = textEnd(body, at) - 1
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				return at + 1
			}
		}
	}
	return len(body)
}

// cleanText replaces the long secrets, and the short ones where they stand alone: a part of a word is not a secret.
func (s *secrets) cleanText(text string) string {
	for _, form := range s.long {
		text = strings.ReplaceAll(text, string(form), redacted)
	}
	for _, secret := range s.short {
		text = cleanAlone(text, secret)
	}
	return text
}

// cleanAlone replaces a secret in a text where it is not part of a word.
func cleanAlone(text, secret string) string {
	for at := 0; ; {
		i := strings.Index(text[at:], secret)
		if i < 0 {
			return text
		}
		from, to := at+i, at+i+len(secret)
		before, _ := utf8.DecodeLastRuneInString(text[:from])
		after, _ := utf8.DecodeRuneInString(text[to:])
		if at = to; !inWord(before) && !inWord(after) {
			text = text[:from] + redacted + text[to:]
			at = from + len(redacted)
		}
	}
}

func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
