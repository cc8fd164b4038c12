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

// Pull asks a queue for messages. The library's own pulls take an empty message with a
// Status header, which any producer may send, for a word of the server's and give it to
// nobody; here that is whatever has no reply subject. One goroutine may use it at a time.
type Pull struct {
	nc      *nats.Conn
	subject string
	Most    int // messages that one request may ask for

	status chan nats.Status   // says when there is a new connection; nil: nobody listens
	sub    *nats.Subscription // of the inbox that the server answers on; nil: there is none
	got    chan *nats.Msg
}

// maxBatch is how many messages one request asks for at most: each has its place in the
// channel that the library hands them over by.
const maxBatch = 256

// NewPull asks for messages of a queue that Check gave.
func NewPull(nc *nats.Conn, queue jetstream.Consumer) *Pull {
	info := queue.CachedInfo()
	most := min(maxBatch, cmp.Or(info.Config.MaxRequestBatch, maxBatch))
	return &Pull{nc: nc, subject: "$JS.API.CONSUMER.MSG.NEXT." + info.Stream + "." + info.Name, Most: most}
}

// What the server is asked for one message.
var (
	one    = fmt.Appendf(nil, `{"batch":1,"expires":%d}`, retry.PullExpiry)
	oneNow = []byte(`{"batch":1,"no_wait":true}`)
)

// maxBytes is how many bytes a request for several messages brings at most. A message that
// is larger comes to a request for one.
const maxBytes = 4 << 20

// ErrNoMessage means that the queue had none in the time given.
var ErrNoMessage = errors.New("nats: no message")

// ErrRefused means that the queue does not take the request for messages. Its limits may have
// been changed, or it moves to another server.
var ErrRefused = errors.New("nats: pull refused")

// Next waits for a message for about wait, and for retry.PullExpiry at least. When it gives
// none, none is on its way any more: what the server sent to a pull that nobody reads
// would be lost until its AckWait is over. So it may give one after ctx ended. Errors:
// ErrNoMessage, ctx's, or why the server gives none.
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

// Take gives a message that is there, or ErrNoMessage at once.
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

// Some gives up to n messages that are there, each to take as it comes. When it returns none
// is on its way any more, as with Next. Errors: ErrNoMessage when there was none, ctx's, or why
// the server gives none.
func (p *Pull) Some(ctx context.Context, n int, take func(*nats.Msg)) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	n = min(n, p.Most)
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
	errSilent = errors.New("nats: the server of the queue says nothing")
	errMoved  = errors.New("nats: the connection was lost")
)

// ask asks for n messages, and waits until they came or the server says that no more do, for
// a connection only until ctx ends.
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
			missing, err := word(m, n-came)
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

// listen makes ready for the answers to a request.
func (p *Pull) listen(ctx context.Context) (err error) {
	if p.status == nil {
		p.status = p.nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING)
	}
	if !p.nc.IsConnected() { // what is asked now would be asked twice
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
	for len(p.status) > 0 { // nothing was asked for when the connection was lost
		<-p.status
	}
	return nil
}

// word reads what the server says instead of a message: how many of those that were asked for
// will not come; left have not come yet. In a cluster it may come before messages that were
// sent first. What it says of a request that was answered in full is that none is missing.
func word(m *nats.Msg, left int) (missing int, err error) {
	switch status, text := m.Header.Get("Status"), m.Header.Get("Description"); {
	case status == "404", status == "408", // there is none; the time is over
		status == "409" && (text == "Batch Completed" || text == "Message Size Exceeds MaxBytes"):
		if missing, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages")); err == nil {
			return missing, nil
		}
		return left, nil
	default:
		return 0, fmt.Errorf("%w: status %s %s", ErrRefused, status, messages.Cut(text))
	}
}

// drop gives the inbox up: what the server still sends there reaches nobody. What came already
// is taken.
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

// giveBack has the server deliver a message again that nobody here wants.
func giveBack(m *nats.Msg) { _ = m.NakWithDelay(retry.PullExpiry) }

// Close ends the pulling. It is called when the last of the other methods has returned.
func (p *Pull) Close() {
	p.drop(giveBack)
	if p.status != nil {
		p.nc.RemoveStatusListener(p.status)
		p.status = nil
	}
}
