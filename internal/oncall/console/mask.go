package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"errand/internal/names"
	"errand/internal/wire"
	"errand/pkg/messages"
)

// shown are the fields of errand's own objects that hold no personal data. All others are hidden, and so is everything in what an
// upstream or a publisher has nested, whatever its fields are called.
var shown = strings.Fields(`
	request_id at attempt deadline fingerprint batch batches batch_size recipients first count accepted duplicates
	invalid_count reason http_status not_before outcome by state after_unknown conflicts_with api_version
	pages page total status code enhanced confidence event_id final complete_through delivered deferred bounced
	unknown queued seen begin until accepted_at recipient on_unknown give_up_at as_html max_frequency
	frequency_mode effective_date link_expired_at total_record new since scanned digest bucket
	kind mandate_status method bytes body_encoding`)

// ours are the fields of events with objects that errand makes.
var ours = map[string]bool{"": true, "match": true, "smtp": true, "unsettled": true, "invalid": true, "was": true, "evidence": true,
	"batches": true, "to_object": true, fields: true}

// texts are fields with sentences, in which addresses and long numbers are hidden.
var texts = map[string]bool{"message": true, "problem": true, fields: true}

// Objects whose keys are not names of the contract: fields has a request's fields and what is wrong with them, headers a
// message's headers. Nothing in them is known to be harmless.
const (
	fields  = "fields"
	headers = "headers"
)

// hidden replaces personal data.
const hidden = "•••"

// moment is a date with a time, such as the end of a pause. A date alone may be a date of birth.
const moment = `\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|\b)`

var (
	addresses = regexp.MustCompile(`[^\s<>"'(),;:]+@[^\s<>"'(),;:]+`)
	isMoment  = regexp.MustCompile(`^` + moment + `$`)
	numbers   = regexp.MustCompile(moment + `|\d[\d -]{5,}\d`)
)

// personal are the names that a request itself has: an upstream's answer may repeat them.
type personal []string

// personalIn returns what messages of an operation say of the payer and of recipients: each such value, and the words of a name, since
// upstreams turn them round.
func personalIn(op messages.Operation, bodies ...[]byte) (p personal) {
	for _, body := range bodies {
		names.Each(op, body, func(n names.Name) bool {
			for _, text := range append(strings.Fields(n.Key), n.Key) {
				if n.As != names.Order && len(text) > 2 && !slices.Contains(p, text) {
					p = append(p, text)
				}
			}
			return len(p) < maxNames
		})
	}
	return p
}

// maxNames bounds the names that a text is searched for: a message may have 100,000 recipients.
const maxNames = 200

// hide is hideIn, and hides the names.
func (p personal) hide(text string) string { return hideIn(p.hideNames(text)) }

// ours is hideAddresses, and hides the names.
func (p personal) ours(text string) string { return hideAddresses(p.hideNames(text)) }

// hideNames hides the names. Fold changes runes one by one, so what is found in the folded text is in the text as well.
func (p personal) hideNames(text string) string {
	text = names.Compose(text)
	folded := wire.Fold(text)
	gone := make([]bool, len(folded)) // by octets of folded
	for _, name := range p {
		for from := 0; ; {
			i := strings.Index(folded[from:], name)
			if i < 0 {
				break
			}
			begin, end := from+i, from+i+len(name)
			before, _ := utf8.DecodeLastRuneInString(folded[:begin])
			after, _ := utf8.DecodeRuneInString(folded[end:])
			for i := begin; i < end && !inWord(before) && !inWord(after); i++ {
				gone[i] = true
			}
			from = end
		}
	}
	var left strings.Builder
	place, was := 0, false
	for _, r := range text {
		is := gone[place]
		if !is {
			left.WriteRune(r)
		} else if !was {
			left.WriteString(hidden)
		}
		_, width := utf8.DecodeRuneInString(folded[place:])
		place, was = place+width, is
	}
	return left.String()
}

func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

// hideNamed hides in a text what a message of an operation names.
func hideNamed(op messages.Operation, text string, message []byte) string {
	return personalIn(op, message).hide(text)
}

// hideIn hides addresses and long numbers in a text, but not a moment.
func hideIn(text string) string {
	return numbers.ReplaceAllStringFunc(hideAddresses(text), func(number string) string {
		if isMoment.MatchString(number) {
			return number
		}
		return hidden
	})
}

// hideAddresses hides addresses in a text of errand's own or of a person who acts: it has ids and numbers of tickets.
func hideAddresses(text string) string { return addresses.ReplaceAllString(text, hidden) }

// Bounds of what is shown of a body. Publishers choose how deeply theirs is nested, and each level is indented further.
const (
	maxDepth = 50
	maxShown = 2 << 20
)

var (
	errDeep = errors.New("nested too deeply")
	errLong = errors.New("too long")
)

// pretty returns JSON indented and, unless reveal is set, without personal data. A body that is not JSON or is nested too
// deeply is hidden entirely; a long one is cut.
func pretty(body []byte, reveal bool, names personal) string {
	var out bytes.Buffer
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	switch err := (&printer{out: &out, in: decoder, reveal: reveal, names: names}).value("", 0, true); {
	case errors.Is(err, errLong):
		return out.String() + "\n… the rest is too long to be shown"
	case err != nil && reveal:
		return string(body)
	case err != nil:
		return hidden
	}
	return out.String()
}

type printer struct {
	out    *bytes.Buffer
	in     *json.Decoder
	reveal bool
	names  personal
}

// value copies the next value, which is in the field name; own: of an object that errand makes.
func (p *printer) value(name string, depth int, own bool) error {
	token, err := p.in.Token()
	if err != nil {
		return err
	}
	open, nested := token.(json.Delim)
	if !nested {
		p.leaf(name, token, own)
		return nil
	}
	own = own && ours[name] && (open == '{' || name != "evidence") // an enrollment's is a list of the upstream's records
	if depth == maxDepth {
		return errDeep
	}
	p.out.WriteString(open.String())
	empty := true
	for p.in.More() {
		if p.out.Len() > maxShown {
			return errLong
		}
		if !empty {
			p.out.WriteByte(',')
		}
		empty = false
		p.line(depth + 1)
		of := name
		if open == '{' {
			token, err := p.in.Token()
			if err != nil {
				return err
			}
			text, _ := token.(string) // a key is a string
			key := text
			if !p.reveal {
				key = p.names.hide(text) // a publisher may have used an address as a key
			}
			p.text(key)
			if name != fields && name != headers {
				of = text
			}
			p.out.WriteString(": ")
		}
		if err := p.value(of, depth+1, own); err != nil {
			return err
		}
	}
	if !empty {
		p.line(depth)
	}
	end, err := p.in.Token()
	if err == nil {
		p.out.WriteString(end.(json.Delim).String())
	}
	return err
}

func (p *printer) line(depth int) { p.out.WriteString("\n" + strings.Repeat("  ", depth)) }

func (p *printer) leaf(name string, token json.Token, own bool) {
	text, isText := token.(string)
	switch {
	case token == nil, p.reveal, own && (slices.Contains(shown, name) && !isText || name == "by"): // the audit names who acts too
	case own && slices.Contains(shown, name):
		token = hideAddresses(text)
	case own && name == "why" && isText: // of a person who acts
		token = p.names.ours(text)
	case own && texts[name] && isText:
		token = p.names.hide(text)
	default:
		token = hidden
	}
	if text, isText = token.(string); isText {
		p.text(text)
		return
	}
	encoded, _ := json.Marshal(token) // numbers, true, false and null always encode
	p.out.Write(encoded)
}

func (p *printer) text(text string) {
	encoder := json.NewEncoder(p.out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text)        // a string always encodes
	p.out.Truncate(p.out.Len() - 1) // its line break
}
