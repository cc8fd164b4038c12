package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"errand/internal/bus"
	"errand/internal/oncall/index"
	"errand/internal/oncall/inspect"
	"errand/internal/retry"
)

// watch looks at queues and programs all the time, so that pages need not wait for their
// answers, and have the last ones while NATS is gone.
type watch struct {
	reader  inspect.Reader
	index   *index.Index
	version atomic.Uint64 // grows with each look

	mu    sync.Mutex
	known known
	lost  time.Time // when NATS was first found gone; zero: it is there
}

// known is what was learned last.
type known struct {
	Status inspect.Status
	Stuck  inspect.Stuck
	Lag    index.Lag
	Err    error     // why it could not be learned again
	Since  time.Time // of that
}

func newWatch(reader inspect.Reader, x *index.Index) *watch { return &watch{reader: reader, index: x} }

// mostStuck is how many of the oldest requests of each queue are looked at.
const mostStuck = 100

// run looks until ctx ends.
func (w *watch) run(ctx context.Context) {
	for {
		w.look(ctx)
		if !retry.Pause(ctx, retry.StatusEvery) {
			return
		}
	}
}

func (w *watch) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, retry.PageMake)
	defer cancel()
	now := time.Now()
	status, err := w.reader.Status(ctx, now)
	var stuck inspect.Stuck
	if err == nil {
		stuck, err = w.reader.Stuck(ctx, now, mostStuck, now)
	}
	lag := w.index.Lag()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known.Lag = lag
	switch {
	case err == nil:
		w.known.Status, w.known.Stuck, w.known.Err = status, stuck, nil
	case w.known.Err == nil:
		w.known.Err, w.known.Since = err, now
	}
	w.version.Add(1)
}

// stamp changes whenever something changed, here or in the index.
func (w *watch) stamp() string { return fmt.Sprint(w.version.Load(), "-", w.index.Version()) }

func (w *watch) get() known {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known
}

// notice is said above every page.
type notice struct{ Kind, Text string }

// notices are what whoever looks at a page has to know of how current it is.
func (w *watch) notices() (all []notice) {
	k := w.get()
	add := func(kind, format string, args ...any) { all = append(all, notice{kind, fmt.Sprintf(format, args...)}) }
	if gone := w.gone(); !gone.IsZero() {
		add("bad", "NATS does not answer since %s. What is shown is what was known then; the pages come back by themselves.", clockText(gone))
		return all
	}
	switch {
	case k.Err != nil && errors.Is(k.Err, bus.ErrNoStream):
		add("bad", "A stream is missing since %s: queues and programs are shown as they were. Has errand provision been run?", clockText(k.Since))
	case k.Err != nil:
		add("doubt", "Queues and programs have not answered since %s; they are shown as they were.", clockText(k.Since))
	}
	switch lag := k.Lag; {
	case lag.Rebuilding != "":
		add("wait", "The index is being built again (%s): %s messages are still to be read. Lists and counts are incomplete until then; a request's own page is not.", lag.Rebuilding, count(lag.Behind))
	case lag.Problem != "":
		add("doubt", "The index stands still since %s: %s. Lists and counts may lack what is newest.", clockText(lag.Since), lag.Problem)
	case lag.Behind > farBehind:
		add("wait", "The index is %s messages behind: lists and counts lack what is newest.", count(lag.Behind))
	}
	for _, p := range madeAgain(k.Lag.Streams, time.Now()) {
		add("doubt", "The stream %s was made again at %s: what it held before is gone, and requests from before may be unknown here.", p.Stream, clockText(p.Created))
	}
	return all
}

// farBehind is how many messages the index may lack without a word.
const farBehind = 1000

// gone is since when there is no connection; zero: there is one.
func (w *watch) gone() time.Time {
	fault := bus.Fault(w.reader.Conn)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case fault == "":
		w.lost = time.Time{}
	case w.lost.IsZero():
		w.lost = time.Now()
	}
	return w.lost
}

// From when to when it is said that a stream is younger than the others.
const (
	together  = 10 * time.Minute // streams are provisioned within such a time
	toldAgain = 24 * time.Hour
)

// madeAgain are the streams that were made long after the others, and lately.
func madeAgain(streams []index.Position, now time.Time) []index.Position {
	streams = slices.DeleteFunc(slices.Clone(streams), func(p index.Position) bool { return p.Created.IsZero() })
	if len(streams) == 0 {
		return nil
	}
	first := slices.MinFunc(streams, func(a, b index.Position) int { return a.Created.Compare(b.Created) }).Created
	return slices.DeleteFunc(streams, func(p index.Position) bool {
		return p.Created.Sub(first) < together || now.Sub(p.Created) > toldAgain
	})
}
