package messages

import (
	"fmt"
	"time"
)

// maxGiveUp is how long after its publishing a request may be tried at most.
const maxGiveUp = 7 * 24 * time.Hour

// MaxGiveUp is how long after its publishing a request may be tried where events
// are kept so long, 0 for ever: at most 7 days, and a day less than the events
// are kept, or half of that time where it is two days or less. An event that is
// gone no longer says that a call was made.
func MaxGiveUp(kept time.Duration) time.Duration {
	if kept <= 0 {
		return maxGiveUp
	}
	return min(maxGiveUp, max(kept-24*time.Hour, kept/2))
}

// CheckGiveUpAt holds the give_up_at of a request against its bound, which no
// decoder knows: it takes the time at which the request was published, and how
// long events are kept. The error is an *Invalid; a zero give_up_at was not
// given and has none.
func CheckGiveUpAt(at, published time.Time, kept time.Duration) error {
	longest := MaxGiveUp(kept)
	last := published.Add(longest)
	if !at.After(last) {
		return nil
	}
	return &Invalid{Fields: map[string][]string{"give_up_at": {fmt.Sprintf(
		"must be at most %g hours after the request was published: not after %s", longest.Hours(), Time{last})}}}
}
