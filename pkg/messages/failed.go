package messages

import (
	"encoding/json"
	"maps"
	"slices"
)

// FailedBody is the body of mandate.enroll.failed, mandate.transactions.failed
// and mail.account.failed.
type FailedBody struct {
	Common
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
	// HTTPStatus is 0 where no call was made or none was answered.
	HTTPStatus int `json:"http_status"`
	// Fields maps a field of the request to what is wrong with it.
	Fields        map[string][]string `json:"fields"`
	OrderNumber   string              `json:"order_number,omitempty"`
	ConflictsWith string              `json:"conflicts_with,omitempty"`
	Fingerprint   string              `json:"fingerprint"`
	AfterUnknown  bool                `json:"after_unknown,omitempty"`
}

// MarshalJSON cuts the texts and writes nil fields as {}.
func (b FailedBody) MarshalJSON() ([]byte, error) {
	type plain FailedBody
	b.Message, b.OrderNumber, b.ConflictsWith = Cut(b.Message), Cut(b.OrderNumber), Cut(b.ConflictsWith)
	b.Fields = cutFields(b.Fields)
	if b.Fields == nil {
		b.Fields = map[string][]string{}
	}
	return marshal(plain(b))
}

// DeferredBody is the body of mandate.enroll.deferred and mail.send.deferred:
// nothing happened upstream, and it is tried again from NotBefore on.
type DeferredBody struct {
	Common
	Reason       Reason `json:"reason"`
	Message      string `json:"message"`
	HTTPStatus   int    `json:"http_status"` // 0 without an answer
	NotBefore    Time   `json:"not_before"`
	AfterUnknown bool   `json:"after_unknown,omitempty"`
	// HeldCount is how often the request was held while others succeeded in
	// between.
	HeldCount   int    `json:"held_count,omitempty"`
	Fingerprint string `json:"fingerprint"`
}

// MarshalJSON cuts the message.
func (b DeferredBody) MarshalJSON() ([]byte, error) {
	type plain DeferredBody
	b.Message = Cut(b.Message)
	return marshal(plain(b))
}

// maxFieldsSize is how many octets of fields an event carries: it must fit one
// message.
const maxFieldsSize = 64 << 10

// cutFields copies fields with every text cut, and no more of them than fit an
// event: it may be the upstream's map as well as ours.
func cutFields(fields map[string][]string) map[string][]string {
	if fields == nil {
		return nil
	}
	out := make(map[string][]string, len(fields))
	size := 0
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		short := Cut(name)
		rules := []string{} // never null
		for _, rule := range fields[name] {
			if size < maxFieldsSize {
				rules = append(rules, Cut(rule))
				size += len(rules[len(rules)-1])
			}
		}
		if size += len(short); size > maxFieldsSize {
			break
		}
		out[short] = rules
	}
	return out
}

// listed turns a missing list into an empty one: JSON null says "unknown".
func listed(list []json.RawMessage) []json.RawMessage {
	if list == nil {
		return []json.RawMessage{}
	}
	return list
}
