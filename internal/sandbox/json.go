package sandbox

import "encoding/json"

// object encodes names and values as a JSON object, in their order.
func object(pairs ...any) json.RawMessage {
	text := []byte{'{'}
	for i, part := range pairs {
		encoded, _ := json.Marshal(part) // texts, numbers and what was JSON before always encode
		text = append(append(text, encoded...), ":,"[i%2])
	}
	text[len(text)-1] = '}' // in place of the last comma
	return text
}

// members are the members of a JSON object, as they were written: the checksum covers that text, and a wrong type is reported
// by field. What counts as missing is left out.
func members(object string) map[string]string {
	var all map[string]json.RawMessage
	_ = json.Unmarshal([]byte(object), &all) // the caller knows that it is an object
	texts := make(map[string]string, len(all))
	for name, raw := range all {
		if text := string(raw); text != "null" && text != `""` {
			texts[name] = text
		}
	}
	return texts
}

// unquote returns the text of a JSON string.
func unquote(raw string) (text string) {
	_ = json.Unmarshal([]byte(raw), &text) // valid JSON, as all that is read
	return text
}
