package messages

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// SendRequest is the body of mail.send.requested: the message of the email
// document, and what errand adds to it.
type SendRequest struct {
	RequestID       string            `json:"request_id,omitempty"`
	OnUnknown       string            `json:"on_unknown,omitempty"` // report unless given
	GiveUpAt        time.Time         `json:"give_up_at,omitzero"`  // UTC; zero if not given
	From            string            `json:"from,omitempty"`
	ReplyTo         string            `json:"reply_to,omitempty"`
	UnsubscribeLink string            `json:"unsubscribe_link,omitempty"`
	Subject         string            `json:"subject"`
	Content         string            `json:"content"`
	AsHTML          int               `json:"as_html,omitempty"` // 0 plain text, 1 HTML
	Headers         map[string]string `json:"headers,omitempty"`
	// To is the list as the request has it, a JSON array of strings or a JSON
	// string with commas; Recipients makes it, Addresses reads it. It is a part of
	// the bytes that were decoded, not a copy. Nil when ToObject is given.
	To       json.RawMessage `json:"to,omitempty"`
	ToObject *ObjectRef      `json:"to_object,omitempty"`
}

// MarshalJSON writes what DecodeSend reads; optional fields that are empty are
// left out. Publish a request again with the same bytes, as with
// an EnrollRequest.
func (r SendRequest) MarshalJSON() ([]byte, error) {
	type plain SendRequest
	r.GiveUpAt = r.GiveUpAt.UTC()
	return marshal(plain(r))
}

// ObjectRef names a JetStream object that holds one address a line.
type ObjectRef struct {
	Bucket string `json:"bucket"`
	Name   string `json:"name"`
	Digest string `json:"digest"` // SHA-256=<base64url of the 32 octets, padded>
}

var sendFields = []field[SendRequest]{
	{"as_html", optional, func(r *SendRequest, v value) { r.AsHTML = v.flag() }},
	{"content", required, func(r *SendRequest, v value) { r.Content = v.text() }},
	{"from", optional, func(r *SendRequest, v value) { r.From = v.mailbox() }},
	{"give_up_at", optional, func(r *SendRequest, v value) { r.GiveUpAt = v.when() }},
	{"headers", optional, func(r *SendRequest, v value) { r.Headers = v.headers() }},
	{"on_unknown", optional, func(r *SendRequest, v value) {
		r.OnUnknown = v.choice("must be report or resend", OnUnknownReport, OnUnknownResend)
	}},
	{"reply_to", optional, func(r *SendRequest, v value) { r.ReplyTo = v.mailbox() }},
	{"request_id", optional, func(r *SendRequest, v value) { r.RequestID = v.requestID() }},
	{"subject", required, func(r *SendRequest, v value) { r.Subject = v.line() }},
	{"to", optional, func(r *SendRequest, v value) { r.To = v.recipients() }},
	{"to_object", optional, func(r *SendRequest, v value) { r.ToObject = v.object() }},
	{"unsubscribe_link", optional, func(r *SendRequest, v value) { r.UnsubscribeLink = v.unsubscribe() }},
}

// DecodeSend reads and checks the body of mail.send.requested. The error is an
// *Invalid; the request then holds the fields without a fault. The recipients
// are not judged here, see ParseRecipient; there is at least one text to judge.
func DecodeSend(data []byte) (SendRequest, Meta, error) {
	r := SendRequest{OnUnknown: OnUnknownReport}
	meta, err := decode(data, sendFields, &r, oneList)
	return r, meta, err
}

// oneList asks for to or to_object, and not for both.
func oneList(f *form, given func(name string) bool) {
	switch to, object := given("to"), given("to_object"); {
	case to && object:
		f.fault("to_object", "must not be given beside to")
	case !to && !object:
		f.fault("to", "is required, or to_object instead")
	}
}

// flag is 0 or 1, or a boolean for it.
func (v value) flag() int {
	switch s := string(v.raw); s {
	case "1", "true":
		return 1
	case "0", "false":
	default:
		v.fault("must be 0, 1, true or false")
	}
	return 0
}

// recipients is an array of strings or one string, as it was written.
func (v value) recipients() json.RawMessage {
	const rule = "must be a string or an array of strings"
	if v.kind == anArray {
		c := enter(v.raw, 0)
		for {
			at, ok := c.element()
			if !ok {
				break
			}
			if !v.must(v.raw[at.from] == '"', rule) {
				return nil
			}
		}
	} else if !v.must(v.kind == aString, rule) {
		return nil
	}
	for text := range addresses(v.raw) {
		if text != "" {
			return slices.Clip(v.raw)
		}
	}
	v.fault("must hold at least one address")
	return nil
}

// object is a reference to a list kept in an object store.
func (v value) object() *ObjectRef {
	if !v.must(v.kind == anObject, "must be an object of bucket, name and digest") {
		return nil
	}
	var ref ObjectRef
	parts := map[string]*string{"bucket": &ref.Bucket, "name": &ref.Name, "digest": &ref.Digest}
	for part := range v.members() {
		if into := parts[part.key]; into == nil {
			v.form.faultNamed(part.name, "is not a known field")
		} else if part.kind != absent {
			*into = part.line()
		}
	}
	for name, into := range parts {
		if path := v.name + within + name; *into == "" && v.form.faults[path] == nil {
			v.form.fault(path, "is required")
		}
	}
	if ref.Bucket != "" && !isBucket(ref.Bucket) {
		v.form.fault(v.name+within+"bucket", "must be letters, digits, _ or -")
	}
	if ref.Digest != "" {
		if ref.Digest = canonicalDigest(ref.Digest); ref.Digest == "" {
			v.form.fault(v.name+within+"digest", "must be SHA-256= and the base64url of 32 octets")
		}
	}
	return &ref
}

// isBucket says whether JetStream takes s as the name of an object store.
func isBucket(s string) bool {
	for i := range len(s) {
		if !isAlnum(s[i]) && s[i] != '_' && s[i] != '-' {
			return false
		}
	}
	return true
}

// canonicalDigest is the digest as JetStream's object store writes it, padded; ""
// when s is not a digest.
func canonicalDigest(s string) string {
	const algorithm = "SHA-256="
	text, found := strings.CutPrefix(s, algorithm)
	sum, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(text, "="))
	if !found || err != nil || len(sum) != 32 {
		return ""
	}
	return algorithm + base64.URLEncoding.EncodeToString(sum)
}
