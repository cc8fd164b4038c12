package history

import (
	"encoding/json"
	"slices"
)

// impersonal are the members of an enrollment response and of a transaction record that
// say nothing of the payer.
var impersonal = []string{
	"url", "order_number", "amount", "currency", "frequency_mode", "frequency_mode_label", "max_frequency",
	"effective_date", "expiry_date", "link_expired_at", "created_at", "transaction_type", "status",
}

// WithoutPayer returns what an event may hold of an enrollment response or of a transaction
// record where events are to hold no payer: link, order number, amount, dates, frequency
// and state, of the mandate within a record too. A member that is not a plain value is left
// out, since there may be anything in it, and so is a record that is not an object.
func WithoutPayer(record json.RawMessage) json.RawMessage {
	kept := withoutPayer(record)
	if mandate := withoutPayer(membersOf(record)["mandate"]); len(mandate) > 0 {
		kept["mandate"], _ = json.Marshal(mandate) // what was decoded encodes
	}
	text, _ := json.Marshal(kept)
	return text
}

// WithoutPayers is WithoutPayer of each record.
func WithoutPayers(records []json.RawMessage) []json.RawMessage {
	kept := make([]json.RawMessage, len(records))
	for i, record := range records {
		kept[i] = WithoutPayer(record)
	}
	return kept
}

func withoutPayer(object json.RawMessage) map[string]json.RawMessage {
	members := membersOf(object)
	kept := make(map[string]json.RawMessage, len(members))
	for name, value := range members {
		if slices.Contains(impersonal, name) && value[0] != '{' && value[0] != '[' {
			kept[name] = value
		}
	}
	return kept
}

// membersOf are the members of an object; anything else has none.
func membersOf(object json.RawMessage) (members map[string]json.RawMessage) {
	_ = json.Unmarshal(object, &members)
	return members
}
