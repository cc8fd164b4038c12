package messages

import "errand/internal/wire"

// CallbackBody is the body of mandate.callback.received: what was sent to the return_url of an enrollment. It is a hint, never the
// truth: anyone who has the URL can send one.
type CallbackBody struct {
	Common
	Method      string           `json:"method"` // GET or POST
	ContentType string           `json:"content_type,omitempty"`
	Query       string           `json:"query,omitempty"` // as it was sent, without the question mark; bytes that are not UTF-8 as %XX
	Body        string           `json:"body,omitempty"`  // as it was sent; see BodyEncoding
	Encoding    CallbackEncoding `json:"body_encoding,omitempty"`
	Bytes       int              `json:"bytes"`  // of the body
	Digest      string           `json:"digest"` // SHA-256 (hex) of method, query and body; the event's id is <request id>.<digest>
	Checksum    CallbackChecksum `json:"checksum"`
}

// encoded cuts the content type.
func (b CallbackBody) encoded() ([]byte, error) {
	b.ContentType = wire.Cut(b.ContentType)
	return wire.Marshal(b)
}

// CallbackEncoding is how the body of a callback stands in its event.
type CallbackEncoding string

// The encodings; a callback without a body has none.
const (
	CallbackText     CallbackEncoding = "text"     // as it is: valid UTF-8 without control characters
	CallbackBase64   CallbackEncoding = "base64"   // RFC 4648, section 4
	CallbackWithheld CallbackEncoding = "withheld" // left out: it would name a payer, or is too large
)

// CallbackChecksum is what the field checksum of a callback shows, by a rule that is assumed. A valid one is a hint as well.
type CallbackChecksum string

// What a checksum shows.
const (
	ChecksumValid   CallbackChecksum = "valid"
	ChecksumInvalid CallbackChecksum = "invalid"
	ChecksumAbsent  CallbackChecksum = "absent"
	ChecksumUnknown CallbackChecksum = "unknown" // no secret is known, or the body is neither a flat object nor a form
)
