// Package index is what the web console looks requests up in: a projection of the streams in SQLite. It is never a second
// truth: it can be thrown away at any time, and nothing but pages for people depends on it.
//
//	streams ── follow.go ──> gather.go: what messages say ── write.go: one transaction, rows and position ──> store.go: SQLite
//	         └ expire.go: what they no longer keep                                                              │
//	    pages <── requests.go: lists; find.go: by what requests name; kind.go: how many of which <────┘
//
// A row holds an id, a state, a reason, times and sequences. Order numbers and addresses are there as keyed hashes alone
// (hash.go). A request that is in its queue and has no event yet is not in it: internal/oncall/inspect reads the queues.
//
// The streams are read by direct gets, with the rights of people. It begins again from their first message when they are not
// those that it was made of, when another version or key made its file, and when the file is damaged. Lag says how far it is.
package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/keyfile"
	"errand/pkg/messages"
)

// Options say where an index is kept.
type Options struct {
	// Dir is a directory for the index alone, made if it is not there.
	Dir string
	// Discarded returns the request and the sequence of a dead letter that a person discarded by an act; the operation "" means none.
	Discarded func(act bus.Message) (op messages.Operation, id string, letter uint64)
	Log       zerolog.Logger
}

// Index is an open index. Its methods may be called at the same time, and while it follows.
type Index struct {
	Options
	hash    *hasher // of the follower
	lock    *os.File
	version atomic.Uint64
	lag     lag
	broken  atomic.Pointer[error] // what a question met

	mu    sync.RWMutex
	store *store // nil when it is closed, or could not be made again
}

// ErrInUse says that another process has the index open.
var ErrInUse = errors.New("it is in use by another process: give each console a directory of its own")

// errClosed says that there is nothing to ask.
var errClosed = errors.New("index: it is closed")

// Open opens the index in a directory; one that cannot be used begins again, which Lag says. Errors: ErrInUse, or what is
// wrong with the directory, the key or the disk.
func Open(o Options) (*Index, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	lock, err := lockDir(o.Dir)
	if err != nil {
		return nil, err
	}
	x := &Index{Options: o, lock: lock}
	if err := x.open(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return x, nil
}

func (x *Index) open() error {
	key, err := keyfile.Made(filepath.Join(x.Dir, keyFile), keySize)
	if err != nil {
		return fmt.Errorf("index: its key: %w", err)
	}
	x.hash = newHasher(key)
	x.store, err = open(x.Dir, x.hash.check())
	if errors.Is(err, errUnusable) || damaged(err) {
		return x.startOver(err.Error())
	}
	if err == nil {
		if unread := x.store.state(&x.lag); unread != nil {
			return x.startOver(unread.Error())
		}
	}
	return err
}

// startOver throws the file away and makes another.
func (x *Index) startOver(why string) (err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Log.Warn().Str("why", why).Msg("index: begins again from the streams")
	if x.store != nil {
		_ = x.store.close() // it is thrown away
		x.store = nil
	}
	x.broken.Store(nil)
	if err := remove(x.Dir); err != nil {
		return err
	}
	if x.store, err = open(x.Dir, x.hash.check()); err != nil {
		return err
	}
	if _, err := x.store.write.ExecContext(background, "INSERT OR REPLACE INTO meta VALUES ('rebuilding', ?)", why); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	return x.store.state(&x.lag)
}

// Close closes the index after Follow, and what is being asked of it, have ended.
func (x *Index) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var err error
	if x.store != nil {
		err = x.store.close()
		x.store = nil
	}
	return errors.Join(err, x.lock.Close())
}

// Version grows whenever the index has something new. It begins again with each process.
func (x *Index) Version() uint64 { return x.version.Load() }

// question sees one state of the index: what is written meanwhile belongs to the next one.
type question struct {
	ctx   context.Context
	tx    *sql.Tx
	kinds map[int64]Count // by number
}

func (x *Index) ask(ctx context.Context, run func(q question) error) error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.store == nil {
		return errClosed
	}
	tx, err := x.store.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err == nil {
		q := question{ctx: ctx, tx: tx}
		if q.kinds, err = kindsOf(tx.QueryContext(ctx, allKinds)); err == nil {
			err = run(q)
		}
		_ = tx.Rollback() // nothing was written
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil: // it ended the transaction too
		err = ctx.Err()
	case damaged(err):
		x.broken.Store(&err)
	}
	return fmt.Errorf("index: %w", err)
}
