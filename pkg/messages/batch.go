package messages

import "errand/internal/wire"

// MaxBatch is how many recipients the service takes in one call.
const MaxBatch = 1000

// BatchBody is the body of mail.batch.<state>.
type BatchBody struct {
	Common
	Batch        int          `json:"batch"` // from 1
	First        int          `json:"first"` // index into the recipients, from 0, with those that are suppressed
	Count        int          `json:"count"`
	Deadline     *Time        `json:"deadline,omitempty"`   // started only: of the call
	NotBefore    *Time        `json:"not_before,omitempty"` // deferred only
	Accepted     *int         `json:"accepted,omitempty"`   // accepted only, there even when 0
	Reason       Reason       `json:"reason,omitempty"`
	HTTPStatus   int          `json:"http_status,omitempty"`
	Message      string       `json:"message,omitempty"`
	AfterUnknown bool         `json:"after_unknown,omitempty"` // a call of unknown fate was made before
	HeldCount    int          `json:"held_count,omitempty"`    // how often it was held while others succeeded in between
	Suppressed   []Suppressed `json:"suppressed,omitempty"`    // that it leaves out and Count does not count
	Secret       *SecretKeys  `json:"secret,omitempty"`        // of a started batch; left out when a worker announces it again
}

// encoded cuts the message.
func (b BatchBody) encoded() ([]byte, error) {
	b.Message = wire.Cut(b.Message)
	return wire.Marshal(b)
}
