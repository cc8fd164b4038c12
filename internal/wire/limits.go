package wire

import (
	"time"
)

// Limits on what a request may hold, in characters. They are far beyond any use,
// and keep a faulty producer from filling the events with its texts. A content
// and a recipient list are limited by the message alone.
const (
	MaxLine        = 1000    // a single-line text without a limit of its own
	MaxOrderNumber = 255     // order_number
	MaxURL         = 4096    // a URL
	MaxMetadata    = 1 << 16 // metadata
	MaxDigits      = 100     // payer_id, payer_telephone_number
	MaxHeaders     = 100     // the number of headers
	MaxHeaderName  = 76      // the name of a header
	MaxHeaderValue = 8000    // the value of a header
)

// maxGiveUp is how long a request may be tried at most.
const maxGiveUp = 7 * 24 * time.Hour

// MaxNotBefore is how far ahead a request may be scheduled at most.
const MaxNotBefore = 30 * 24 * time.Hour

// MaxGiveUp is how long after its publishing, or after its not_before, a request
// may be tried where events are kept so long, 0 for ever: at most 7 days, and a
// day less than the events are kept, or half of that time where it is two days or
// less. An event that is gone no longer says that a call was made.
func MaxGiveUp(kept time.Duration) time.Duration { return Bounded(maxGiveUp, kept) }

// Bounded is most, or less where events are kept for a shorter time; 0 means for ever.
func Bounded(most, kept time.Duration) time.Duration {
	if kept <= 0 {
		return most
	}
	return min(most, max(kept-24*time.Hour, kept/2))
}
