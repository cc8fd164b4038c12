package callback

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"

	"golang.org/x/net/netutil"

	"errand/internal/retry"
)

const (
	// maxConnections is how many connections are open at once; others wait to be accepted.
	maxConnections = 512
	// maxHeader is how large the line and the headers of a request may be, give or take 4 KiB. Many short headers take
	// twenty times as much memory, and anybody may send those on each of the connections: 512 then take some 140 MiB.
	maxHeader = 8 << 10
)

// Serve serves handler on listener until ctx ends and what was begun is answered, or hard ends.
// No connection is kept for long: one that sends nothing, or slowly, is closed, and while half of
// them are open each answer closes its connection.
func Serve(ctx, hard context.Context, listener net.Listener, handler *Handler) error {
	var open atomic.Int64
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if open.Load() > maxConnections/2 {
				w.Header().Set("Connection", "close")
			}
			handler.ServeHTTP(w, r)
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed:
				open.Add(-1)
			}
		},
		DisableGeneralOptionsHandler: true, // OPTIONS * is answered like any other path
		MaxHeaderBytes:               maxHeader,
		ReadHeaderTimeout:            retry.AdminRead, ReadTimeout: retry.CallbackRead,
		WriteTimeout: retry.CallbackRead + 2*retry.Callback, IdleTimeout: retry.AdminIdle,
	}
	if handler.Answered != nil {
		listener = &counted{listener, handler.Answered}
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(netutil.LimitListener(listener, maxConnections)) }() // waited for below
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	err := server.Shutdown(hard)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = server.Close() // the caller knows that hard has ended
	}
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// counted is a listener that calls answered with each answer's status, also where no handler is reached.
type counted struct {
	net.Listener
	answered func(status int)
}

// Accept waits for the next connection.
func (c *counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countedConn{conn, c.answered}, nil
}

type countedConn struct {
	net.Conn
	answered func(status int)
}

// Write writes an answer, or a part of one. Each answer begins with a new write.
func (c *countedConn) Write(b []byte) (int, error) {
	const line = "HTTP/1.1 200"
	if len(b) >= len(line) && string(b[:len("HTTP/1.")]) == "HTTP/1." {
		status, err := strconv.Atoi(string(b[len("HTTP/1.1 "):len(line)]))
		if err == nil && status >= http.StatusOK { // lower ones come before the answer
			c.answered(status)
		}
	}
	return c.Conn.Write(b)
}
