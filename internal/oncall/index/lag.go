package index

import (
	"slices"
	"sync"
	"time"
)

// Lag is how far the index is behind the streams.
type Lag struct {
	Streams []Position `json:"streams"`
	// Behind is how many messages are not indexed yet, at most: what was removed from the
	// streams is counted too.
	Behind uint64 `json:"behind"`
	// Rebuilding is why the index began again, while it has not caught up since; "" once it has.
	Rebuilding string `json:"rebuilding,omitempty"`
	// Problem is why it cannot go on right now; "": it can. It is tried again.
	Problem string    `json:"problem,omitempty"`
	Since   time.Time `json:"since,omitzero"` // of the problem
	// Current is the time before which everything stored is in the index; zero: it has not caught up since the start.
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

// behind is how many messages of a stream are not indexed yet, at most.
func (p Position) behind() uint64 {
	if next := max(p.Indexed+1, p.First); next <= p.Last {
		return p.Last - next + 1
	}
	return 0
}

// Lag says how far behind the index is.
func (x *Index) Lag() Lag {
	x.lag.mu.Lock()
	defer x.lag.mu.Unlock()
	now := x.lag.Lag
	now.Streams = slices.Clone(now.Streams)
	for _, p := range now.Streams {
		now.Behind += p.behind()
	}
	return now
}

type lag struct {
	mu sync.Mutex
	Lag
}

// problem notes why the index does not go on, nil: it does.
func (l *lag) problem(err error) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	changed = text != l.Problem
	switch {
	case err == nil:
		l.Since = time.Time{}
	case l.Problem == "":
		l.Since = time.Now()
	}
	l.Problem = text
	return changed
}

func (l *lag) set(p Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.Streams, func(have Position) bool { return have.Stream == p.Stream }); i >= 0 {
		l.Streams[i] = p
	} else {
		l.Streams = append(l.Streams, p)
	}
}

// caughtUp notes that the index has everything that was stored before a time.
func (l *lag) caughtUp(before time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Rebuilding, l.Current = "", before
}
