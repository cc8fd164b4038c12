package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/net/netutil"

	"errand/internal/bus"
	"errand/internal/retry"
)

// Receiving is what a program that stores what is sent to it works with.
type Receiving struct {
	Publisher *bus.Publisher
	Metrics   prometheus.Registerer
	Logger    zerolog.Logger
}

// maxConnections is how many connections are open at once; others wait to be accepted.
const maxConnections = 4096

// Receive connects a program that stores what is sent to it, and serves the handler that
// wire returns on addr until ctx ends and what was begun is answered.
func (b *Base) Receive(ctx context.Context, name, addr, variable string, streams []string, wire func(Receiving) http.Handler) error {
	if err := b.validate(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return &Invalid{variable, err.Error()}
	}
	defer func() { _ = listener.Close() }() // as a rule the server has
	r, err := b.start(ctx, name, "")
	if err != nil {
		return err
	}
	defer r.close()
	if _, err := r.needs(ctx, nil, streams...); err != nil {
		return err
	}
	server := &http.Server{Handler: wire(Receiving{r.publisher, r.metrics.registry, r.log}), MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: retry.AdminRead, ReadTimeout: retry.CallbackRead, WriteTimeout: retry.CallbackRead + 2*retry.Callback, IdleTimeout: retry.AdminIdle}
	r.log.Info().Str("addr", listener.Addr().String()).Msg("listens")
	return r.work(ctx, b.ShutdownGrace, func(ctx, hard context.Context) error { return serve(ctx, hard, server, listener) })
}

// serve serves until ctx ends and all requests are answered, or hard ends.
func serve(ctx, hard context.Context, server *http.Server, listener net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(netutil.LimitListener(listener, maxConnections)) }() // waited for below
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	err := server.Shutdown(hard)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = nil // whoever ended it says so
	}
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
