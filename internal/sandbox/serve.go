package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// defaultAddr is where Serve listens by default.
const defaultAddr = "127.0.0.1:8085"

// shutdownGrace is how long Serve waits for calls under way when it stops.
const shutdownGrace = 5 * time.Second

// Serve serves a new sandbox on addr ("" is defaultAddr) until ctx ends, which is not an error. ready, if not nil, is called
// with it and its base URL once calls are accepted.
func Serve(ctx context.Context, addr string, o Options, ready func(s *Sandbox, url string)) error {
	listener, err := net.Listen("tcp", cmp.Or(addr, defaultAddr))
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	s := New(o)
	defer s.Close()
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if ready != nil {
		ready(s, "http://"+listener.Addr().String())
	}
	select {
	case err := <-served:
		return fmt.Errorf("sandbox: %w", err)
	case <-ctx.Done():
	}

	s.Close() // so that no call waits in a delay
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err = server.Shutdown(grace); errors.Is(err, context.DeadlineExceeded) {
		err = server.Close() // cuts off the remaining callers; this is not an error
	}
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, failed)
	}
	return err
}
