package sweep

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"time"
)

// ID names one state of one row, in every process and in the event about that state: its first half the row, its second
// half the state of that row.
type ID [16]byte

// Key names the row, whatever its state.
func (id ID) Key() uint64 { return binary.BigEndian.Uint64(id[:]) }

// State names the state, and hardly any other's.
func (id ID) State() uint64 { return binary.BigEndian.Uint64(id[8:]) }

// ParseID reads the id of a state as it is written in events: 32 hex digits.
func ParseID(text string) (id ID, ok bool) {
	if len(text) != hex.EncodedLen(len(id)) {
		return ID{}, false
	}
	_, err := hex.Decode(id[:], []byte(text))
	return id, err == nil
}

// Row is a row of the list in the state that a page shows.
type Row[T any] struct {
	ID    ID
	At    time.Time // when the row was made, as the list says; zero if unknown
	Final bool      // its state will not change
	// Before is the state that it was in before, of a row that may change at any age; zero if that is not known.
	Before ID
	Item   T
}

// Page is one page of the list.
type Page[T any] struct {
	Rows  []Row[T]
	Total int // rows of the whole list, as the page says; 0 if it does not
}

// List reads pages.
type List[T any] interface {
	// Page reads a page, from 1, of about limit rows, which the caller then owns. Errors are pkg/clients'.
	Page(ctx context.Context, number, limit int) (Page[T], error)
}

// Sink publishes rows as events, under a leadership: while one sweeper has it, no other one's events are stored. No two
// calls overlap, nor do the waits for what is under way.
type Sink[T any] interface {
	Leadership
	// Learn calls take with the states that any sweeper published since the last call; the first time all that are kept. It goes
	// up to the leadership if this sweeper has it, which may publish from then on, else up to what is stored by now. It may
	// return ErrReset.
	Learn(ctx context.Context, take func(Stored)) error
	// Reset is called after ErrReset, before anything else: what was learned is forgotten.
	Reset()
	// Publish begins to store an event for each row, and returns a function that waits for that. The waits are called in order, and
	// before any other method but Publish; ctx must last as long. With an error the wait returns how many, from the first, are
	// certainly stored. ErrBehind means that another sweeper may lead, or that some may be stored: call Lead and Learn. After any
	// other error but ErrReset the same call would fail again.
	Publish(ctx context.Context, rows []Row[T]) (wait func() (stored int, err error))
	// Swept is called after each sweep that came through, with the time up to which all rows are published. Errors: as for
	// Publish.
	Swept(ctx context.Context, completeThrough time.Time) error
}

// Done is a wait for what has ended.
func Done(stored int, err error) (wait func() (int, error)) {
	return func() (int, error) { return stored, err }
}

// Leadership is the part of a Sink that is the same for every list: who leads, and how far the list is published.
type Leadership interface {
	// Lead takes the leadership, from whichever sweeper has it. ErrLed: another sweeper has taken it from this one, which is a
	// standby from now on and may call Lead again. It may return ErrReset.
	Lead(ctx context.Context) error
	// Led reports whether another sweeper says that it leads. Of one that leads it asks who took the leadership last:
	// true means that it lost it, and is a standby from now on.
	Led(ctx context.Context) (bool, error)
	// Resign lets Led of others report false, until Lead is called. What this sweeper publishes is still stored.
	Resign()
	// Kept returns since when all events are kept: an older row that is not known counts as published. Zero means that no
	// event was ever dropped. It is called before Learn, and may return ErrReset.
	Kept(ctx context.Context) (time.Time, error)
	// Mark stores how far the list was published. Errors: as for Sink.Publish.
	Mark(ctx context.Context, m Mark) error
	// LastMark returns the last mark that was stored; a zero one if there is none. It may return ErrReset.
	LastMark(ctx context.Context) (Mark, error)
}

// Stored is a state whose event was stored.
type Stored struct {
	ID   ID
	At   time.Time // when
	Open bool      // the row was not in its last state
}

// ErrBehind means that Lead and Learn must be called before more is published.
var ErrBehind = errors.New("sweep: what was published must be learned first")

// ErrLed means that another sweeper has the leadership.
var ErrLed = errors.New("sweep: another poller leads")

// ErrReset means that events may be gone, as after a restore of an older copy: the next Learn yields all again.
var ErrReset = errors.New("sweep: events that were published are gone: all must be learned again")

// Mark says how far the list was published.
type Mark struct {
	At              time.Time // when it was stored
	CompleteThrough time.Time // every row made up to then was published
	Since           time.Time // rows made before count as published; zero if none do. It never goes back.
	Total           int       // rows of the list, as its last page said
	New             int       // events since the mark before
	NewestFirst     bool      // is the list's order, as far as is known; only such a list is read in time however long it is
	Anchor          []uint64  // keys of the rows from which on all were published: see head
	Scanned         int       // rows from the first on at which the scan has arrived
}
