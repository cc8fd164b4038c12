package programs

import (
	"context"
	"errors"
	"time"

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

// Connected is what a program that shows pages works with. The connection may be lost, and
// may not be made yet: pages say so.
type Connected struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	Logger    zerolog.Logger
	Version   string
}

// Serve connects the program and runs what wire returns until ctx ends. Unlike the other programs it does not wait for NATS: pages that say
// what is wrong are wanted most while it is gone.
func (p *Pages) Serve(ctx context.Context, name string, wire func(Connected) (run func(ctx, hard context.Context) error, err error)) error {
	to, err := natscontext.Options{Connection: p.NATS, Context: p.Context}.Resolve()
	if invalid, ok := errors.AsType[*natscontext.Invalid](err); ok {
		return &Invalid{"NATS_CONTEXT", invalid.Problem}
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
	if r.js, err = jetstream.New(r.nc); err != nil {
		return err
	}
	version, _, _ := build()
	run, err := wire(Connected{Conn: r.nc, JetStream: r.js, Logger: r.log, Version: version})
	if err != nil {
		return err
	}
	return r.work(ctx, p.ShutdownGrace, run)
}

// open says what is started, starts the admin server and connects; it does not wait for NATS. Unlike
// the other programs it does not answer how it is: its NATS user is not in their account.
func (b *Base) open(name, upstream string) (*runtime, error) {
	r := &runtime{name: name, log: b.logger().With().Str("program", name).Logger(), metrics: newMetrics(), started: time.Now(), starting: "starting: waiting for NATS"}
	r.saysWhatStarts(b.NATS.Servers(), upstream)
	for _, doubt := range b.doubts {
		r.log.Warn().Str("variable", doubt.variable).Str("meant", doubt.meant).Msg("no setting has the name of this variable; was another one meant?")
	}
	r.ready.add(r.waitsFor)
	r.metrics.of(&r.ready)
	stop, err := serveAdmin(b.AdminAddr, adminServer(name, &r.ready, r.metrics.registry), r.log)
	if err != nil {
		return nil, err
	}
	r.cleanups = append(r.cleanups, stop)
	if r.nc, err = bus.Connect(b.NATS, name, r.log); err != nil {
		r.close()
		return nil, &Invalid{"NATS", err.Error()}
	}
	r.cleanups = append(r.cleanups, r.nc.Close)
	r.metrics.ofNATS(r.nc)
	r.rights.watch(r.nc)
	r.ready.add(func() string { return bus.Fault(r.nc) })
	return r, nil
}
