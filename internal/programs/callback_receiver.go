package programs

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/callback"
)

// Receiving is what the program that stores callbacks works with.
type Receiving struct {
	Publisher *bus.Publisher
	Metrics   prometheus.Registerer
	Logger    zerolog.Logger
}

// Receive connects the program that stores callbacks, and serves the handler that wire returns
// on addr until ctx ends and what was begun is answered.
func (b *Base) Receive(ctx context.Context, addr string, wire func(Receiving) *callback.Handler) error {
	if err := b.validate(); err != nil {
		return err
	}
	listener, err := listen("CALLBACK_LISTEN", addr, "127.0.0.1:8090")
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // as a rule the server has
	r, err := b.start(ctx, "callback-receiver", "")
	if err != nil {
		return err
	}
	defer r.close()
	r.called = true
	if _, err := r.needs(ctx, nil, bus.MandateEvents); err != nil {
		return err
	}
	handler := wire(Receiving{r.publisher, r.metrics.registry, r.log})
	r.log.Info().Str("addr", listener.Addr().String()).Msg("listens")
	return r.work(ctx, b.ShutdownGrace, func(ctx, hard context.Context) error { return callback.Serve(ctx, hard, listener, handler) })
}
