package sandbox

import (
	"encoding/json"
	"fmt"
	"net/mail"
	"strings"
)

// recipientLimit is the document's maximum of recipients in one request.
const recipientLimit = 1000

// recipients reads `to`: an array of strings or one string, each with one address or several separated by commas.
func recipients(raw string) (to []string, problem string) {
	texts, problem := listed(raw)
	switch {
	case problem != "":
		return nil, problem
	case len(texts) == 0:
		return nil, "field is required."
	}
	for i, text := range texts {
		parsed, err := mail.ParseAddress(text)
		if err != nil {
			return nil, fmt.Sprintf("recipient %d is not an email address.", i+1)
		}
		to = append(to, parsed.Address)
	}
	if len(to) > recipientLimit {
		return nil, fmt.Sprintf("must not have more than %d recipients.", recipientLimit)
	}
	return to, ""
}

// listed returns the texts between the commas of `to`, or a problem with `to` as a whole.
func listed(raw string) (texts []string, problem string) {
	if raw[0] == '"' {
		return separated(nil, unquote(raw)), ""
	}
	var elements []any
	if json.Unmarshal([]byte(raw), &elements) != nil {
		return nil, "must be a string or an array of strings."
	}
	for _, element := range elements {
		text, ok := element.(string)
		if !ok {
			return nil, "must be strings."
		}
		texts = separated(texts, text)
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
