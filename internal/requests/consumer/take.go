package consumer

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/hold"
	"errand/internal/retry"
	"errand/internal/wire"
	"errand/pkg/messages"
)

// takers is how many goroutines take requests. While the operation is held, one probes; the other continues at its end.
const takers = 2

// lane is one queue of the operation, and its part of what all of them share.
type lane struct {
	queue   Queue
	places  admission.Slots // in flight
	pulling admission.Slots // of the one taker that takes for workers
	more    bool            // the last pull brought some
	large   large
	fault   atomic.Pointer[string]
}

// taken is a request on its way to a worker.
type taken struct {
	*bus.Request
	*lane
}

// unhealthy notes why the lane's queue delivers nothing, "" if it does.
func (l *lane) unhealthy(log zerolog.Logger, f string) {
	if before := l.fault.Load(); before == nil && f != "" || before != nil && *before != f {
		l.fault.Store(&f)
		if f != "" {
			log.Warn().Str("consumer", l.queue.Name()).Msg(f)
		}
	}
}

// take takes as many requests as workers are free, or makes a probe. None waits in a buffer, where its AckWait would run out.
func (c *Consumer[R]) take(ctx, hard context.Context, l *lane, work chan<- taken) error {
	permit, err := c.hold.Acquire(ctx)
	if err != nil {
		return err
	}
	if !permit.Probe() {
		return c.takeForWorkers(ctx, permit, l, work)
	}
	if err := l.places.Take(ctx); err != nil {
		permit.Release(false)
		return err
	}
	defer l.places.Free()
	err = c.probe(ctx, hard, permit)
	permit.Release(errors.Is(err, bus.ErrNoMessage) && c.empty(ctx))
	if len(c.lanes) > 1 { // it may be another lane's
		return nil
	}
	return err
}

// takeForWorkers passes requests to the workers: many at once, so that their events leave together. There are a quarter more places than
// calls, so calls hardly wait for that. An empty queue is asked for one request until there is one: so it
// keeps one worker from the program's other queues, and they never keep that worker from it.
func (c *Consumer[R]) takeForWorkers(ctx context.Context, permit *hold.Permit, l *lane, work chan<- taken) error {
	if err := l.pulling.Take(ctx); err != nil {
		return err
	}
	defer l.pulling.Free()
	l.large.waiting.Wait()
	n := 1
	if l.more {
		n = l.queue.Max()
	}
	free, err := l.places.TakeSome(ctx, n)
	if err != nil {
		return err
	}
	defer func() {
		for range free {
			l.places.Free()
		}
	}()
	if permit.Spent() { // a hold began meanwhile
		return nil
	}
	asked := free
	give := func(r *bus.Request) {
		if free > 0 {
			free--
		} else { // it was asked for before the connection was lost
			c.lease.take(r)
			_ = l.places.Take(context.Background())
		}
		if isLarge(r) {
			l.large.waiting.Add(1)
		}
		work <- taken{r, l}
	}
	if l.more {
		err = l.queue.Some(ctx, asked, give)
	} else {
		var r *bus.Request
		for err = bus.ErrNoMessage; errors.Is(err, bus.ErrNoMessage) && !permit.Spent(); {
			r, err = l.queue.Next(ctx, 0)
			if r != nil || errors.Is(err, bus.ErrNoMessage) {
				l.unhealthy(c.Logger, "")
			}
		}
		if r != nil {
			give(r)
		}
	}
	l.more = free < asked
	return err
}

// lease keeps requests in flight from being delivered again: one heartbeat for all of them at a third of AckWait.
type lease struct {
	every time.Duration

	mu   sync.Mutex
	held map[*bus.Request]struct{}
	next *time.Timer // runs while there are any
}

func (l *lease) take(r *bus.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[*bus.Request]struct{}{}
	}
	if len(l.held) == 0 {
		l.next = time.AfterFunc(l.every, l.beat)
	}
	l.held[r] = struct{}{}
}

func (l *lease) drop(r *bus.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.held, r); len(l.held) == 0 && l.next != nil {
		l.next.Stop()
	}
}

func (l *lease) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}

func (l *lease) beat() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range l.held {
		_ = r.InProgress() // the next beat makes up for a lost one
	}
	if len(l.held) > 0 {
		l.next.Reset(l.every)
	}
}

// probe settles requests of a held operation until the probe's call was made. A request that made no call has proven
// nothing; one that is overdue may end without a call. The error is why the queue had none.
func (c *Consumer[R]) probe(ctx, hard context.Context, permit *hold.Permit) error {
	for {
		d, err := c.choose(ctx, permit)
		if d == nil {
			return err
		}
		if permit.Spent() && time.Now().Before(d.giveUp) {
			c.passOver(d)
			return nil
		}
		c.settle(hard, d)
		if !c.hold.Active() {
			return nil
		}
	}
}

// maxPassedOver is how many requests a probe passes over that were probes already: a hold of a day makes as many.
const maxPassedOver = 10_000

// choose takes the first request that was not yet a probe of this hold or, if the queue has no other, the first that was.
func (c *Consumer[R]) choose(ctx context.Context, permit *hold.Permit) (*delivery[R], error) {
	var again *delivery[R]
	for range maxPassedOver {
		wait := 2 * c.hold.Interval
		if again != nil || permit.Spent() {
			wait = 0
		}
		t, err := c.next(ctx, wait)
		if err != nil && again != nil {
			break
		}
		if err != nil {
			return nil, err
		}
		d := c.open(t, permit)
		switch {
		case permit.Admit(d.asked()):
			c.passOver(again)
			return d, nil
		case again == nil:
			again = d
		default:
			c.passOver(d)
		}
	}
	permit.AdmitAgain(again.asked())
	return again, nil
}

// next takes a request of any lane, in no order, and waits for one about so long. Errors: see Queue.
func (c *Consumer[R]) next(ctx context.Context, wait time.Duration) (taken, error) {
	var why error
	for end := time.Now().Add(wait); ; {
		for _, i := range rand.Perm(len(c.lanes)) {
			l := c.lanes[i]
			take := l.queue.Take
			if rest := time.Until(end); len(c.lanes) == 1 && rest > 0 {
				take = func(ctx context.Context) (*bus.Request, error) { return l.queue.Next(ctx, rest) }
			}
			r, err := take(ctx)
			if r != nil {
				return taken{r, l}, nil
			}
			if why == nil || !errors.Is(err, bus.ErrNoMessage) {
				why = err
			}
		}
		if !errors.Is(why, bus.ErrNoMessage) || !time.Now().Before(end) || !retry.Pause(ctx, retry.Follow) {
			return taken{}, why
		}
	}
}

// passOver gives back a request that may not be worked on now. It returns before the next probe is due.
func (c *Consumer[R]) passOver(d *delivery[R]) {
	if d != nil {
		c.lease.drop(d.Request)
		_ = d.NakWithDelay(c.hold.Interval / 2)
	}
}

// empty reports whether the queues are known to have no request at all, neither deferred nor with another worker.
func (c *Consumer[R]) empty(ctx context.Context) bool {
	return !slices.ContainsFunc(c.lanes, func(l *lane) bool {
		pending, unacknowledged, err := l.queue.Waiting(ctx)
		return err != nil || pending+unacknowledged > 0
	})
}

// largeBytes is what a large request has at least. Smaller ones are not counted: all in flight are few.
const largeBytes = 64 << 10

// roomForLarge bounds the bytes of large requests in flight: processing needs several times a request's bytes.
const roomForLarge = 16 << 20

// large is the memory that large requests of a lane share. While one of them waits for its part, no more of the lane are taken.
type large struct {
	waiting sync.WaitGroup  // large requests on their way to a worker, or without room
	room    admission.Share // in bytes
}

func isLarge(r *bus.Request) bool { return len(r.Data) >= largeBytes }

// admitLarge waits for room for a request, and keeps its lease. When the program ends first, the request goes back. The
// caller frees the returned bytes.
func (c *Consumer[R]) admitLarge(ctx context.Context, t taken) (bytes int, err error) {
	if !isLarge(t.Request) {
		return 0, nil
	}
	defer t.large.waiting.Done()
	c.lease.take(t.Request)
	defer c.lease.drop(t.Request)
	if err := t.large.room.Take(ctx, len(t.Data), roomForLarge/len(c.lanes)); err != nil {
		_ = t.NakWithDelay(retry.PullExpiry) // or one of our own pulls has it again
		return 0, err
	}
	return len(t.Data), nil
}

// delivery is one request on one delivery, read.
type delivery[R any] struct {
	*bus.Request
	lane    string
	permit  *hold.Permit
	body    R
	digest  string // its fingerprint
	invalid error  // why it cannot be run
	// ids are the ids it may be reported under: the one it names, then the queue's, for when another request has the first.
	ids       []string
	published time.Time // the first time
	notBefore time.Time // zero if it names none
	named     time.Time // its give_up_at, if it has one
	giveUp    time.Time
	claim
}

// open reads a request, and keeps it leased.
func (c *Consumer[R]) open(t taken, permit *hold.Permit) *delivery[R] {
	t.unhealthy(c.Logger, "")
	r := t.Request
	c.lease.take(r)
	d := &delivery[R]{Request: r, lane: messages.ParseSubject(r.Subject).Lane, permit: permit}
	named := c.decode(d)
	d.digest = named.FingerprintOf(r.Data)
	if d.invalid == nil {
		if d.invalid = messages.CheckTimes(named, r.Published, c.Kept()); d.invalid == nil {
			d.named, d.notBefore = named.GiveUpAt, named.NotBefore
		}
	}
	d.published, d.claim = r.Published, claimOf(r)
	d.giveUp = c.giveUp(d, r.Published, d.redriven)
	own := r.Stream + "-" + strconv.FormatUint(r.Sequence, 10)
	d.ids = []string{own, own + "-" + strconv.FormatInt(r.Published.UnixNano(), 36)}
	msgID := r.Header.Get(nats.MsgIdHdr)
	if d.claimed && !d.redriven { // what it was published with first
		msgID = r.Header.Get(bus.HeaderMsgID)
	}
	if id := named.ID(msgID, d.invalid); id != "" {
		d.ids = append([]string{id}, d.ids...)
	}
	return d
}

// giveUp is when a request is given up that was published at a time, or was not to begin before a later one. A redrive has its
// time from then on.
func (c *Consumer[R]) giveUp(d *delivery[R], published time.Time, redriven bool) time.Time {
	if d.scheduled > 0 && !redriven {
		published = d.notBefore
	}
	published = slices.MaxFunc([]time.Time{published, d.notBefore}, time.Time.Compare)
	if d.named.IsZero() || redriven && d.named.Before(published) {
		return published.Add(min(c.GiveUpAfter, wire.MaxGiveUp(c.Kept())))
	}
	return d.named
}

// giveUpAt is when a delivery gives a request up. A repeat whose own time is over does not end what a person has opened again since.
func (c *Consumer[R]) giveUpAt(ctx context.Context, h *history.History, d *delivery[R], p history.Prior) (time.Time, error) {
	if d.redriven || p.State == "" || time.Now().Before(d.giveUp) {
		return d.giveUp, nil
	}
	e, err := c.Log.Leader(ctx, c.op, c.op.Subject(messages.Reopened, h.ID))
	if err != nil || e.Sequence == 0 {
		return d.giveUp, err
	}
	if said, err := history.ReadFacts(e.Body); err != nil || said.By == messages.ByCorrection {
		return d.giveUp, nil
	}
	return c.giveUp(d, e.At, true), nil
}

// decode reads the body. A panic is this request's fault alone.
func (c *Consumer[R]) decode(d *delivery[R]) (meta messages.Meta) {
	defer func() {
		if p := recover(); p != nil {
			d.invalid = attempt.Panicked(p)
		}
	}()
	d.body, meta, d.invalid = c.read(d.Data)
	return meta
}

// history is the request's history under one of its ids.
func (c *Consumer[R]) history(d *delivery[R], id string) *history.History {
	return &history.History{Log: c.Log, Operation: c.op, ID: id, Fingerprint: d.digest, Published: d.published,
		Trace: bus.TraceOf(d.Header), Lane: d.lane,
		Numbered: !d.claimed && slices.Contains(d.ids[len(d.ids)-queueIDs:], id)}
}

// claim is a message's claim to be a request that was stored again: a dead letter that a person has published again, or a
// scheduled one whose time has come. Any publisher can write that, so it counts only for a history that was reopened or
// deferred for exactly these contents; without one the message is never run, under any id, unless it was scheduled and names the id
// itself, as any repeat does. So nobody can take another request's id this way, and a request that is to run under an id which it
// does not name is run under no other.
type claim struct {
	claimed   bool
	redriven  bool
	of        string // the id that it is to run under
	reopened  uint64 // sequence of the reopened event
	scheduled uint64 // sequence of the deferred event
}

func claimOf(from *bus.Request) (c claim) {
	reopened, scheduled := from.Header.Get(bus.HeaderReopened), from.Header.Get(bus.HeaderScheduled)
	if reopened == "" && scheduled == "" { // HeaderRequestID alone counts for nothing: a dead letter has it too
		return c
	}
	c.claimed, c.redriven, c.of = true, reopened != "", from.Header.Get(bus.HeaderRequestID)
	c.reopened, _ = strconv.ParseUint(reopened, 10, 64) // 0 if it is not a number
	c.scheduled, _ = strconv.ParseUint(scheduled, 10, 64)
	return c
}

// asked is the id that the request is to run under, as far as its message says.
func (d *delivery[R]) asked() string {
	if d.claimed && wire.IsID(d.of) {
		return d.of
	}
	return d.ids[0]
}

// queueIDs is how many of a delivery's ids are given by the queue.
const queueIDs = 2

// findClaimed checks a message's claim against the history, and gives it the id that was reopened or deferred. If the claim
// is false the message is invalid, with the queue's ids only.
func (c *Consumer[R]) findClaimed(ctx context.Context, d *delivery[R]) error {
	if !d.claimed {
		return nil
	}
	state, sequence, was := messages.Deferred, d.scheduled, "scheduled"
	if d.redriven {
		state, sequence, was = messages.Reopened, d.reopened, "reopened"
	}
	own, named := d.ids[len(d.ids)-queueIDs:], d.ids[:len(d.ids)-queueIDs]
	if sequence > 0 && wire.IsID(d.of) && (len(named) == 0 || named[0] == d.of) {
		// Whatever it became since, it is this request's: it may have been corrected before its dead letter was stored.
		e, err := c.Log.Next(ctx, c.op, c.op.Subject(state, d.of), sequence)
		if err != nil {
			return err
		}
		said, err := history.ReadFacts(e.Body)
		meant := said.By != messages.ByCorrection && (d.redriven || said.Reason == messages.ReasonScheduled)
		if err == nil && e.Sequence == sequence && meant && said.Fingerprint == d.digest {
			d.ids, d.published = append([]string{d.of}, own...), e.At // what became of it since, became of these contents
			return nil
		}
	}
	if !d.redriven && len(named) > 0 && named[0] == d.of { // that event may be gone; the message is any repeat of the request
		d.claim = claim{}
		d.giveUp = c.giveUp(d, d.Published, false)
		return nil
	}
	d.ids, d.reopened, d.scheduled = own, 0, 0
	d.invalid = &messages.Invalid{Fields: map[string][]string{
		bus.HeaderRequestID: {"names a request that was not " + was + " with these contents"}}}
	return nil
}
