package messages

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"errand/internal/wire"
)

// SendRequest is the body of mail.send.requested.
type SendRequest struct {
	RequestID       string            `json:"request_id,omitempty"`
	OnUnknown       string            `json:"on_unknown,omitempty"` // report unless given
	NotBefore       time.Time         `json:"not_before,omitzero"`  // UTC; zero if not given
	GiveUpAt        time.Time         `json:"give_up_at,omitzero"`  // UTC; zero if not given
	From            string            `json:"from,omitempty"`
	ReplyTo         string            `json:"reply_to,omitempty"`
	UnsubscribeLink string            `json:"unsubscribe_link,omitempty"`
	Subject         string            `json:"subject"`
	Content         string            `json:"content"`
	AsHTML          int               `json:"as_html,omitempty"` // 0 plain text, 1 HTML
	Headers         map[string]string `json:"headers,omitempty"`
	Suppress        *bool             `json:"suppress,omitempty"` // false: addresses that mail bounced from are tried; nil is true
	// To is a JSON array of strings or a JSON string with commas, a part of the bytes that were decoded: Recipients makes it, Addresses
	// reads it.
	To       json.RawMessage `json:"to,omitempty"`
	ToObject *ObjectRef      `json:"to_object,omitempty"`
}

// MarshalJSON writes what Decode reads, as that of an EnrollRequest.
func (r SendRequest) MarshalJSON() ([]byte, error) {
	type plain SendRequest
	r.GiveUpAt, r.NotBefore = r.GiveUpAt.UTC(), r.NotBefore.UTC()
	return wire.Marshal(plain(r))
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
	{"give_up_at", optional, func(r *SendRequest, v value) { r.GiveUpAt = v.time(&v.form.meta.GiveUpAt) }},
	{"headers", optional, func(r *SendRequest, v value) { r.Headers = v.headers() }},
	{"not_before", optional, func(r *SendRequest, v value) { r.NotBefore = v.time(&v.form.meta.NotBefore) }},
	{"on_unknown", optional, func(r *SendRequest, v value) {
		r.OnUnknown = v.choice("must be report or resend", OnUnknownReport, OnUnknownResend)
	}},
	{"reply_to", optional, func(r *SendRequest, v value) { r.ReplyTo = v.mailbox() }},
	{"request_id", optional, func(r *SendRequest, v value) { r.RequestID = v.requestID() }},
	{"subject", required, func(r *SendRequest, v value) { r.Subject = v.line() }},
	{"suppress", optional, func(r *SendRequest, v value) { r.Suppress = new(v.flag() == 1) }},
	{"to", optional, func(r *SendRequest, v value) { r.To = v.recipients() }},
	{"to_object", optional, func(r *SendRequest, v value) { r.ToObject = v.object() }},
	{"unsubscribe_link", optional, func(r *SendRequest, v value) { r.UnsubscribeLink = v.unsubscribe() }},
}

// oneList asks for to or to_object, and not for both.
func oneList(f *form, r *SendRequest) {
	to := r.To != nil || f.faults["to"] != nil
	object := r.ToObject != nil || f.faults["to_object"] != nil
	switch {
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
			if end := wire.SkipStrings(v.raw, c.at); end > c.at {
				c.pass(end)
			}
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
	for name, part := range v.members() {
		if into := parts[name]; into == nil {
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
	if !wire.IsWord(ref.Bucket) { // or else JetStream does not take it as the name of an object store
		v.form.fault(v.name+within+"bucket", "must be letters, digits, _ or -")
	}
	if ref.Digest != "" {
		if ref.Digest = canonicalDigest(ref.Digest); ref.Digest == "" {
			v.form.fault(v.name+within+"digest", "must be SHA-256= and the base64url of 32 octets, not their hexadecimal form")
		}
	}
	return &ref
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

// SendResolved is the body of mail.send.resolved: what became of a request that ended
// uncertain.
type SendResolved struct {
	Common
	Outcome     State        `json:"outcome"` // accepted, partial or failed
	By          string       `json:"by"`
	Evidence    SendEvidence `json:"evidence"`
	Fingerprint string       `json:"fingerprint"`
}

// SendEvidence is about the batches of unknown fate.
type SendEvidence struct {
	CompleteThrough Time            `json:"complete_through"`
	Seen            int             `json:"seen"`  // recipients of those batches with a row
	Count           int             `json:"count"` // recipients of those batches
	Batches         []BatchEvidence `json:"batches"`
}

// BatchEvidence is what proves that a batch of unknown fate was sent.
type BatchEvidence struct {
	Batch int `json:"batch"` // from 1
	Count int `json:"count"` // recipients
	Seen  int `json:"seen"`  // of them, with a row that was accepted during the call
}

// SendStarted is the body of mail.send.started, stored again with a new deadline
// while batches remain.
type SendStarted struct {
	Common
	Deadline    Time         `json:"deadline"`
	Fingerprint string       `json:"fingerprint"`
	Recipients  int          `json:"recipients"` // valid and distinct, with those that are suppressed
	Batches     int          `json:"batches"`
	BatchSize   int          `json:"batch_size"`           // pinned by the first started event: the same request always makes the same batches
	Suppressed  []Suppressed `json:"suppressed,omitempty"` // of the one batch; Recipients counts them
	Secret      *SecretKeys  `json:"secret,omitempty"`     // of the one batch's call; left out when a worker announces it again
}

// Suppressed is a recipient that a batch leaves out, as mail to it bounced.
type Suppressed struct {
	Recipient int    `json:"recipient"`    // its place in the batch as it was cut, from 0
	At        *Time  `json:"at,omitempty"` // when the mail bounced, or a person said so
	Why       string `json:"why,omitempty"`
}

// What outcomes say of addresses that were left out.
const (
	ReasonOfSuppressed = "suppressed" // of an InvalidAddress that mail bounced from before
	ListedInvalid      = 100          // addresses that an outcome lists; all are counted
)

// SendOutcome is the body of mail.send.accepted, partial, failed, uncertain.
type SendOutcome struct {
	Common
	Recipients     int                 `json:"recipients"` // valid and distinct, without those that are suppressed
	Accepted       int                 `json:"accepted"`   // recipients the upstream took
	Batches        int                 `json:"batches"`
	Duplicates     int                 `json:"duplicates"`
	InvalidCount   int                 `json:"invalid_count"`
	Invalid        []InvalidAddress    `json:"invalid"` // the first of them: ListedInvalid
	Unsettled      []Unsettled         `json:"unsettled,omitempty"`
	UnsettledCount int                 `json:"unsettled_count,omitempty"`
	Reason         Reason              `json:"reason,omitempty"`
	Message        string              `json:"message,omitempty"`
	HTTPStatus     int                 `json:"http_status,omitempty"`
	Fields         map[string][]string `json:"fields,omitempty"`
	ConflictsWith  string              `json:"conflicts_with,omitempty"`
	Fingerprint    string              `json:"fingerprint"`
	AfterUnknown   bool                `json:"after_unknown,omitempty"`
}

// InvalidAddress is a recipient that was left out, and why.
type InvalidAddress struct {
	Address string `json:"address"`      // as the request has it, of a suppressed one without display name; cut to 500 characters
	Reason  string `json:"reason"`       // as ParseRecipient gives it, or ReasonOfSuppressed
	At      *Time  `json:"at,omitempty"` // when mail to a suppressed one bounced
	Why     string `json:"why,omitempty"`
}

// Unsettled is a batch that was not accepted whole.
type Unsettled struct {
	Batch      int    `json:"batch"` // from 1
	First      int    `json:"first"` // index into the recipients, from 0
	Count      int    `json:"count"`
	State      State  `json:"state"`
	Reason     Reason `json:"reason"`
	HTTPStatus int    `json:"http_status,omitempty"`
	Message    string `json:"message,omitempty"`
}

// encoded cuts the texts and the list of invalid addresses.
func (b SendOutcome) encoded() ([]byte, error) {
	b.Message, b.ConflictsWith = wire.Cut(b.Message), wire.Cut(b.ConflictsWith)
	b.Fields = cutFields(b.Fields)
	invalid := make([]InvalidAddress, min(len(b.Invalid), ListedInvalid))
	for i := range invalid {
		invalid[i] = b.Invalid[i]
		to := &invalid[i]
		to.Address, to.Reason, to.Why = wire.Cut(to.Address), wire.Cut(to.Reason), wire.Cut(to.Why)
	}
	b.Invalid = invalid
	unsettled := make([]Unsettled, len(b.Unsettled))
	for i, u := range b.Unsettled {
		u.Message = wire.Cut(u.Message)
		unsettled[i] = u
	}
	b.Unsettled = unsettled
	if b.Reason == "" {
		return wire.Marshal(b)
	}
	if b.Fields == nil {
		b.Fields = map[string][]string{}
	}
	return wire.Marshal(struct { // with a reason, these are there even when empty
		SendOutcome
		Unsettled  []Unsettled         `json:"unsettled"`
		HTTPStatus int                 `json:"http_status"`
		Fields     map[string][]string `json:"fields"`
	}{b, b.Unsettled, b.HTTPStatus, b.Fields})
}
