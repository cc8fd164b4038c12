// Package index is what the web console looks requests up in: a projection of the streams
// in SQLite. It is never a second truth. What it says was read from the streams a moment
// ago, it can be thrown away at any time, and nothing but pages for people depends on it.
//
//	streams ── Follow ──> messages ── one transaction: rows and position ──> SQLite
//	                                                                          │
//	      pages <── Requests, Find, Outcomes, Reasons, Counts, Oldest, Deliveries
//	      live  <── Changes (in memory)          how far it is <── Lag
//
// A row holds an id, a state, a reason, times and sequences. Order numbers and addresses
// are there as keyed hashes alone: who has the file and not the key learns none. What has
// no event yet, a request in its queue, is not in it: internal/inspect reads the queues.
//
// The streams are read by direct gets: that leaves nothing behind in NATS, and needs the
// rights that people have to read them with errand, to the streams of events and to the
// dead letters: $JS.API.DIRECT.GET.<stream> and $JS.API.STREAM.INFO.<stream>.
//
// It begins again, from the first message that the streams keep, when the streams are not
// those that it was made of: one was made again, or lost messages that it had; when its
// file was made by another version or with another key; and when the file is damaged.
//
//	index.go    opening and closing
//	kind.go     what requests have in common: operation, state, reason; and what may be done
//	requests.go lists of requests, page by page
//	find.go     requests by what they name
//	counts.go   how many, by hour, reason and state
//	changes.go  what just happened
//	lag.go      how far behind it is
package index

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/pkg/messages"
)

// Options say where an index is kept.
type Options struct {
	// Dir is a directory of its own. It is made if it is not there.
	Dir string
	// Key is what hashes are made with, at least 32 bytes; without one it is read from the
	// file key in Dir, which is made if it is not there.
	Key []byte
	// Secrets are those that mail-consumer makes keys of recipients with (RECIPIENT_KEY).
	// Without the right one a message is not found by its recipients.
	Secrets []*messages.RecipientSecret
	Log     zerolog.Logger
}

// Index is an open index. Its methods may be called at the same time, and while it follows.
type Index struct{}

// ErrInUse says that another process has the index open.
var ErrInUse = errors.New("the index is in use by another process")

// Open opens the index in a directory. One that cannot be used, as another version of the
// program made it or its file is damaged, is thrown away, which Lag tells. Errors: ErrInUse,
// or what is wrong with the directory, the key or the disk.
func Open(o Options) (*Index, error) { return nil, errors.New("index: not built yet") }

// Close closes the index. Whatever is being asked of it ends with an error.
func (x *Index) Close() error { return nil }

// Follow reads the streams until ctx ends, and outlives whatever else happens: while NATS
// cannot be read or the disk takes nothing, it tries again, and Lag says why it waits.
// It may be called once.
func (x *Index) Follow(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) { <-ctx.Done() }
