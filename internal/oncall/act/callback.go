package act

import (
	"encoding/base64"
	"encoding/json"
	"net/url"

	"errand/pkg/messages"
)

// namesInCallback reports whether a callback has a word, in lower case, as a value of what was
// sent: a text, JSON, or a form, in its body or its query.
func namesInCallback(event []byte, word string) bool {
	var b messages.CallbackBody
	if messages.DecodeEvent(event, &b) != nil {
		return false
	}
	sent := []byte(b.Body)
	if b.Encoding == messages.CallbackBase64 {
		sent, _ = base64.StdEncoding.DecodeString(b.Body) // what cannot be read names nobody
	}
	if has(string(sent), word) || names(sent, word) {
		return true
	}
	for _, text := range []string{b.Query, string(sent)} {
		form, _ := url.ParseQuery(text) // what is no form has no fields, or strange ones
		for _, values := range form {
			for _, value := range values {
				if has(value, word) || json.Valid([]byte(value)) && names([]byte(value), word) {
					return true
				}
			}
		}
	}
	return false
}
