package history

import (
	"encoding/json"

	"errand/internal/wire"
	"errand/pkg/messages"
)

// Facts are what the bodies of events say under the names that they share, whatever their type. A body
// that does not have a field leaves it zero.
type Facts struct {
	messages.Common
	Fingerprint   string                `json:"fingerprint"`
	Deadline      messages.Time         `json:"deadline"`   // of the call; in deferred only after a call of unknown fate
	NotBefore     messages.Time         `json:"not_before"` // of deferred
	OrderNumber   string                `json:"order_number"`
	Outcome       messages.State        `json:"outcome"` // of resolved
	Reason        messages.Reason       `json:"reason"`
	Message       string                `json:"message"`
	HTTPStatus    int                   `json:"http_status"`
	Fields        map[string][]string   `json:"fields"`
	ConflictsWith string                `json:"conflicts_with"`
	By            string                `json:"by"` // who reopened, cancelled or resolved it
	Why           string                `json:"why"`
	Was           messages.PriorOutcome `json:"was"`           // of reopened
	AfterUnknown  bool                  `json:"after_unknown"` // a call of unknown fate was made
	HeldCount     int                   `json:"held_count"`    // how often it met held while others succeeded
	Evidence      json.RawMessage       `json:"evidence"`
	Batch         int                   `json:"batch"`
	Batches       count                 `json:"batches"`
	Recipients    int                   `json:"recipients"`
	BatchSize     int                   `json:"batch_size"` // of started and reopened
	Accepted      int                   `json:"accepted"`
	InvalidCount  int                   `json:"invalid_count"` // addresses that were left out
	Suppressed    []messages.Suppressed `json:"suppressed"`    // of a batch
}

// count is a number; a list, as reopened has of its batches, leaves it 0.
type count int

func (c *count) UnmarshalJSON(data []byte) error {
	if data[0] != '-' && !wire.IsDigit(data[0]) {
		return nil
	}
	return json.Unmarshal(data, (*int)(c))
}

// ReadFacts reads the body of any event or request. Fields of another type than these stay zero, and the error
// says that there are some; it quotes nothing of the body.
func ReadFacts(body []byte) (Facts, error) {
	var f Facts
	err := messages.DecodeEvent(body, &f)
	return f, err
}
