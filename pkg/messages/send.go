package messages

import (
	"encoding/json"
	"time"
)

// SendRequest is the body of mail.send.requested: the message of the email
// document, and what errand adds to it.
type SendRequest struct {
	RequestID       string
	OnUnknown       string    // report unless given
	GiveUpAt        time.Time // UTC; zero: not given
	From            string
	ReplyTo         string
	UnsubscribeLink string
	Subject         string
	Content         string
	AsHTML          int // 0 plain text, 1 HTML
	Headers         map[string]string
	// To is the list as the request has it, a JSON array of strings or a JSON
	// string with commas; Addresses reads it. It is a part of the bytes that
	// were decoded, not a copy. Nil when ToObject is given.
	To       json.RawMessage
	ToObject *ObjectRef
}

// ObjectRef names a JetStream object that holds one address a line.
type ObjectRef struct {
	Bucket string
	Name   string
	Digest string // SHA-256=<base64url of the 32 octets>
}

func DecodeSend(data []byte) (SendRequest, Meta, error) { return SendRequest{}, Meta{}, nil }
