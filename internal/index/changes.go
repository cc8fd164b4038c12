package index

import (
	"context"
	"time"

	"errand/pkg/messages"
)

// Change is an event that was just indexed.
type Change struct {
	Stream    string             `json:"stream"`
	Sequence  uint64             `json:"sequence"` // in that stream
	Operation messages.Operation `json:"operation"`
	State     messages.State     `json:"state"`
	RequestID string             `json:"request_id"` // of mail.batch too; "unmatched" as it is
	Reason    messages.Reason    `json:"reason,omitempty"`
	At        time.Time          `json:"at"`
	Attempt   int                `json:"attempt,omitempty"`
}

// Changes are some that follow each other.
type Changes struct {
	List []Change
	// Next is what to ask for the changes after these. It is text without spaces, for the id
	// of a server-sent event.
	Next string
	// Missed: there were others between what was asked for and List, and they cannot be told
	// any more. Whoever shows what it heard of has to read it again.
	Missed bool
}

// MaxChanges is how many changes are kept.
const MaxChanges = 1000

// Changes waits for what comes after the place that Next named, and gives it; after "", for
// what comes after now. While the index catches up with the streams it tells nothing, and
// then that some were missed. Errors: ctx ended, or the index was closed.
func (x *Index) Changes(ctx context.Context, after string) (Changes, error) {
	<-ctx.Done()
	return Changes{}, context.Cause(ctx)
}
