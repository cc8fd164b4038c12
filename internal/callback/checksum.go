package callback

import (
	"crypto/hmac"
	"encoding/json"
	"maps"
	"mime"
	"net/url"
	"slices"
	"unicode/utf8"

	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// checksum says whether the field checksum of a callback is right: it covers the other fields in the order of their
// names. The rule is not shown by the upstream; assumed, see docs/why/adr/0004-sandbox-assumptions.md.
func checksum(secret clients.Secret, contentType, query string, body []byte) messages.CallbackChecksum {
	fields, ok := fieldsOf(contentType, query, body)
	given, there := fields["checksum"]
	switch {
	case !ok:
		return messages.ChecksumUnknown
	case !there:
		return messages.ChecksumAbsent
	case secret.Empty():
		return messages.ChecksumUnknown
	}
	delete(fields, "checksum")
	var values []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		values = append(values, fields[name])
	}
	if hmac.Equal([]byte(given), []byte(mandate.Sign(secret, values...))) {
		return messages.ChecksumValid
	}
	return messages.ChecksumInvalid
}

// fieldsOf returns the fields of a form, a flat JSON object or, without a body, the query; false for anything else.
func fieldsOf(contentType, query string, body []byte) (map[string]string, bool) {
	if len(body) == 0 {
		return formOf(query)
	}
	if !utf8.Valid(body) {
		return nil, false
	}
	if media, _, _ := mime.ParseMediaType(contentType); media == "application/x-www-form-urlencoded" {
		return formOf(string(body))
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) != nil || object == nil {
		return nil, false
	}
	fields := make(map[string]string, len(object))
	for name, value := range object {
		var text string // stays empty for null
		switch value[0] {
		case '{', '[':
			return nil, false
		case '"', 'n':
			_ = json.Unmarshal(value, &text) // it was read before
		default: // a number or a boolean, as it was sent
			text = string(value)
		}
		fields[name] = text
	}
	return fields, true
}

func formOf(text string) (map[string]string, bool) {
	form, err := url.ParseQuery(text)
	fields := make(map[string]string, len(form))
	for name, values := range form {
		if len(values) > 1 {
			return nil, false
		}
		fields[name] = values[0]
	}
	return fields, err == nil
}
