package consumer

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// redrive is a message's claim to be a dead letter that a person has published again. Any publisher can write that, so
// it counts only for a history that a person has reopened for exactly these contents; without one the message is never
// run, under any id. So nobody can take another request's id this way, and a request that is to run under an id which
// it does not name is run under no other, however late the reopening is seen.
type redrive struct {
	redriven bool
	of       string // the id that it is to run under
	reopened uint64 // sequence of the reopened event
}

func redriveOf(m *nats.Msg) redrive {
	sequence := m.Header.Get(bus.HeaderReopened)
	if sequence == "" { // HeaderRequestID alone counts for nothing: a dead letter has it too
		return redrive{}
	}
	r := redrive{redriven: true, of: m.Header.Get(bus.HeaderRequestID)}
	r.reopened, _ = strconv.ParseUint(sequence, 10, 64) // 0 if it is not a number: any reopening will do
	return r
}

// queueIDs is how many of a delivery's ids are given by the queue.
const queueIDs = 2

// findReopened checks a message's claim to be a redrive against the history, and gives it the id that was reopened. If the
// claim is false the message is invalid, with the queue's ids only. While a replica may lag, the message waits.
func (c *Consumer[R]) findReopened(ctx context.Context, d *delivery[R]) error {
	if !d.redriven {
		return nil
	}
	own := d.ids[len(d.ids)-queueIDs:]
	if named := d.ids[:len(d.ids)-queueIDs]; messages.IsID(d.of) && (len(named) == 0 || named[0] == d.of) {
		seen, err := c.reopenedFor(ctx, d)
		switch {
		case err != nil:
			return err
		case seen > 0 && seen >= d.reopened:
			d.reopened, d.ids = seen, append([]string{d.of}, own...)
			return nil
		case time.Since(d.meta.Timestamp) < retry.ReplicaLag:
			return errLags()
		}
	}
	d.ids, d.reopened = own, 0
	d.invalid = &messages.Invalid{Fields: map[string][]string{
		bus.HeaderRequestID: {"names a request that was not reopened with these contents"}}}
	return nil
}

// reopenedFor is the sequence of the last event by which a person reopened the named history for these contents, or 0.
func (c *Consumer[R]) reopenedFor(ctx context.Context, d *delivery[R]) (uint64, error) {
	e, err := c.Log.Last(ctx, c.op.Name, c.op.Name.Subject(messages.Reopened, d.of))
	if err != nil || e.Body == nil {
		return 0, err
	}
	said, err := messages.ReadFacts(e.Body)
	if err != nil || said.By == messages.ByCorrection || said.Fingerprint != d.digest {
		return 0, nil
	}
	return e.Sequence, nil
}

var errBehind = errors.New("a replica does not yet have the event that reopened the request")

// errLags makes a redriven request come back when the replica may have caught up.
func errLags() error {
	return &history.RetryLaterError{At: time.Now().Add(retry.Fenced), Cause: errBehind}
}
