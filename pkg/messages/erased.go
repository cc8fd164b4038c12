package messages

// ErasedBody is the body of an event that stays when what is stored of a person was
// erased: of a request, mandate.enroll.erased and so on, and of each of its batches, so
// that the id is not run again; of a row of the sending log, mail.delivery.erased, or a state of a
// record of the transaction list, so that it is not published again. It says nothing of the person.
type ErasedBody struct {
	Common
	// Was is the outcome that the request had; nil for batches and rows.
	Was *PriorOutcome `json:"was,omitempty"`
	// EventID identifies the event about the erased row.
	EventID string `json:"event_id,omitempty"`
}
