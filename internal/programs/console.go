package programs

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/bus/natscontext"
)

// Pages is the configuration of a program that shows pages to people and calls no upstream.
type Pages struct {
	Base

	Context string `env:"NATS_CONTEXT" placeholder:"NAME" help:"A context of the nats tool, for what the options above do not say." group:"nats"`
}

// Connected is what a program that shows pages works with. Pages say so while there is no connection.
type Connected struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	Logger    zerolog.Logger
	Version   string
}

// Serve connects the program and runs what wire returns until ctx ends. It does not wait for NATS: pages that say what is
// wrong are wanted most while NATS is gone. Its NATS user may not answer to bus.AskStatus.
func (p *Pages) Serve(ctx context.Context, name string, wire func(Connected) (func(ctx, hard context.Context) error, error)) error {
	to, err := natscontext.Options{Connection: p.NATS, Context: p.Context}.Resolve()
	if err != nil {
		return &Invalid{"NATS_CONTEXT", err.Error()}
	}
	c := p.Base
	c.NATS = to
	if err := c.validate(); err != nil {
		return err
	}
	r, err := c.open(name, "")
	if err != nil {
		return err
	}
	defer r.close()
	if r.js, err = bus.OpenJetStream(r.nc); err != nil {
		return err
	}
	run, err := wire(Connected{Conn: r.nc, JetStream: r.js, Logger: r.log, Version: Version()})
	if err != nil {
		return err
	}
	return r.work(ctx, p.ShutdownGrace, run)
}
