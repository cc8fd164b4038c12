package consumer

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/requests/hold"
)

// probe settles requests of a held operation until the probe's call was made. A request that made no call has proven
// nothing; one that is overdue may end without a call. The error is why the queue had none.
func (c *Consumer[R]) probe(ctx, hard context.Context, p *bus.Pull, permit *hold.Permit) error {
	for {
		d, err := c.choose(ctx, p, permit)
		if d == nil {
			return err
		}
		if permit.Spent() && time.Now().Before(d.giveUp) {
			c.passOver(d)
			return nil
		}
		c.settle(hard, d)
		if !c.hold.Active() {
			return nil
		}
	}
}

// maxPassedOver is how many requests a probe passes over that were probes already: a hold of a day makes as many.
const maxPassedOver = 10_000

// choose takes the first request that was not yet a probe of this hold or, if the queue has no
// other, the first that was.
func (c *Consumer[R]) choose(ctx context.Context, p *bus.Pull, permit *hold.Permit) (*delivery[R], error) {
	var again *delivery[R]
	for range maxPassedOver {
		var m *nats.Msg
		var err error
		if again == nil && !permit.Spent() {
			m, err = p.Next(ctx, 2*c.hold.Interval)
		} else {
			m, err = p.Take(ctx)
		}
		if err != nil && again != nil {
			break
		}
		if err != nil {
			return nil, err
		}
		d := c.open(m, permit)
		switch {
		case d == nil:
			c.passOver(again)
			return nil, nil
		case permit.Admit(d.ids[0]):
			c.passOver(again)
			return d, nil
		case again == nil:
			again = d
		default:
			c.passOver(d)
		}
	}
	permit.AdmitAgain(again.ids[0])
	return again, nil
}

// passOver gives back a request that may not be worked on now. It returns before the next probe is due.
func (c *Consumer[R]) passOver(d *delivery[R]) {
	if d != nil {
		c.lease.drop(d.message)
		_ = d.message.NakWithDelay(c.hold.Interval / 2)
	}
}

// empty reports whether the queue is known to have no request at all, neither deferred nor with another worker.
func (c *Consumer[R]) empty(ctx context.Context) bool {
	info, err := c.source.Info(ctx)
	return err == nil && info.NumPending == 0 && info.NumAckPending == 0
}
