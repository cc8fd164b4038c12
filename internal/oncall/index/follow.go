package index

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	sqlite3 "modernc.org/sqlite/lib"

	"errand/internal/bus"
	"errand/internal/retry"
)

// followed are the streams that are indexed. Histories come first, as the others name their
// requests, and acts last, as they name dead letters.
var followed = []string{bus.MandateEvents, bus.MandateCallbacks, bus.MailEvents, bus.MailDeliveries, bus.DeadLetters, bus.Audit}

type follower struct {
	*Index
	nc      *nats.Conn
	js      jetstream.JetStream
	writer  *writer // nil when the file has to be opened first
	at      map[string]Position
	checked time.Time // when the streams were last looked at
	behind  bool      // the file says that it is made again
	again   string    // why the file has to be made again, or ""
	removed bool      // requests were removed whose names are still there
	swept   time.Time // when such names were last removed
}

// Follow reads the streams until ctx ends, and outlives whatever else happens: while NATS
// cannot be read or the disk takes nothing, it tries again, and Lag says why it waits. It
// may be called once.
func (x *Index) Follow(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) {
	f := &follower{Index: x, nc: nc, js: js, behind: true}
	defer f.leave()
	for failed := 0; ; {
		err := f.round(ctx)
		if ctx.Err() != nil {
			return
		}
		if x.lag.problem(err) {
			x.Log.Warn().Err(err).Msg("index: does not go on")
		}
		pause := retry.Follow
		if failed++; err == nil {
			failed = 0
		} else {
			pause = retry.Store.Wait(failed)
		}
		if !retry.Pause(ctx, pause) {
			return
		}
	}
}

func (f *follower) leave() {
	if f.writer != nil {
		_ = f.writer.close() // the connection goes back to its pool
		f.writer = nil
	}
}

// round reads what is new, in all streams.
func (f *follower) round(ctx context.Context) (err error) {
	began := time.Now()
	if broken := f.broken.Load(); broken != nil {
		_ = f.mend(*broken) // what is broken can be mended
	}
	if f.nc.Status() != nats.CONNECTED { // each question would wait for its answer
		return errors.New("NATS is not connected")
	}
	if f.writer == nil {
		err = f.enter()
	}
	if err == nil && time.Since(f.checked) > retry.NATSCheck {
		err = f.check(ctx)
	}
	for _, stream := range followed {
		if err == nil {
			err = f.catchUp(ctx, stream)
		}
	}
	if err == nil && f.behind {
		err = f.writer.within(func() error { return f.writer.exec("DELETE FROM meta WHERE name = 'rebuilding'") })
		f.behind = err != nil
	}
	if err != nil {
		return f.mend(err)
	}
	f.lag.caughtUp(began)
	return nil
}

// enter takes the file for writing, and reads how far it is.
func (f *follower) enter() (err error) {
	if f.again != "" {
		if err := f.startOver(f.again); err != nil {
			return err
		}
		f.again = ""
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.store == nil {
		return errClosed
	}
	if f.writer, err = newWriter(f.store); err != nil {
		return err
	}
	f.at = map[string]Position{}
	for _, p := range f.Lag().Streams {
		f.at[p.Stream] = p
	}
	return nil
}

// mend has the file made again, next time, where an error says that it is of no use. Another error it returns.
func (f *follower) mend(err error) error {
	f.checked = time.Time{} // the streams are looked at before anything else
	if code(err) == sqlite3.SQLITE_FULL {
		return fmt.Errorf("there is no room on the index's disk: %w", err)
	}
	if !damaged(err) && !errors.Is(err, errOther) {
		return err
	}
	f.leave()
	f.again, f.behind = err.Error(), true
	return nil
}

// errOther says that the streams are not those which the index was made of.
var errOther = errors.New("the index is made of another")

// check looks whether the streams are the ones that the index was made of, and removes what they no longer keep.
func (f *follower) check(ctx context.Context) error {
	// The store is replaced by this goroutine alone.
	if now, err := os.Stat(filepath.Join(f.Dir, file)); err != nil || !os.SameFile(f.store.file, now) {
		return fmt.Errorf("%w: its file was removed", errOther)
	}
	k := kept{}
	for _, stream := range followed {
		state, err := f.checkStream(ctx, stream)
		if err != nil {
			return err
		}
		if state.Msgs == 0 {
			state.FirstTime = time.Now()
		}
		k[stream] = state
	}
	if err := errors.Join(f.expire(k), f.sweep()); err != nil {
		return err
	}
	f.checked = time.Now()
	return nil
}

// checkStream looks whether a stream is the one that the index was made of.
func (f *follower) checkStream(ctx context.Context, stream string) (state jetstream.StreamState, err error) {
	answer, stop := context.WithTimeout(ctx, retry.Answer)
	defer stop()
	info, err := bus.StreamInfo(answer, f.js, stream)
	if err != nil {
		return state, fmt.Errorf("stream %s: %w", stream, err)
	}
	p := f.at[stream]
	switch {
	case p.Created.IsZero():
		p.Stream, p.Created = stream, info.Created
	case !p.Created.Equal(info.Created):
		return state, fmt.Errorf("stream %s was made again at %s: %w", stream, info.Created.UTC().Format(time.RFC3339), errOther)
	case info.State.LastSeq < p.Indexed:
		return state, fmt.Errorf("stream %s ends with %d, and had %d: %w", stream, info.State.LastSeq, p.Indexed, errOther)
	case p.Indexed > 0: // a stream that lost messages and got others since has another one in its place, or none
		last, there, err := bus.At(ctx, f.nc, stream, ">", p.Indexed)
		if there && !last.Time.Equal(p.At) {
			err = fmt.Errorf("message %d of stream %s is another one than it was: %w", p.Indexed, stream, errOther)
		}
		if err != nil {
			return state, err
		}
	}
	p.First, p.Last = info.State.FirstSeq, info.State.LastSeq
	f.at[stream] = p
	f.lag.set(p)
	return info.State, nil
}

// pageSize is how many messages are asked for at once, and put into one transaction. Writes are answered behind a whole page.
const pageSize = 1024

// catchUp reads a stream to its end.
func (f *follower) catchUp(ctx context.Context, stream string) error {
	p := f.at[stream]
	scan := &bus.Scan{Stream: stream, Filter: ">", From: p.Indexed + 1, Page: pageSize}
	if any, err := scan.Any(ctx, f.nc); !any || err != nil {
		return err
	}
	for {
		page, err := scan.Next(ctx, f.nc)
		if err != nil || len(page) == 0 {
			return err
		}
		last := page[len(page)-1]
		p.Indexed, p.At, p.Last = last.Sequence, last.Time, max(p.Last, last.Sequence+last.Pending)
		if err := f.writer.put(f.gather(page), p); err != nil {
			return err
		}
		f.at[stream] = p
		f.lag.set(p)
		f.version.Add(1)
		if last.Pending == 0 {
			return nil
		}
	}
}

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

// problem notes why the index does not go on, nil: it does. It reports whether that is news.
func (l *lag) problem(err error) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.Problem, l.Since = "", time.Time{}
		return false
	}
	if l.Problem == "" {
		l.Since = time.Now()
	}
	news = l.Problem != err.Error()
	l.Problem = err.Error()
	return news
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
