package index

import (
	"context"
	"time"

	"errand/pkg/messages"
)

// Filter says which requests are asked for. What is empty does not limit.
type Filter struct {
	Operations []messages.Operation
	States     []messages.State
	Reasons    []messages.Reason
	Classes    []Class
	Dead       bool      // those alone that have a dead letter
	Since      time.Time // of the state that they are in
	Until      time.Time // before it
	Before     Cursor    // where the page begins: Page.Next of the one before it
	Limit      int       // how many at most; 0: 50
}

// Cursor is a place in a list, "" its beginning. It is text for a link, and names nobody.
type Cursor string

// Row is a request as it is now.
type Row struct {
	Kind
	RequestID  string    `json:"request_id"`
	HTTPStatus int       `json:"http_status,omitempty"`
	Attempt    int       `json:"attempt,omitempty"`
	Began      time.Time `json:"began"`                 // of its first event that was seen
	At         time.Time `json:"at"`                    // of the state that it is in
	Sequence   uint64    `json:"sequence"`              // of that event, in the stream of the operation's events
	DeadLetter uint64    `json:"dead_letter,omitempty"` // sequence of the last one, 0: there is none
}

// Page is part of a list.
type Page struct {
	Rows []Row
	Next Cursor // of the page after this one; "": this is the last
}

// Requests gives a page of requests, the newest state first.
func (x *Index) Requests(ctx context.Context, f Filter) (Page, error) { return Page{}, nil }

// Request gives the requests that have an id, one for each operation at most.
func (x *Index) Request(ctx context.Context, id string) ([]Row, error) { return nil, nil }

// Oldest gives open requests, those first that have been in their state for longest: started,
// deferred, reopened. Those that wait in a queue and have no event are not in the index.
func (x *Index) Oldest(ctx context.Context, limit int) ([]Row, error) { return nil, nil }
