package sandbox

import (
	"fmt"
	"net/mail"
	"strings"
)

// recipientLimit is the document's maximum of recipients in one request.
const recipientLimit = 1000

// addresses is a list of bare addresses in one string, to save memory: a sandbox may hold hundreds of thousands.
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

// recipients reads `to`: an array of strings or one string, each with one address or several separated by commas.
func recipients(raw string) (addresses, string) {
	var joined strings.Builder
	var ends []uint32
	texts, problem := listed(raw)
	if problem != "" {
		return addresses{}, problem
	}
	for _, text := range texts {
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

// listed returns the texts between the commas of `to`, or a problem with `to` as a whole.
func listed(raw string) (texts []string, problem string) {
	if raw[0] == '"' {
		return separated(nil, unquote(raw)), ""
	}
	if raw[0] != '[' {
		return nil, "must be a string or an array of strings."
	}
	for element := range elements(raw) {
		if element[0] != '"' {
			return nil, "must be strings."
		}
		texts = separated(texts, unquote(element))
	}
	return texts, ""
}

// separated appends the parts between the commas outside of quotes, but empty ones.
func separated(parts []string, text string) []string {
	quoted, begin := false, 0
	for i := 0; i <= len(text); i++ {
		switch {
		case i == len(text), text[i] == ',' && !quoted:
			if part := strings.TrimSpace(text[begin:i]); part != "" {
				parts = append(parts, part)
			}
			begin = i + 1
		case text[i] == '\\' && quoted && i+1 < len(text):
			i++
		case text[i] == '"':
			quoted = !quoted
		}
	}
	return parts
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

// plain reports whether text is local@domain in ordinary characters, as nearly every recipient is: a shortcut.
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

// sameDomain returns the address with its domain in lower case: domains are compared without case, local parts exactly.
func sameDomain(address string) string {
	at := len(address) - len(domain(address))
	if lower := strings.ToLower(address[at:]); lower != address[at:] {
		return address[:at] + lower
	}
	return address
}
