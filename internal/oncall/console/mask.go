package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
)

// shown are the fields whose values are no personal data, wherever they are in a body. All
// others are hidden: a field that is added to an upstream's answers tomorrow is, too.
var shown = func() map[string]bool {
	all := map[string]bool{}
	for name := range strings.FieldsSeq(`
		request_id at attempt deadline fingerprint batch batches batch_size recipients first count accepted duplicates
		invalid_count reason http_status not_before outcome by state after_unknown conflicts_with api_version
		pages page total status code enhanced confidence event_id final complete_through delivered deferred bounced
		unknown queued seen begin until accepted_at recipient on_unknown give_up_at as_html max_frequency
		frequency_mode effective_date link_expired_at total_record new since scanned digest bucket
		kind mandate_status method bytes body_encoding transaction_type status_description`) {
		all[name] = true
	}
	return all
}()

// texts are fields with sentences, of which only what looks like somebody's is hidden.
var texts = map[string]bool{"message": true, "why": true, "problem": true, fields: true}

// Fields of objects whose keys are no names of ours: fields says of each field of a request
// what is wrong with it, headers are a message's, and nothing in them is known to be harmless.
const (
	fields  = "fields"
	headers = "headers"
)

// hidden stands for what is not shown.
const hidden = "•••"

// moment is a date with a time: when a pause ends, for one. A date alone may be a day of birth.
const moment = `\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\b`

var (
	addresses = regexp.MustCompile(`[^\s<>"'(),;:]+@[^\s<>"'(),;:]+`)
	isMoment  = regexp.MustCompile(`^` + moment + `$`)
	numbers   = regexp.MustCompile(moment + `|\d[\d -]{5,}\d`)
)

// hideIn hides addresses and long numbers in a text, and leaves dates with a time.
func hideIn(text string) string {
	return numbers.ReplaceAllStringFunc(addresses.ReplaceAllString(text, hidden), func(number string) string {
		if isMoment.MatchString(number) {
			return number
		}
		return hidden
	})
}

// Bounds of what is shown of a body. A publisher chooses how deep its own is nested, and each
// level is indented further.
const (
	maxDepth = 50
	maxShown = 2 << 20
)

var (
	errDeep = errors.New("it is nested too deep")
	errLong = errors.New("it is too long")
)

// pretty is JSON as people read it: line by line and, unless it is revealed, without
// personal data. What is no JSON, or nested too deep, is hidden as a whole; what is too long
// is cut.
func pretty(body []byte, reveal bool) string {
	var out bytes.Buffer
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	switch err := (&printer{out: &out, in: decoder, reveal: reveal}).value("", 0); {
	case errors.Is(err, errLong):
		return out.String() + "\n… the rest is too long to be shown"
	case err != nil && reveal:
		return string(body)
	case err != nil:
		return hidden
	}
	return out.String()
}

// printer copies JSON in the order in which it is.
type printer struct {
	out    *bytes.Buffer
	in     *json.Decoder
	reveal bool
}

// value copies the next value; name is that of the field that it is of, or is in.
func (p *printer) value(name string, depth int) error {
	token, err := p.in.Token()
	if err != nil {
		return err
	}
	open, nested := token.(json.Delim)
	if !nested {
		p.leaf(name, token)
		return nil
	}
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
			key, err := p.in.Token()
			if err != nil {
				return err
			}
			text, _ := key.(string) // keys are
			p.text(p.key(text))
			if name != fields && name != headers {
				of = text
			}
			p.out.WriteString(": ")
		}
		if err := p.value(of, depth+1); err != nil {
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

// key is the name of a field, which may be somebody's address where a publisher made a
// mistake.
func (p *printer) key(name string) string {
	if p.reveal {
		return name
	}
	return hideIn(name)
}

func (p *printer) line(depth int) { p.out.WriteString("\n" + strings.Repeat("  ", depth)) }

func (p *printer) leaf(name string, token json.Token) {
	text, isText := token.(string)
	switch {
	case token == nil, p.reveal, shown[name] && !isText, name == "by": // who acts, which the audit has too
	case shown[name]:
		token = addresses.ReplaceAllString(text, hidden)
	case texts[name] && isText:
		token = hideIn(text)
	default:
		token = hidden
	}
	if text, isText = token.(string); isText {
		p.text(text)
		return
	}
	encoded, _ := json.Marshal(token) // numbers, true, false and null do
	p.out.Write(encoded)
}

func (p *printer) text(text string) {
	encoder := json.NewEncoder(p.out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text)        // a text always does
	p.out.Truncate(p.out.Len() - 1) // its line break
}
