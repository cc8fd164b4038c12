package messages

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
)

// The events that are stored before each call, and an enrollment's success, are appended
// rather than encoded by reflection; what they say is the same to the byte.

// MarshalJSON writes what encoding/json would.
func (b EnrollStarted) MarshalJSON() ([]byte, error) {
	if b.MaxFrequency != "" && b.MaxFrequency != "9" { // its default
		type plain EnrollStarted
		return marshal(plain(b))
	}
	j := b.appendTo(make([]byte, 0, 384+len(b.OrderNumber)))
	j = b.Deadline.append(append(j, `,"deadline":"`...))
	j = appendMember(append(j, '"'), "fingerprint", b.Fingerprint)
	j = appendMember(j, "order_number", b.OrderNumber)
	if b.MaxFrequency != "" {
		j = append(j, `,"max_frequency":9`...)
	}
	if b.EffectiveDate != "" {
		j = appendMember(j, "effective_date", b.EffectiveDate)
	}
	if b.ReturnURL != "" {
		j = appendMember(j, "return_url", b.ReturnURL)
	}
	if b.AfterUnknown {
		j = append(j, `,"after_unknown":true`...)
	}
	return append(j, '}'), nil
}

// MarshalJSON writes what encoding/json would.
func (b EnrollSucceeded) MarshalJSON() ([]byte, error) {
	j := b.appendTo(make([]byte, 0, 384+len(b.OrderNumber)+len(b.Enrollment)))
	j = appendMember(j, "api_version", b.APIVersion)
	j = appendMember(j, "order_number", b.OrderNumber)
	j = append(j, `,"enrollment":`...)
	if b.Enrollment == nil {
		j = append(j, "null"...)
	} else {
		whole := bytes.NewBuffer(j)
		if err := json.Compact(whole, b.Enrollment); err != nil {
			return nil, err
		}
		j = whole.Bytes()
	}
	if b.LinkExpiredAt != "" {
		j = appendMember(j, "link_expired_at", b.LinkExpiredAt)
	}
	if b.AfterUnknown {
		j = append(j, `,"after_unknown":true`...)
	}
	return append(appendMember(j, "fingerprint", b.Fingerprint), '}'), nil
}

// MarshalJSON writes what encoding/json would.
func (b SendStarted) MarshalJSON() ([]byte, error) {
	j := b.appendTo(make([]byte, 0, 384))
	j = b.Deadline.append(append(j, `,"deadline":"`...))
	j = appendMember(append(j, '"'), "fingerprint", b.Fingerprint)
	j = strconv.AppendInt(append(j, `,"recipients":`...), int64(b.Recipients), 10)
	j = strconv.AppendInt(append(j, `,"batches":`...), int64(b.Batches), 10)
	j = strconv.AppendInt(append(j, `,"batch_size":`...), int64(b.BatchSize), 10)
	return append(j, '}'), nil
}

// MarshalJSON writes what encoding/json would.
func (b SentBody) MarshalJSON() ([]byte, error) {
	size := 384 + base64.StdEncoding.EncodedLen(len(b.Keys))
	if b.Secret != nil {
		size += base64.StdEncoding.EncodedLen(len(b.Secret.Keys))
	}
	j := b.appendTo(make([]byte, 0, size))
	j = strconv.AppendInt(append(j, `,"batch":`...), int64(b.Batch), 10)
	j = strconv.AppendInt(append(j, `,"first":`...), int64(b.First), 10)
	j = strconv.AppendInt(append(j, `,"count":`...), int64(b.Count), 10)
	if b.From != 0 {
		j = append(b.From.append(append(j, `,"from":"`...)), '"')
	}
	j = b.Begin.append(append(j, `,"begin":"`...))
	j = append(b.Until.append(append(j, `","until":"`...)), '"')
	if len(b.Keys) > 0 {
		j = appendKeys(j, "keys", b.Keys)
	}
	if b.Secret != nil {
		j = appendString(append(j, `,"secret":{"id":`...), b.Secret.ID)
		j = append(appendKeys(j, "keys", b.Secret.Keys), '}')
	}
	return append(j, '}'), nil
}

// MarshalJSON writes what encoding/json would, where the entry is valid JSON: there are many.
func (b DeliveryBody) MarshalJSON() ([]byte, error) {
	j := b.appendTo(make([]byte, 0, 384+len(b.Entry)))
	j = appendMember(j, "event_id", b.EventID)
	j = append(j, `,"entry":`...)
	switch {
	case len(b.Entry) == 0:
		j = append(j, "null"...)
	case spaced(b.Entry):
		whole := bytes.NewBuffer(j)
		if err := json.Compact(whole, b.Entry); err != nil {
			return nil, err
		}
		j = whole.Bytes()
	default:
		j = append(j, b.Entry...)
	}
	j = strconv.AppendInt(append(j, `,"smtp":{"code":`...), int64(b.SMTP.Code), 10)
	j = appendMember(j, "enhanced", Cut(b.SMTP.Enhanced))
	j = appendString(append(j, `},"match":{"confidence":`...), string(b.Match.Confidence))
	if b.Match.Batch != 0 {
		j = strconv.AppendInt(append(j, `,"batch":`...), int64(b.Match.Batch), 10)
	}
	for i, id := range b.Match.Candidates {
		if i == 0 {
			j = append(j, `,"candidates":[`...)
		} else {
			j = append(j, ',')
		}
		j = appendString(j, id)
	}
	if len(b.Match.Candidates) > 0 {
		j = append(j, ']')
	}
	return append(j, "}}"...), nil
}

// spaced reports whether there is space between the tokens of valid JSON.
func spaced(row []byte) bool {
	quoted := false
	for i := 0; i < len(row); i++ {
		switch c := row[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\':
			i++
		case c <= ' ' && !quoted:
			return true
		}
	}
	return false
}

// appendTo appends the beginning of a body.
func (c Common) appendTo(j []byte) []byte {
	j = appendString(append(j, `{"request_id":`...), c.RequestID)
	j = c.At.append(append(j, `,"at":"`...))
	j = strconv.AppendInt(append(j, `","attempt":`...), int64(c.Attempt), 10)
	if c.Abridged {
		j = append(j, `,"abridged":true`...)
	}
	return j
}

// appendMember appends a comma and a member of an object.
func appendMember(j []byte, name, text string) []byte {
	j = append(append(append(j, `,"`...), name...), `":`...)
	return appendString(j, text)
}

// appendKeys appends a comma and a member of an object that is a list of keys.
func appendKeys(j []byte, name string, keys []byte) []byte {
	j = append(append(append(j, `,"`...), name...), `":`...)
	if keys == nil {
		return append(j, "null"...)
	}
	return append(base64.StdEncoding.AppendEncode(append(j, '"'), keys), '"')
}

// appendString appends a JSON string as marshal writes it.
func appendString(j []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := marshal(text) // a string always encodes
			return append(j, quoted...)
		}
	}
	return append(append(append(j, '"'), text...), '"')
}
