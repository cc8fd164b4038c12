package inspect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/retry"
	"errand/internal/style"
	"errand/internal/wire"
	"errand/pkg/messages"
)

// Queue is what waits for an operation, in one of its lanes.
type Queue struct {
	Operation   messages.Operation `json:"operation"`
	Lane        string             `json:"lane,omitempty"` // "" for messages.DefaultLane
	Scheduled   uint64             `json:"scheduled"`      // in all lanes, for a later time; counted with the default lane
	Untaken     uint64             `json:"untaken"`        // no program had them yet
	Taken       int                `json:"taken"`          // in flight, or deferred
	Stranded    int                `json:"stranded"`       // forgotten by the servers: no program will have them
	Oldest      *messages.Time     `json:"oldest,omitempty"`
	FirstFree   *messages.Time     `json:"oldest_untaken,omitempty"`
	Pulls       int                `json:"pulls"` // of programs that wait for a request
	PausedUntil *messages.Time     `json:"paused_until,omitempty"`
	Pause       *Pause             `json:"pause,omitempty"` // what was recorded of the pause

	delivered uint64    // sequence of the last one that a program had
	restored  time.Time // when its history was made, if it has forgotten requests and it is younger than one of them
}

// Of is the queue itself.
func (q Queue) Of() bus.Queue { return bus.QueueOf(q.Operation).In(q.Lane) }

// String is the queue as people name it.
func (q Queue) String() string { return q.Of().String() }

// Lanes are the queues of an operation.
func (r Reader) Lanes(ctx context.Context, op messages.Operation) ([]bus.Queue, error) {
	of := bus.QueueOf(op)
	if !op.HasLanes() {
		return of.WithLanes(), nil
	}
	stream, err := r.JS.Stream(ctx, of.Stream)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", of.Stream, err)
	}
	return of.WithLanes(bus.LanesOf(stream.CachedInfo().Config)...), nil
}

// Queues asks for the state of all queues of operations.
func (r Reader) Queues(ctx context.Context, now time.Time, ops ...messages.Operation) ([]Queue, error) {
	var all []bus.Queue
	for _, op := range ops {
		lanes, err := r.Lanes(ctx, op)
		if err != nil {
			return nil, err
		}
		all = append(all, lanes...)
	}
	queues := make([]Queue, len(all))
	return queues, each(len(all), func(i int) (err error) { queues[i], err = r.Queue(ctx, all[i], now); return err })
}

// Queue asks for the state of a queue.
func (r Reader) Queue(ctx context.Context, of bus.Queue, now time.Time) (Queue, error) {
	c, err := r.JS.Consumer(ctx, of.Stream, of.Name)
	if err != nil {
		return Queue{}, fmt.Errorf("queue %s: %w", of.Name, err)
	}
	info := c.CachedInfo()
	q := Queue{Operation: of.Operation(), Lane: of.Lane(), Taken: info.NumAckPending, Pulls: info.NumWaiting, delivered: info.Delivered.Stream}
	if info.Paused {
		q.PausedUntil = &messages.Time{Time: *info.Config.PauseUntil}
	}
	if _, q.Oldest, err = r.from(ctx, of, 1); err == nil { // the consumer learns later of what is stored
		q.Untaken, q.FirstFree, err = r.from(ctx, of, q.delivered+1)
	}
	if err == nil && q.Lane == "" && q.Operation.HasLanes() {
		var later Stream
		later, err = r.stream(ctx, bus.ScheduledOf(q.Operation))
		q.Scheduled = later.Messages
	}
	if err == nil && q.Oldest != nil && now.Sub(q.Oldest.Time) >= retry.Stranded {
		q.Stranded, err = bus.Stranded(ctx, r.JS, of)
	}
	if err == nil && q.Stranded > 0 {
		q.restored, err = bus.Younger(ctx, r.JS, of, q.Oldest.Time)
	}
	if err == nil && q.PausedUntil != nil {
		q.Pause, err = r.pause(ctx, of, *info.Config.PauseUntil)
	}
	return q, err
}

// repair is what a person does first about a queue that has forgotten requests.
func repair(restored time.Time) string {
	if !restored.IsZero() { // to deliver them may be to run them a second time
		return "nobody knows which of these were run: first read docs/on-call/disaster.md"
	}
	return "errand provision --missing --repair"
}

// Pause is who paused a queue, and why.
type Pause struct {
	Actor string `json:"actor"`
	Why   string `json:"why"`
}

// String is both in words.
func (p *Pause) String() string {
	if p == nil {
		return ""
	}
	return " by " + p.Actor + ": " + p.Why
}

// pause is what was recorded of the pause of a queue until a time; nil when nothing was, as where it was not paused with errand, or
// this account may not read it.
func (r Reader) pause(ctx context.Context, of bus.Queue, until time.Time) (*Pause, error) {
	m, there, err := bus.Last(ctx, r.Conn, bus.Audit, "audit.pause.*."+of.Name)
	switch {
	case hidden(err), err == nil && !there:
		return nil, nil
	case err != nil:
		return nil, err
	}
	var p struct {
		Pause
		Plan    string `json:"plan"`
		Message string `json:"message"` // how it went
	}
	end := until.UTC().Format(time.RFC3339)
	if json.Unmarshal(m.Data, &p) != nil || !strings.HasSuffix(p.Plan, end) && !strings.HasSuffix(p.Message, end) {
		return nil, nil // it is not a record, or of another pause
	}
	p.Actor = wire.NameOf(strings.Split(m.Subject, ".")[2]) // the servers hold users to subjects
	return &p.Pause, nil
}

// from is how many requests a queue has from a sequence on, and when the first was stored.
func (r Reader) from(ctx context.Context, of bus.Queue, sequence uint64) (n uint64, first *messages.Time, err error) {
	next, err := (&bus.Scan{Stream: of.Stream, Filter: of.Filter, From: sequence, Page: 1}).Next(ctx, r.Conn)
	if err != nil || len(next) == 0 {
		return 0, nil, err
	}
	return next[0].Pending + 1, optional(next[0].Time), nil
}

// Open is a request without an outcome.
type Open struct {
	RequestID string             `json:"request_id"`
	Operation messages.Operation `json:"operation"`
	State     messages.State     `json:"state"` // Queued, or the state of its last event
	Published messages.Time      `json:"published"`
	Since     messages.Time      `json:"since"` // of that state
	Reason    messages.Reason    `json:"reason,omitempty"`
	Attempt   int                `json:"attempt,omitempty"`
	Next      *messages.Time     `json:"next,omitempty"` // it goes on then
	Why       string             `json:"why"`            // it waits
	Place     uint64             `json:"place,omitempty"`

	facts history.Facts
}

type request struct {
	bus.Message
	id    string
	place uint64 // among those that nobody had yet, from 1; 0: not counted
}

// requestOf reads by which id a request goes: that under which a person runs it again, or under which it was scheduled, or the
// one that it names, or else <stream>-<sequence>.
func requestOf(op messages.Operation, m bus.Message) request {
	q := request{id: m.Header.Get(bus.HeaderRequestID), Message: m}
	again := m.Header.Get(bus.HeaderReopened) != "" || m.Header.Get(bus.HeaderScheduled) != ""
	if !again || !wire.IsID(q.id) {
		meta, err := messages.Check(op, m.Data)
		q.id = cmp.Or(meta.ID(m.Header.Get(nats.MsgIdHdr), err), bus.QueueOf(op).Stream+"-"+strconv.FormatUint(m.Sequence, 10))
	}
	return q
}

// Opens returns requests of an operation that have no outcome yet: at most limit of them,
// the oldest first. Those published after until are left out.
func (r Reader) Opens(ctx context.Context, q Queue, limit int, until time.Time) ([]Open, error) {
	of := q.Of()
	var waiting []request
	place := uint64(0)
	err := bus.Scan{Stream: of.Stream, Filter: of.Filter, Page: min(limit, page)}.Each(ctx, r.Conn, func(m bus.Message) bool {
		if m.Time.After(until) {
			return false
		}
		w := requestOf(q.Operation, m)
		if m.Sequence > q.delivered {
			place++
			w.place = place
		}
		waiting = append(waiting, w)
		return len(waiting) < limit
	})
	if err != nil {
		return nil, err
	}
	return r.opensOf(ctx, q, waiting)
}

// opensOf looks up how far requests are. One that has its outcome is left out: it is about to be acknowledged. So are further
// messages of the same request: it was retried, or published again.
func (r Reader) opensOf(ctx context.Context, q Queue, waiting []request) ([]Open, error) {
	seen := map[string]bool{}
	waiting = slices.DeleteFunc(waiting, func(w request) bool {
		again := seen[w.id]
		seen[w.id] = true
		return again
	})
	found := make([]Open, len(waiting))
	err := each(len(waiting), func(i int) error {
		m, there, err := r.last(ctx, q.Operation, waiting[i].id)
		if err == nil {
			found[i] = r.openOf(q, waiting[i], m, there)
		}
		return err
	})
	open := found[:0]
	for _, o := range found {
		if !o.State.Final(q.Operation) {
			open = append(open, o)
		}
	}
	return open, err
}

func (r Reader) openOf(q Queue, w request, last bus.Message, there bool) Open {
	published := messages.Time{Time: w.Time}
	o := Open{RequestID: w.id, Operation: q.Operation, State: Queued, Published: published, Since: published}
	if !there {
		o.Place = w.place
		return o
	}
	o.State, o.Since, o.facts = messages.StateOf(last.Subject), messages.Time{Time: last.Time}, factsOf(last.Data)
	if r.Hide != nil && o.facts.Message != "" {
		o.facts.Message = r.Hide(q.Operation, o.facts.Message, w.Data)
	}
	o.Reason, o.Attempt = o.facts.Reason, o.facts.Attempt
	switch o.State {
	case messages.Deferred:
		o.Next = optional(o.facts.NotBefore.Time)
	case messages.Started, messages.Page:
		o.Next = optional(o.facts.Deadline.Time)
	}
	return o
}

// searched is how many messages of a queue are read at most from either end of it in a search for a request: half a second's worth.
const searched = 8000

// SkippedError means that a queue was too long to be searched as a whole.
type SkippedError struct {
	Operation messages.Operation
	Skipped   uint64 // messages in its middle that were not read
}

func (e *SkippedError) Error() string {
	return fmt.Sprintf("the queue %s is long: %s in its middle were not searched", bus.QueueOf(e.Operation).Name,
		style.Plural(e.Skipped, "message", "messages"))
}

// ofAllLanes matches the requests of an operation in its stream.
func ofAllLanes(op messages.Operation) string { return string(op) + ".>" }

// search goes through the requests that wait for an operation and returns those that keep wants, nil for all: of one id, or of
// all where that is "". Errors: a *SkippedError, beside what was found or if the id was not; or the connection's.
func (r Reader) search(ctx context.Context, op messages.Operation, id string, keep func(request) bool) (found []request, err error) {
	of, read, pending := bus.QueueOf(op), 0, uint64(0)
	scan := bus.Scan{Stream: of.Stream, Filter: ofAllLanes(op), From: 1}
	visit := func(m bus.Message) bool {
		read, pending, scan.From = read+1, m.Pending, m.Sequence+1
		if id == "" || mayHave(m, of.Stream, id) {
			if w := requestOf(op, m); (id == "" || w.id == id) && (keep == nil || keep(w)) {
				found = append(found, w)
			}
		}
		return read < searched
	}
	if err := scan.Each(ctx, r.Conn, visit); err != nil || pending == 0 {
		return found, err
	}
	left := pending
	if read = 0; left > searched {
		if err := scan.ToLast(ctx, r.Conn, searched); err != nil {
			return found, err
		}
	}
	err = scan.Each(ctx, r.Conn, visit)
	if err == nil && left > searched && (id == "" || len(found) == 0) {
		err = &SkippedError{op, left - searched}
	}
	return found, err
}

// mayHave reports whether a message of a queue may go by an id, which requestOf reads.
func mayHave(m bus.Message, stream, id string) bool {
	return bytes.Contains(m.Data, []byte(id)) || bytes.IndexByte(m.Data, '\\') >= 0 || m.Header.Get(nats.MsgIdHdr) == id ||
		m.Header.Get(bus.HeaderRequestID) == id || strings.HasPrefix(id, stream)
}

// Queued returns which of some requests are in the queue of an operation, taken or not, by when they were reopened. They are published
// after that; so it seldom reads more than the first page from the first of them on, however many wait.
func (r Reader) Queued(ctx context.Context, op messages.Operation, reopened map[string]time.Time) (map[string]bool, error) {
	queued, of := map[string]bool{}, bus.QueueOf(op)
	if len(reopened) == 0 {
		return queued, nil
	}
	first := slices.MinFunc(slices.Collect(maps.Values(reopened)), time.Time.Compare)
	scan := bus.Scan{Stream: of.Stream, Filter: ofAllLanes(op), Since: first.Add(-time.Second)} // another server's clock may be behind
	return queued, scan.Each(ctx, r.Conn, func(m bus.Message) bool {
		if id := requestOf(op, m).id; !reopened[id].IsZero() {
			queued[id] = true
		}
		return len(queued) < len(reopened)
	})
}

// Waiting returns the messages of a request that are in the queue of an operation. Errors: a *SkippedError if there is none in what was
// read of it, or the connection's.
func (r Reader) Waiting(ctx context.Context, op messages.Operation, id string) (list []bus.Message, err error) {
	found, err := r.search(ctx, op, id, nil)
	for _, w := range found {
		list = append(list, w.Message)
	}
	return list, err
}

// Scheduled calls visit with the requests of an operation that wait for their not_before; id may be *. Errors: the connection's.
func (r Reader) Scheduled(ctx context.Context, op messages.Operation, id string, newest int, visit func(bus.Message) bool) error {
	if !op.HasLanes() {
		return nil
	}
	scan := &bus.Scan{Stream: bus.ScheduledOf(op), Filter: bus.ScheduledFilter(op, id)}
	if newest > 0 {
		if err := scan.ToLast(ctx, r.Conn, uint64(newest)); err != nil {
			return err
		}
	}
	return scan.Each(ctx, r.Conn, visit)
}
