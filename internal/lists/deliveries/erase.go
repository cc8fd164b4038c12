package deliveries

import (
	"encoding/hex"
	"encoding/json"

	"errand/pkg/clients/mail"
)

// IDsOf returns the ids of all events that there can be about a row, which is given as in its event. Events that are
// erased must leave these ids behind, or the row is published again. It returns nil if the row cannot be read.
func IDsOf(entry json.RawMessage) (ids []string) {
	var row struct {
		EnvelopeID string `json:"envelope_id"`
		To         string `json:"to"`
	}
	if json.Unmarshal(entry, &row) != nil || row.EnvelopeID == "" {
		return nil
	}
	for _, id := range idsOf(idOf(mail.Entry{EnvelopeID: row.EnvelopeID, To: row.To}, unseen), unseen) {
		ids = append(ids, hex.EncodeToString(id[:]))
	}
	return ids
}

// erase forgets what is to be reported of a request. Rows of its erased recipients are published without details.
func (l *Log) erase(id string) {
	if r := l.calls.known(id); r != nil {
		r.erased = true
	}
	delete(l.open, id)
}
