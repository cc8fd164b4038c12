package sandbox

import (
	"fmt"
	"iter"
	"net/mail"
	"strings"
)

// recipientLimit is the document's maximum of recipients in one request.
const recipientLimit = 1000

// addresses is a list of bare addresses in one string, to save memory: a sandbox
// may hold hundreds of thousands.
type addresses struct {
	joined string
	ends   []uint32
}

func (a *addresses) len() int { return len(a.ends) }

func (a *addresses) at(i int) string {
	begin := uint32(0)
	if i > 0 {
		begin = a.ends[i-1]
	}
	return a.joined[begin:a.ends[i]]
}

// first returns the first n addresses.
func (a *addresses) first(n int) addresses { return addresses{joined: a.joined, ends: a.ends[:n]} }

// recipients reads `to`: an array of strings or one string, each with one address
// or several separated by commas.
func recipients(raw string) (addresses, string) {
	var joined strings.Builder
	var ends []uint32
	for text, problem := range listed(raw) {
		if problem != "" {
			return addresses{}, problem
		}
		address, ok := bare(text)
		if !ok {
			return addresses{}, fmt.Sprintf("recipient %d is not an email address.", len(ends)+1)
		}
		if len(ends) == recipientLimit {
			return addresses{}, fmt.Sprintf("must not have more than %d recipients.", recipientLimit)
		}
		joined.WriteString(address)
		ends = append(ends, uint32(joined.Len()))
	}
	if len(ends) == 0 {
		return addresses{}, "field is required."
	}
	return addresses{joined.String(), ends}, ""
}

// listed yields the texts between the commas of `to`; the second value is a
// problem with `to` as a whole.
func listed(raw string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		switch {
		case raw[0] == '"':
			for text := range separated(unquote(raw)) {
				if !yield(text, "") {
					return
				}
			}
		case raw[0] == '[':
			for element := range elements(raw) {
				if element[0] != '"' {
					yield("", "must be strings.")
					return
				}
				for text := range separated(unquote(element)) {
					if !yield(text, "") {
						return
					}
				}
			}
		default:
			yield("", "must be a string or an array of strings.")
		}
	}
}

// separated splits at commas outside of quotes, and leaves out empty parts.
func separated(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		quoted, begin := false, 0
		for i := 0; i < len(text); i++ {
			switch {
			case text[i] == '\\' && quoted:
				i++
			case text[i] == '"':
				quoted = !quoted
			case text[i] == ',' && !quoted:
				if part := strings.TrimSpace(text[begin:i]); part != "" && !yield(part) {
					return
				}
				begin = i + 1
			}
		}
		if part := strings.TrimSpace(text[begin:]); part != "" {
			yield(part)
		}
	}
}

// bare is the address without a display name.
func bare(text string) (string, bool) {
	if plain(text) {
		return text, true
	}
	parsed, err := mail.ParseAddress(text)
	if err != nil {
		return "", false
	}
	return parsed.Address, true
}

// plain reports whether text is local@domain in ordinary characters, as nearly
// every recipient is: a shortcut.
func plain(text string) bool {
	at := -1
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '+':
		case c == '.' && i > 0 && i < len(text)-1 && text[i-1] != '.' && i != at+1 && text[i+1] != '@':
		case c == '@' && at < 0 && i > 0 && i < len(text)-1:
			at = i
		default:
			return false
		}
	}
	return at > 0
}

// domain is the part after the last @.
func domain(address string) string { return address[strings.LastIndexByte(address, '@')+1:] }

// sameDomain returns the address with its domain in lower case: domains are
// compared without case, local parts exactly.
func sameDomain(address string) string {
	at := strings.LastIndexByte(address, '@') + 1
	for i := at; i < len(address); i++ {
		if c := address[i]; 'A' <= c && c <= 'Z' {
			return address[:at] + strings.ToLower(address[at:])
		}
	}
	return address
}
