package console

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"errand/internal/bus"
	"errand/internal/oncall/index"
	"errand/internal/oncall/inspect"
	"errand/internal/retry"
	"errand/internal/style"
)

// watch keeps the status of queues and programs, so that pages do not wait for it and show the last one while NATS is gone.
type watch struct {
	reader  inspect.Reader
	index   *index.Index
	version atomic.Uint64 // increases with each update

	mu    sync.Mutex
	known known
	lost  time.Time // when NATS was first found gone, zero while it is connected
}

type known struct {
	Status inspect.Status
	Stuck  inspect.Stuck
	Lag    index.Lag
	Said   map[index.Kind]example // by an upstream, of the top reasons
	Past   map[string][]minute    // of the last hour, the oldest first
	Err    error                  // why it could not be updated
	Since  time.Time              // when that began
}

// maxStuck is how many of the oldest requests of each queue are read.
const maxStuck = 100

func (w *watch) run(ctx context.Context) {
	for again := true; again; again = retry.Pause(ctx, retry.StatusEvery) {
		w.look(ctx)
	}
}

func (w *watch) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, retry.PageMake)
	defer cancel()
	now := time.Now()
	status, err := w.reader.Status(ctx, now)
	var stuck inspect.Stuck
	if err == nil {
		stuck, err = w.reader.Stuck(ctx, now, maxStuck, now)
	}
	lag, said := w.index.Lag(), w.examples(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known.Lag = lag
	switch {
	case err == nil:
		w.known.Status, w.known.Stuck, w.known.Err = status, stuck, nil
		w.known.Past, w.known.Said = pastOf(w.known.Past, status), said
	case w.known.Err == nil:
		w.known.Err, w.known.Since = err, now
	}
	w.version.Add(1)
}

func (w *watch) get() known {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known
}

// notice is shown above every page.
type notice struct{ Kind, Text string }

func (w *watch) notices() (all []notice) {
	k := w.get()
	add := func(kind, format string, args ...any) { all = append(all, notice{kind, fmt.Sprintf(format, args...)}) }
	if gone := w.gone(); !gone.IsZero() {
		add("bad", "NATS has not answered for %s. Pages show what was known then, and recover by themselves.", style.Span(time.Since(gone)))
		return all
	}
	switch {
	case k.Err != nil && errors.Is(k.Err, bus.ErrNoStream):
		add("bad", "A stream has been missing for %s. Queues and programs are shown as they were. Has errand provision been run?",
			style.Span(time.Since(k.Since)))
	case k.Err != nil:
		add("doubt", "Queues and programs have not answered for %s; they are shown as they were.", style.Span(time.Since(k.Since)))
	}
	switch lag := k.Lag; {
	case lag.Rebuilding != "":
		add("wait", "The index is being rebuilt (%s): %s messages are left. Lists and counts are incomplete until then."+
			" A request's page is complete.",
			lag.Rebuilding, style.Count(lag.Behind))
	case lag.Problem != "":
		add("doubt", "The index has been stopped for %s: %s. Lists and counts may lack the newest events.",
			style.Span(time.Since(lag.Since)), lag.Problem)
	case lag.Behind > farBehind:
		add("wait", "The index is %s messages behind: lists and counts lack the newest events.", style.Count(lag.Behind))
	}
	return all
}

// farBehind is how many messages the index may lack without a notice.
const farBehind = 1000

// gone returns since when there is no connection, zero if there is one.
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
