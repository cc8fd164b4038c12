package clients

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// What is kept of one failure, so that an event stays small whatever the upstream says.
const (
	maxFields   = 50
	maxMessages = 10 // a field
)

// ParseError reads a failure's body: texts under message, error or errors, and messages by field if one of these is an object.
// A plain text is taken as it is; HTML is not. Texts are not cut here: secrets must be found before that. Not shown by the
// upstreams; assumed.
func ParseError(body []byte) (message string, fields map[string][]string) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(body, &top); err != nil {
		body = bytes.TrimSpace(body)
		if json.Valid(body) {
			return strings.Join(texts(body), "; "), nil
		}
		if len(body) > 0 && body[0] != '<' && body[0] != '{' {
			message = string(body)
		}
		return message, nil
	}
	for _, key := range []string{"message", "error", "errors"} {
		var object map[string]json.RawMessage
		if json.Unmarshal(top[key], &object) == nil {
			fields = addFields(fields, object)
		} else if message == "" {
			message = strings.Join(texts(top[key]), "; ")
		}
	}
	return message, fields
}

func addFields(fields map[string][]string, object map[string]json.RawMessage) map[string][]string {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		messages := texts(object[name])
		if len(messages) == 0 {
			messages = []string{string(object[name])}
		}
		if fields == nil {
			fields = map[string][]string{}
		}
		if _, there := fields[name]; there || len(fields) < maxFields {
			fields[name] = messages
		}
	}
	return fields
}

// texts reads a JSON text or a list with texts in it.
func texts(raw json.RawMessage) []string {
	var one string
	if json.Unmarshal(raw, &one) == nil && one != "" {
		return []string{one}
	}
	var list []any
	_ = json.Unmarshal(raw, &list) // anything but a list has no texts
	var all []string
	for _, element := range list {
		if text, ok := element.(string); ok && len(all) < maxMessages {
			all = append(all, text)
		}
	}
	return all
}
