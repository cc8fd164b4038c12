package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
	"errand/pkg/messages"
)

// Pull asks a queue for messages. The library takes an empty message with a Status header, which any producer may send, for
// the server's status and drops it; here a status is what has no reply subject. One goroutine may use it at a time.
type Pull struct {
	nc      *nats.Conn
	subject string
	Max     int // messages that one request may ask for

	status chan nats.Status   // says when there is a new connection; nil before the first request
	sub    *nats.Subscription // of the inbox that the server answers on; nil when there is none
	got    chan *nats.Msg
}

// maxBatch is how many messages one request asks for at most: each has its place in the channel of the subscription.
const maxBatch = 256

// NewPull asks for messages of a queue that Check returned.
func NewPull(nc *nats.Conn, queue jetstream.Consumer) *Pull {
	info := queue.CachedInfo()
	batch := min(maxBatch, cmp.Or(info.Config.MaxRequestBatch, maxBatch))
	return &Pull{nc: nc, subject: "$JS.API.CONSUMER.MSG.NEXT." + info.Stream + "." + info.Name, Max: batch}
}

// The requests for one message.
var (
	one    = fmt.Appendf(nil, `{"batch":1,"expires":%d}`, retry.PullExpiry)
	oneNow = []byte(`{"batch":1,"no_wait":true}`)
)

// maxBytes is how many bytes a request for several messages brings at most. A request for one brings a larger message.
const maxBytes = 4 << 20

// ErrNoMessage means that the queue had no message in time.
var ErrNoMessage = errors.New("nats: no message")

// ErrRefused means that the queue refused a request for messages: its limits may have changed, or it moves to another server.
var ErrRefused = errors.New("nats: pull refused")

// Next waits for a message for about wait, and for retry.PullExpiry at least. When it returns none, none is on its way: a
// message that the server sent to an abandoned pull would be lost until its AckWait is over. So Next may return one after
// ctx ended. Errors: ErrNoMessage, ctx's, or why the server sends none.
func (p *Pull) Next(ctx context.Context, wait time.Duration) (*nats.Msg, error) {
	for end := time.Now().Add(wait); ctx.Err() == nil; {
		m, err := p.once(ctx, one)
		again := errors.Is(err, errMoved) || errors.Is(err, ErrNoMessage) && time.Now().Before(end)
		if m != nil || !again {
			return m, err
		}
	}
	return nil, ctx.Err()
}

// Take returns a message that is waiting, or ErrNoMessage immediately.
func (p *Pull) Take(ctx context.Context) (*nats.Msg, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return p.once(ctx, oneNow)
}

func (p *Pull) once(ctx context.Context, what []byte) (first *nats.Msg, err error) {
	err = p.ask(ctx, what, 1, func(m *nats.Msg) {
		if first == nil {
			first = m
		} else {
			giveBack(m)
		}
	})
	if first != nil {
		return first, nil
	}
	return nil, err
}

// Some calls take with up to n waiting messages, as they come. When it returns, none is on its way. Errors: see Next.
func (p *Pull) Some(ctx context.Context, n int, take func(*nats.Msg)) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	n = min(n, p.Max)
	what := fmt.Appendf(nil, `{"batch":%d,"no_wait":true`, n)
	if int64(n)*p.nc.MaxPayload() > maxBytes {
		what = fmt.Appendf(what, `,"max_bytes":%d`, maxBytes)
	}
	err := p.ask(ctx, append(what, '}'), n, take)
	if errors.Is(err, errMoved) {
		return ErrNoMessage
	}
	return err
}

var (
	errSilent = errors.New("nats: the server of the queue does not answer")
	errMoved  = errors.New("nats: the connection was lost")
)

// ask asks for n messages, and waits until they came or will not come. Only the wait for a connection ends with ctx.
func (p *Pull) ask(ctx context.Context, what []byte, n int, take func(*nats.Msg)) error {
	if err := p.listen(ctx); err != nil {
		return err
	}
	if err := p.nc.PublishRequest(p.subject, p.sub.Subject, what); err != nil {
		return fmt.Errorf("nats: pull: %w", err)
	}
	late := time.NewTimer(retry.PullExpiry + retry.Answer)
	defer late.Stop()
	came := 0
	for came < n {
		select {
		case m := <-p.got:
			if m.Reply != "" {
				came++
				take(m)
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
func (p *Pull) listen(ctx context.Context) (err error) {
	if p.status == nil {
		p.status = p.nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING)
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
		return 0, fmt.Errorf("%w: status %s %s", ErrRefused, status, messages.Cut(text))
	}
}

// drop abandons the inbox: what the server still sends there is lost. What already came is taken.
func (p *Pull) drop(take func(*nats.Msg)) {
	if p.sub == nil {
		return
	}
	_ = p.sub.Unsubscribe()
	p.sub = nil
	for len(p.got) > 0 {
		if m := <-p.got; m.Reply != "" {
			take(m)
		}
	}
}

// giveBack lets the server deliver an unwanted message again.
func giveBack(m *nats.Msg) { _ = m.NakWithDelay(retry.PullExpiry) }

// Close ends the pulling, after every other method has returned.
func (p *Pull) Close() {
	p.drop(giveBack)
	if p.status != nil {
		p.nc.RemoveStatusListener(p.status)
		p.status = nil
	}
}
