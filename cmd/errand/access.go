package main

import (
	"context"
	"errors"

	"errand/internal/bus/natscontext"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
)

// access is how a command reaches NATS.
type access struct{ natscontext.Options }

// open connects a command.
func (a access) open(ctx context.Context, name string, c console) (broker, error) {
	to, err := a.Resolve()
	if invalid, ok := errors.AsType[*natscontext.Invalid](err); ok {
		return broker{}, &programs.Invalid{Variable: "NATS_CONTEXT", Problem: invalid.Problem}
	}
	return connect(ctx, to, name, c.warnings())
}

// reader is what the commands read with.
func (b broker) reader() inspect.Reader { return inspect.Reader{Conn: b.nc, JS: b.js} }
