package callback

import (
	"bytes"
	"crypto/hmac"
	"encoding/json"
	"maps"
	"mime"
	"net/url"
	"slices"
	"strconv"

	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// checksum says whether the field checksum of a callback is right: that of its other fields
// in the order of their names. The rule is not shown by the upstream; assumed, see
// docs/adr/0004-sandbox-assumptions.md.
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

// fieldsOf are the fields of a form or a flat JSON object; of the query where there is no
// body. It reports false for anything else.
func fieldsOf(contentType, query string, body []byte) (map[string]string, bool) {
	if len(body) == 0 {
		return formOf(query)
	}
	if media, _, _ := mime.ParseMediaType(contentType); media == "application/x-www-form-urlencoded" {
		return formOf(string(body))
	}
	var object map[string]any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&object) != nil || d.More() {
		return nil, false
	}
	fields := make(map[string]string, len(object))
	for name, value := range object {
		switch v := value.(type) {
		case nil:
			fields[name] = ""
		case string:
			fields[name] = v
		case json.Number:
			fields[name] = v.String()
		case bool:
			fields[name] = strconv.FormatBool(v)
		default:
			return nil, false
		}
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
