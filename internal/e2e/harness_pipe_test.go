package e2e

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"

	"errand/internal/sandbox/devkit"
)

// inProcess dials the server without a network.
type inProcess struct{ n *devkit.NATS }

func (d inProcess) Dial(string, string) (net.Conn, error) { return d.n.InProcessConn() }

// pipe is a listener without a network.
type pipe struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipe) Close() error {
	select {
	case <-p.done:
		return errors.New("closed before")
	default:
		close(p.done)
		return nil
	}
}

func (p *pipe) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipe) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, srv := net.Pipe()
	select {
	case p.conns <- srv:
		return client, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// receiving has callbacks taken without a network.
type receiving struct{ b *bubble }

func (r receiving) RoundTrip(request *http.Request) (*http.Response, error) {
	if r.b.callbacks == nil {
		return nil, errors.New("nobody takes callbacks")
	}
	w := httptest.NewRecorder()
	r.b.callbacks.ServeHTTP(w, request)
	return w.Result(), nil
}
