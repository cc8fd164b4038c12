package index

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
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
	// any more. Whoever shows what it learned of has to read it again.
	Missed bool
}

// MaxChanges is how many changes are kept.
const MaxChanges = 1000

// Changes waits for what comes after the place that Next named, and gives it; after "", it
// gives the place that is now, at once. While the index catches up with the streams it tells
// nothing, and then that some were missed; so it does of places of another process. Errors:
// ctx ended, or the index was closed.
func (x *Index) Changes(ctx context.Context, after string) (Changes, error) {
	return x.feed.next(ctx, after)
}

// feed keeps the last changes, in memory alone: whoever missed some reads the index.
type feed struct {
	mu     sync.Mutex
	epoch  string // of this process
	list   []Change
	last   uint64        // number of the last one; the first ever is 1
	more   chan struct{} // closed when there are more
	closed bool
}

func (f *feed) init() { f.epoch, f.more = rand.Text()[:8], make(chan struct{}) }

// add tells changes.
func (f *feed) add(changes []Change) {
	if len(changes) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, changes...)
	if over := len(f.list) - MaxChanges; over > 0 {
		f.list = append([]Change(nil), f.list[over:]...)
	}
	f.last += uint64(len(changes))
	f.wake()
}

// miss tells that there were changes which are not told.
func (f *feed) miss() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = nil
	f.last++
	f.wake()
}

func (f *feed) wake() {
	close(f.more)
	f.more = make(chan struct{})
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		close(f.more)
	}
}

func (f *feed) next(ctx context.Context, after string) (Changes, error) {
	for {
		changes, more, err := f.since(after)
		if err != nil || more == nil {
			return changes, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return Changes{}, context.Cause(ctx)
		}
	}
}

// since gives what there is after a place or, while there is nothing, what to wait for.
func (f *feed) since(after string) (Changes, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return Changes{}, nil, errClosed
	}
	c := Changes{Next: fmt.Sprintf("%s-%d", f.epoch, f.last)}
	epoch, digits, _ := strings.Cut(after, "-")
	seen, err := strconv.ParseUint(digits, 10, 64)
	first := f.last - uint64(len(f.list)) + 1 // number of the first that is kept
	switch {
	case after == "":
	case epoch != f.epoch || err != nil || seen > f.last || seen+1 < first:
		c.Missed = true
	case seen == f.last:
		return Changes{}, f.more, nil
	default:
		c.List = append(c.List, f.list[seen+1-first:]...)
	}
	return c, nil, nil
}
