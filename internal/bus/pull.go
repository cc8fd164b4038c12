package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
	"errand/pkg/messages"
)

// Pull asks a queue for one message at a time. The library's own pulls take an empty
// message with a Status header, which any producer may send, for a word of the
// server's and give it to nobody; here that is whatever has no reply subject. One
// goroutine may use it at a time.
type Pull struct {
	nc      *nats.Conn
	subject string

	status chan nats.Status   // says when there is a new connection; nil: nobody listens
	sub    *nats.Subscription // of the inbox that the server answers on; nil: there is none
	got    chan *nats.Msg
}

// NewPull asks for messages of a queue that Check gave.
func NewPull(nc *nats.Conn, queue jetstream.Consumer) *Pull {
	info := queue.CachedInfo()
	return &Pull{nc: nc, subject: "$JS.API.CONSUMER.MSG.NEXT." + info.Stream + "." + info.Name}
}

var waits = fmt.Sprintf(`{"batch":1,"expires":%d}`, retry.PullExpiry)

// ErrNoMessage means that the queue had none in the time given.
var ErrNoMessage = errors.New("nats: no message")

// Next waits for a message for about wait, and for retry.PullExpiry at least. When it gives
// none, none is on its way any more: what the server sent to a pull that nobody reads
// would be lost until its AckWait is over. So it may give one after ctx ended. Errors:
// ErrNoMessage, ctx's, or why the server gives none.
func (p *Pull) Next(ctx context.Context, wait time.Duration) (*nats.Msg, error) {
	for end := time.Now().Add(wait); ctx.Err() == nil; {
		r, err := p.once(ctx, waits)
		again := errors.Is(err, errMoved) || errors.Is(err, ErrNoMessage) && time.Now().Before(end)
		if !again {
			return r, err
		}
	}
	return nil, ctx.Err()
}

// Take gives a message that is there, or ErrNoMessage at once.
func (p *Pull) Take(ctx context.Context) (*nats.Msg, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return p.once(ctx, `{"batch":1,"no_wait":true}`)
}

var (
	errSilent = errors.New("nats: the server of the queue says nothing")
	errMoved  = errors.New("nats: the connection was lost")
)

// once asks, and waits for the server's answer, for a connection only until ctx ends.
func (p *Pull) once(ctx context.Context, what string) (*nats.Msg, error) {
	if p.status == nil {
		p.status = p.nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING)
	}
	if !p.nc.IsConnected() { // what is asked now would be asked twice
		select {
		case <-p.status:
		case <-time.After(retry.PullExpiry):
		case <-ctx.Done():
		}
		return nil, errMoved
	}
	if p.sub == nil {
		p.got = make(chan *nats.Msg, 8)
		sub, err := p.nc.ChanSubscribe(p.nc.NewInbox(), p.got)
		if err != nil {
			return nil, fmt.Errorf("nats: pull: %w", err)
		}
		p.sub = sub
	}
	if err := p.nc.PublishRequest(p.subject, p.sub.Subject, []byte(what)); err != nil {
		return nil, fmt.Errorf("nats: pull: %w", err)
	}
	late := time.NewTimer(retry.PullExpiry + retry.Answer)
	defer late.Stop()
	err := errSilent
	select {
	case m := <-p.got:
		return read(m)
	case <-p.status: // the next one may be another server, which was never asked
		err = errMoved
	case <-late.C:
	}
	p.drop()
	return nil, err
}

// read parses a request, or what the server says instead of one.
func read(m *nats.Msg) (*nats.Msg, error) {
	if m.Reply != "" {
		return m, nil
	}
	switch status := m.Header.Get("Status"); status {
	case "404", "408": // there is none; the time is over
		return nil, ErrNoMessage
	default:
		return nil, fmt.Errorf("nats: pull: status %s %s", status, messages.Cut(m.Header.Get("Description")))
	}
}

// drop gives the inbox up: what the server still sends there reaches nobody.
func (p *Pull) drop() {
	if p.sub != nil {
		_ = p.sub.Unsubscribe()
		p.sub = nil
	}
}

// Close ends the pulling. It is called when Next or Take has returned.
func (p *Pull) Close() {
	p.drop()
	if p.status != nil {
		p.nc.RemoveStatusListener(p.status)
		p.status = nil
	}
}
