package messages

// ReopenedBody is the body of mandate.enroll.reopened and mail.send.reopened:
// the request had an outcome and is run again, since its contents were corrected
// or a person said so. It is never abridged: what is run depends on it.
type ReopenedBody struct {
	Common
	By  string       `json:"by"` // ByCorrection, or who did it
	Why string       `json:"why,omitempty"`
	Was PriorOutcome `json:"was"`
	// AfterUnknown: a call of unknown fate was made before.
	AfterUnknown bool `json:"after_unknown,omitempty"`
	// Batches are those of a message that may be sent, from 1; none: all that
	// were not accepted and are not of unknown fate.
	Batches []int `json:"batches,omitempty"`
	// BatchSize is how a message was cut into batches, so that it is cut so again though the event that said so is gone.
	BatchSize int `json:"batch_size,omitempty"`
	// Fingerprint identifies the contents that run from now on.
	Fingerprint string `json:"fingerprint"`
}

// PriorOutcome is the outcome that a request had before it was reopened or erased.
type PriorOutcome struct {
	State  State  `json:"state"`            // of a reopened one failed, uncertain or partial
	Reason Reason `json:"reason,omitempty"` // none for partial
}

// MaxBatch is how many recipients a batch has at most: the service takes no more in one call.
const MaxBatch = 1000

// ByCorrection is who reopened a request that was published again with other
// contents.
const ByCorrection = "correction"

// MarshalJSON cuts the texts.
func (b ReopenedBody) MarshalJSON() ([]byte, error) {
	type plain ReopenedBody
	b.By, b.Why = Cut(b.By), Cut(b.Why)
	return marshal(plain(b))
}
