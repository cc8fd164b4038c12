package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"errand/internal/bus"
	"errand/internal/programs"
)

// mirror creates and updates a reader's copies of the streams of events, in the reader's account.
type mirror struct {
	NATS access `embed:"" group:"nats"`

	Reader  string   `arg:"" help:"The reader's name, as given to errand provision --reader."`
	Streams []string `arg:"" optional:"" help:"The streams to copy; default: MANDATE_EVENTS, MAIL_EVENTS and MAIL_DELIVERIES."`

	Replicas *int           `env:"MIRROR_REPLICAS" placeholder:"N" help:"Copies of each stream: 1, 3 or 5. Default for a new stream: 1."`
	MaxAge   *time.Duration `env:"MIRROR_MAX_AGE" placeholder:"720h" help:"How long events are kept here. Default for a new stream: 720h."`
	MaxBytes *programs.Size `env:"MIRROR_MAX_BYTES" placeholder:"10G" help:"Size of each stream, or none; default: equal shares."`

	consent `embed:"" envprefix:"MIRROR_"`
}

func (*mirror) Help() string {
	return `A service that reads events has its own account on the NATS servers, as in deploy/nats/errand.conf, with
copies of the streams of events under the same names. No other account can delete its durable consumers, and it can
change nothing in errand's account.

It takes two commands: one as errand's provisioner, and one as the user of the service.

    NATS_USER=provisioner errand provision --reader service
    NATS_USER=service     errand mirror service
    NATS_USER=service     errand mirror service MAIL_EVENTS --max-age 168h    # only this one, a week of it

New copies begin with the oldest stored event. A full stream drops its oldest events. Running it again changes nothing.`
}

func (m *mirror) Run(ctx context.Context, c console) error {
	if !bus.ValidReader(m.Reader) {
		return invalid("READER", "must be up to 32 letters, digits, - and _, got %q", m.Reader)
	}
	streams := m.Streams
	if len(streams) == 0 {
		streams = bus.Readable
	}
	for _, name := range streams {
		if !slices.Contains(bus.Readable, name) {
			return invalid("STREAMS", "must be among %s, got %q", strings.Join(bus.Readable, ", "), name)
		}
	}
	limits, err := limits(m.Replicas, m.MaxAge, "MIRROR", "a consumer that stops for longer misses events")
	if err != nil {
		return err
	}
	if m.MaxBytes != nil {
		limits.MaxBytes = int64(*m.MaxBytes)
	}
	return m.NATS.with(ctx, "mirror", c, func(b broker) error {
		plan, err := bus.PlanCopies(ctx, b.Conn, b.JS, m.Reader, streams, limits)
		if err != nil {
			return err
		}
		return m.carryOut(ctx, c, plan)
	})
}
