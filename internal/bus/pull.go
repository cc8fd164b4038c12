package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
	"errand/internal/wire"
)

// Pull takes requests from a queue, and is safe for concurrent use.
type Pull struct {
	nc      *nats.Conn
	queue   jetstream.Consumer
	subject string
	max     int
	// Idle replaces retry.PullExpiry in pulls that nothing waits behind, where days of virtual time pass.
	Idle time.Duration

	mu   sync.Mutex
	idle []*inbox
}

// maxBatch is how many messages are asked for at once: each has its place in the channel of the subscription.
const maxBatch = 256

// NewPull takes requests from a queue that Check returned.
func NewPull(nc *nats.Conn, queue jetstream.Consumer) *Pull {
	info := queue.CachedInfo()
	return &Pull{nc: nc, queue: queue, subject: api(nc, "CONSUMER.MSG.NEXT."+info.Stream+"."+info.Name),
		max: min(maxBatch, cmp.Or(info.Config.MaxRequestBatch, maxBatch))}
}

// Name is the queue's.
func (p *Pull) Name() string { return p.queue.CachedInfo().Name }

// AckWait is after how long a silent request is delivered again.
func (p *Pull) AckWait() time.Duration { return p.queue.CachedInfo().Config.AckWait }

// Max is how many requests may be asked for at once.
func (p *Pull) Max() int { return p.max }

// ErrQueueGone means that the queue, or its stream, was deleted.
var ErrQueueGone = errors.New("nats: the queue is gone")

// Waiting counts the requests that were not delivered yet, and those that were and are not acknowledged.
func (p *Pull) Waiting(ctx context.Context) (pending, unacknowledged int, err error) {
	info, err := p.queue.Info(ctx)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		return 0, 0, fmt.Errorf("%w: %w", ErrQueueGone, err)
	case err != nil:
		return 0, 0, err
	}
	return int(info.NumPending), info.NumAckPending, nil
}

// inbox is where the server answers one pull at a time. The library takes an empty message with a Status header, which any
// producer may send, for the server's status and drops it; here a status is what has no reply subject.
type inbox struct {
	*Pull
	status chan nats.Status   // says when there is a new connection; nil before the first pull
	sub    *nats.Subscription // nil when there is none
	got    chan *nats.Msg
}

// use calls f with an inbox that nothing else uses.
func (p *Pull) use(f func(*inbox) error) error {
	p.mu.Lock()
	i := &inbox{Pull: p}
	if last := len(p.idle) - 1; last >= 0 {
		i, p.idle = p.idle[last], p.idle[:last]
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.idle = append(p.idle, i)
		p.mu.Unlock()
	}()
	return f(i)
}

// The pulls of one message.
var (
	one    = fmt.Appendf(nil, `{"batch":1,"expires":%d}`, retry.PullExpiry)
	oneNow = []byte(`{"batch":1,"no_wait":true}`)
)

// maxBytes is how many bytes a pull of several messages brings at most. A pull of one brings a larger message.
const maxBytes = 4 << 20

// ErrNoMessage means that the queue had no request in time.
var ErrNoMessage = errors.New("nats: no message")

// ErrRefused means that the queue refused a pull: its limits may have changed, or it moves to another server.
var ErrRefused = errors.New("nats: pull refused")

// Next waits for a request for about wait, and for retry.PullExpiry at least. If it returns no request, none is under way: a
// message that the server sent to an abandoned pull would be lost until its AckWait is over. So Next may return one after
// ctx ended. Errors: ErrNoMessage, ctx's, or why the server sends no request.
func (p *Pull) Next(ctx context.Context, wait time.Duration) (*Request, error) {
	for end := time.Now().Add(wait); ; {
		what := one
		if wait == 0 && p.Idle > 0 {
			what = fmt.Appendf(nil, `{"batch":1,"expires":%d}`, p.Idle)
		}
		r, err := p.once(ctx, what)
		again := errors.Is(err, errMoved) || errors.Is(err, ErrNoMessage) && time.Now().Before(end)
		if r != nil || !again {
			return r, err
		}
	}
}

// Take returns a request that is waiting, or ErrNoMessage immediately.
func (p *Pull) Take(ctx context.Context) (*Request, error) {
	return p.once(ctx, oneNow)
}

func (p *Pull) once(ctx context.Context, what []byte) (first *Request, err error) {
	err = p.use(func(i *inbox) error {
		return i.ask(ctx, what, 1, func(r *Request) {
			if first == nil {
				first = r
			} else {
				giveBack(r)
			}
		})
	})
	if first != nil {
		return first, nil
	}
	return nil, err
}

// Some calls take with up to n waiting requests, as they come. When it returns, no request is under way. Errors: see Next.
func (p *Pull) Some(ctx context.Context, n int, take func(*Request)) error {
	n = min(n, p.max)
	what := fmt.Appendf(nil, `{"batch":%d,"no_wait":true`, n)
	if int64(n)*p.nc.MaxPayload() > maxBytes {
		what = fmt.Appendf(what, `,"max_bytes":%d`, maxBytes)
	}
	err := p.use(func(i *inbox) error { return i.ask(ctx, append(what, '}'), n, take) })
	if errors.Is(err, errMoved) {
		return ErrNoMessage
	}
	return err
}

var (
	errSilent = errors.New("nats: the server of the queue does not answer")
	errMoved  = errors.New("nats: the connection was lost")
)

// ask asks for n messages, unless ctx has ended, and waits until they came or will not come. Only the wait for a connection ends with ctx.
func (p *inbox) ask(ctx context.Context, what []byte, n int, take func(*Request)) error {
	if err := p.listen(ctx); err != nil {
		return err
	}
	if err := p.nc.PublishRequest(p.subject, p.sub.Subject, what); err != nil {
		return fmt.Errorf("nats: pull: %w", err)
	}
	late := time.NewTimer(max(retry.PullExpiry, p.Idle) + retry.Answer)
	defer late.Stop()
	came := 0
	for came < n {
		select {
		case m := <-p.got:
			if m.Reply != "" {
				if r := requestOf(m); r != nil {
					came++
					take(r)
				}
				continue
			}
			missing, err := readStatus(m, n-came)
			if err != nil {
				p.drop(take)
				return err
			}
			n -= missing // the others came, or are on their way
		case <-p.status: // the next one may be another server, which was never asked
			p.drop(take)
			return errMoved
		case <-late.C:
			p.drop(take)
			return errSilent
		}
	}
	if came == 0 {
		return ErrNoMessage
	}
	return nil
}

// listen prepares for the answers to a request.
func (p *inbox) listen(ctx context.Context) (err error) {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if p.status == nil {
		p.status = p.nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	}
	if !p.nc.IsConnected() { // a request would be sent twice
		select {
		case <-p.status:
		case <-time.After(retry.PullExpiry):
		case <-ctx.Done():
		}
		return errMoved
	}
	if p.sub == nil {
		p.got = make(chan *nats.Msg, 2*maxBatch)
		if p.sub, err = p.nc.ChanSubscribe(p.nc.NewInbox(), p.got); err != nil {
			return fmt.Errorf("nats: pull: %w", err)
		}
	}
	for len(p.status) > 0 { // no request was open when the connection was lost
		<-p.status
	}
	return nil
}

// readStatus reads what the server says instead of a message: how many of the left messages will not come. In a cluster it
// may overtake messages, and where they all came, none is missing.
func readStatus(m *nats.Msg, left int) (missing int, err error) {
	switch status, text := m.Header.Get("Status"), m.Header.Get("Description"); {
	case status == "404", status == "408", // the queue is empty; the time is over
		status == "409" && (text == "Batch Completed" || text == "Message Size Exceeds MaxBytes"):
		if missing, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages")); err == nil {
			return missing, nil
		}
		return left, nil
	default:
		return 0, fmt.Errorf("%w: status %s %s", ErrRefused, status, wire.Cut(text))
	}
}

// drop abandons the inbox: what the server still sends there is lost. What already came is taken.
func (p *inbox) drop(take func(*Request)) {
	if p.sub == nil {
		return
	}
	_ = p.sub.Unsubscribe()
	p.sub = nil
	for len(p.got) > 0 {
		if r := requestOf(<-p.got); r != nil {
			take(r)
		}
	}
}

// giveBack lets the server deliver an unwanted request again.
func giveBack(r *Request) { _ = r.NakWithDelay(retry.PullExpiry) }

// Close ends the pulling, after every other method has returned.
func (p *Pull) Close() {
	for _, i := range p.idle {
		i.drop(giveBack)
		if i.status != nil {
			p.nc.RemoveStatusListener(i.status)
		}
	}
	p.idle = nil
}

// Request is one delivery of a request by its queue.
type Request struct {
	Subject   string
	Header    nats.Header
	Data      []byte
	Stream    string
	Consumer  string
	Sequence  uint64 // in the stream
	Delivered uint64 // how often, with this delivery
	Published time.Time
	Acker
}

// Acker answers the queue about a delivery, as its *nats.Msg does.
type Acker interface {
	Ack(...nats.AckOpt) error
	NakWithDelay(time.Duration, ...nats.AckOpt) error
	InProgress(...nats.AckOpt) error
}

// requestOf reads a message; nil if no queue delivered it.
func requestOf(m *nats.Msg) *Request {
	meta, err := m.Metadata()
	if err != nil {
		return nil
	}
	return &Request{Subject: m.Subject, Header: m.Header, Data: m.Data, Stream: meta.Stream, Consumer: meta.Consumer,
		Sequence: meta.Sequence.Stream, Delivered: meta.NumDelivered, Published: meta.Timestamp, Acker: m}
}
