package index

import (
	"context"
	"time"

	"errand/pkg/messages"
)

// Resolution is how exactly times of counts are kept: since a time means since the last
// multiple of it.
const Resolution = 5 * time.Minute

// Count is how many requests, or events, are of a kind.
type Count struct {
	Kind
	Count int `json:"count"`
	// First and Last are the times of the first and the last of them.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Bar is how many requests came into a state within a span of time.
type Bar struct {
	Begin     time.Time          `json:"begin"`
	Operation messages.Operation `json:"operation"`
	State     messages.State     `json:"state"`
	Count     int                `json:"count"`
}

// Outcomes counts what became of requests: the outcomes and deferrals that were stored since
// a time, in spans that begin with it, for a chart. A step is a multiple of Resolution. Spans
// without any are left out; a request that has two outcomes, since it was reopened, is
// counted twice.
func (x *Index) Outcomes(ctx context.Context, since time.Time, step time.Duration) ([]Bar, error) {
	return nil, nil
}

// Reasons counts what did not succeed, or was deferred, since a time: events by operation,
// state and reason, the most frequent first. First and Last are as exact as Resolution.
func (x *Index) Reasons(ctx context.Context, since time.Time) ([]Count, error) { return nil, nil }

// Deliveries counts the rows of the sending log since a time by the state that they were
// seen in; one that was deferred and then delivered is counted twice.
func (x *Index) Deliveries(ctx context.Context, since time.Time) ([]Count, error) { return nil, nil }

// Counts are all requests that are in the index, by what they are now. Dead letters are
// grouped by those of them that are Dead, by Class and Reason.
func (x *Index) Counts(ctx context.Context) ([]Count, error) { return nil, nil }
