package messages

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Two events of each enrollment are appended rather than encoded by reflection; what they say
// is the same to the byte.

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
	if b.AfterUnknown {
		j = append(j, `,"after_unknown":true`...)
	}
	if b.Unknown != "" {
		j = appendMember(j, "unknown", string(b.Unknown))
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
	if b.AfterUnknown {
		j = append(j, `,"after_unknown":true`...)
	}
	return append(appendMember(j, "fingerprint", b.Fingerprint), '}'), nil
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
