package index

import "time"

// Lag is how far the index is behind the streams.
type Lag struct {
	Streams []Position `json:"streams"`
	// Behind is how many messages are not indexed yet, at most: what was removed from the
	// streams is counted too.
	Behind uint64 `json:"behind"`
	// Rebuilding is why the index began again, while it has not caught up since; "": it has.
	Rebuilding string `json:"rebuilding,omitempty"`
	// Problem is why it cannot go on right now; "": it can. It is tried again.
	Problem string    `json:"problem,omitempty"`
	Since   time.Time `json:"since,omitzero"` // of the problem
	// Current is when the index last knew that it had everything; zero: not since the start.
	Current time.Time `json:"current,omitzero"`
}

// Position is how far a stream is indexed.
type Position struct {
	Stream  string    `json:"stream"`
	Created time.Time `json:"created"` // when the stream was made
	First   uint64    `json:"first"`   // sequence of the first message that it keeps
	Last    uint64    `json:"last"`    // of its last one
	Indexed uint64    `json:"indexed"` // of the last one that is indexed
	At      time.Time `json:"at"`      // of that one
}

// Lag says how far behind the index is.
func (x *Index) Lag() Lag { return Lag{} }
