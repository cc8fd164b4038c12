// Package names reads whom and what a message names, for people's tools: find, erase, the console's index and its masks.
package names

import (
	"encoding/base64"
	"encoding/json"
	"iter"
	"net/url"
	"strings"

	"golang.org/x/text/unicode/norm"

	"errand/internal/wire"
	"errand/internal/wire/mailbox"
	"errand/pkg/messages"
)

// Name is one whole value by which a message can be found: an order number, or something that identifies a person.
type Name struct {
	As  As
	Key string // the same for every spelling of the value; see Word
}

// As says what a name is in the message.
type As string

// What a name can be.
const (
	ID        As = "request id" // of the request itself: no message names it
	Order     As = "order number"
	Payer     As = "payer"     // a field payer_*: email, id, name, telephone number
	Recipient As = "recipient" // of a message
	Address   As = "address"   // an email address in any other field
	Callback  As = "callback"  // anything that was sent to a return URL, by whomever: no proof that its request is about it
)

// Word is what somebody looks for. It is compared with whole values after JSON is decoded, never with a part of
// one: an order number without case and spaces; an address without case, display name and quotes, its domain in
// ASCII; a number of six digits or more by its digits; anything else without case, runs of spaces being one. A letter and its
// accents are one character.
type Word struct{ order, text string }

// NewWord returns the word for a text as a person writes it.
func NewWord(text string) Word {
	text = Compose(text)
	return Word{wire.OrderKey(text), textKey(text)}
}

// Compose writes a letter and its accents as one character, where there is one: keyboards write ë, some systems e and a diaeresis.
func Compose(text string) string { return norm.NFC.String(text) }

// Is reports whether the word and the name are the same.
func (w Word) Is(n Name) bool {
	order, text := n.As == Order || n.As == Callback, n.As != Order
	return n.Key != "" && (order && n.Key == w.order || text && n.Key == w.text)
}

// Names returns the keys under which names that are the word are stored, by what they are.
func (w Word) Names() []Name {
	names := []Name{{Order, w.order}, {Callback, w.order}}
	for _, as := range []As{Payer, Recipient, Address, Callback} {
		names = append(names, Name{as, w.text})
	}
	return names
}

// In returns what the word is in a message of an operation, "" where the message does not name it.
func (w Word) In(op messages.Operation, body []byte) (as As) {
	Each(op, body, func(n Name) bool {
		if w.Is(n) {
			as = n.As
		}
		return as == ""
	})
	return as
}

// textKey is the same for every spelling of an address or of another text.
func textKey(text string) string {
	if strings.IndexByte(text, '@') >= 0 {
		if key, ok := mailbox.Fold(text); ok {
			return key
		}
	}
	if digits := number(text); digits != "" {
		return digits
	}
	return wire.Fold(strings.Join(strings.Fields(text), " "))
}

// number is an identity or telephone number without what people write between its digits, as in 900101-01-1234 and +60 12-345 6789: a
// request has the digits alone. It returns "" for another text.
func number(text string) string {
	digits := strings.Map(func(r rune) rune {
		if strings.ContainsRune(" +-()", r) {
			return -1
		}
		return r
	}, text)
	if len(digits) < shortest || strings.Trim(digits, "0123456789") != "" {
		return ""
	}
	return digits
}

// shortest is how many digits a telephone number has at least.
const shortest = 6

// Each calls yield with every name in a message until it returns false: in a request, a dead letter, an event,
// a record of the sending log or of the transaction list, whatever it is nested in. op is the operation in the
// message's subject. A body that is not JSON has no names.
func Each(op messages.Operation, body []byte, yield func(Name) bool) {
	if !json.Valid(body) {
		return
	}
	n := namer{text: body, yield: yield}
	if op == messages.Callback {
		n.callback()
		return
	}
	n.value(wire.SkipSpace(body, 0), "")
}

// namer walks over JSON and yields the names in it.
type namer struct {
	text  []byte
	all   bool // every value is a name, and none more than Callback: the sender chose the fields
	done  bool
	yield func(Name) bool
}

func (n *namer) add(as As, key string) {
	if n.all {
		as = Callback
	}
	if !n.done && key != "" {
		n.done = !n.yield(Name{as, key})
	}
}

// value visits the value at i, which is in a field or in an array in it, and returns the place behind it. It reads
// nothing twice, however deep values are nested. Once n is done, the place is not known.
func (n *namer) value(i int, field string) int {
	switch n.text[i] {
	case '{', '[':
		return n.values(i, field)
	}
	end := wire.SkipValue(n.text, i)
	switch raw := n.text[i:end]; raw[0] {
	case '"':
		n.named(field, raw, Compose(unquote(raw)))
	case 't', 'f', 'n':
	default:
		n.named(field, raw, string(wire.AppendNumber(nil, raw)))
	}
	return end
}

// values visits the members of the object or the elements of the array at i.
func (n *namer) values(i int, field string) int {
	object := n.text[i] == '{'
	for i = wire.SkipSpace(n.text, i+1); n.text[i] != '}' && n.text[i] != ']'; {
		if object {
			key := n.text[i:wire.SkipString(n.text, i)]
			field = unquote(key)
			i = wire.SkipSpace(n.text, wire.SkipSpace(n.text, i+len(key))+1) // behind the colon
		}
		if i = n.value(i, field); n.done {
			return i
		}
		if i = wire.SkipSpace(n.text, i); n.text[i] == ',' {
			i = wire.SkipSpace(n.text, i+1)
		}
	}
	return i + 1
}

// impersonalPayer are fields payer_* that many payers have in common.
var impersonalPayer = map[string]bool{
	"payer_id_type": true, "payer_bank_code": true, "payer_bank_code_hashed": true, "payer_bank_name": true,
}

// named visits a text or a number of a field. raw is the text as JSON.
func (n *namer) named(field string, raw []byte, text string) {
	switch {
	case field == "order_number":
		n.add(Order, wire.OrderKey(text))
	case strings.HasPrefix(field, "payer_") && !impersonalPayer[field]:
		n.add(Payer, textKey(text))
	case field == "to" && raw[0] == '"':
		for one := range addresses(raw) {
			n.add(Recipient, textKey(Compose(one)))
		}
	case field == "address":
		n.add(Recipient, textKey(text))
	case n.all:
		n.add(Callback, textKey(text))
		if strings.IndexByte(text, ',') > 0 {
			n.list(Callback, raw, text)
		}
	default:
		n.list(Address, raw, text)
	}
}

// addresses are the texts of a list of recipients.
func addresses(raw []byte) iter.Seq[string] { return (&messages.SendRequest{To: raw}).Addresses() }

// list visits a text that is an address, or a list of nothing else, as the header Cc is.
func (n *namer) list(as As, raw []byte, text string) {
	if strings.IndexByte(text, '@') <= 0 || raw[0] != '"' {
		return
	}
	var keys []string
	for one := range addresses(raw) {
		key, ok := mailbox.Fold(Compose(one))
		if !ok {
			return
		}
		keys = append(keys, key)
	}
	for _, key := range keys {
		n.add(as, key)
	}
}

// callback visits what was sent to a return URL: JSON, a form or a text, in the body and the query.
func (n *namer) callback() {
	var b messages.CallbackBody
	_ = messages.DecodeEvent(n.text, &b) // what cannot be read names nobody
	sent := b.Body
	if b.Encoding == messages.CallbackBase64 {
		decoded, _ := base64.StdEncoding.DecodeString(sent)
		sent = string(decoded)
	}
	n.all = true
	n.foreign("", sent)
	for _, text := range []string{b.Query, sent} {
		form, _ := url.ParseQuery(text) // what can be read of it
		for field, values := range form {
			for _, value := range values {
				n.foreign(field, value)
			}
		}
	}
}

// foreign visits a text that may be JSON. A number is not read as JSON: what looks like one may be an order number.
func (n *namer) foreign(field, text string) {
	if start := strings.TrimLeft(text, " \t\r\n"); start != "" && strings.IndexByte(`{["`, start[0]) >= 0 && json.Valid([]byte(text)) {
		inner := namer{text: []byte(text), all: true, yield: n.yield, done: n.done}
		inner.value(wire.SkipSpace(inner.text, 0), field)
		n.done = inner.done
		return
	}
	quoted, _ := wire.Marshal(text) // a string always encodes
	n.named(field, quoted, Compose(text))
}

// unquote is the text of a JSON string.
func unquote(raw []byte) string {
	if wire.HasEscape(raw) {
		return string(wire.AppendText(nil, raw))
	}
	return string(raw[1 : len(raw)-1])
}
