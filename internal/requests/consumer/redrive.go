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

// redrive is what a message says of being a dead letter that a person has published again.
// Anybody may write that: it is believed of nothing but a history that a person has reopened
// for these very contents, and what says so without one is never run, under no id. So nobody
// takes another's id by it, or one that nobody has, and a request that is to run under an id
// that it does not name itself is run under no other one, however late that event is seen.
type redrive struct {
	redriven bool
	of       string // the id that it is to run under
	reopened uint64 // sequence of the event that says so
}

func redriveOf(m *nats.Msg) redrive {
	said := m.Header.Get(bus.HeaderReopened)
	if said == "" { // the header of a request counts for nothing, as a dead letter has it too
		return redrive{}
	}
	r := redrive{redriven: true, of: m.Header.Get(bus.HeaderRequestID)}
	r.reopened, _ = strconv.ParseUint(said, 10, 64) // what is no number is 0: any reopening will do
	return r
}

// given is how many of a delivery's ids are those that the queue gives.
const given = 2

// findReopened holds what a message says of its redrive against the history, and has it go by
// the id that was reopened. One that is not borne out is invalid, and goes by the ids that the
// queue gives. A replica that answers may lag: until it cannot any more the message waits.
func (c *Consumer[R]) findReopened(ctx context.Context, d *delivery[R]) error {
	if !d.redriven {
		return nil
	}
	own := d.ids[len(d.ids)-given:]
	if named := d.ids[:len(d.ids)-given]; messages.IsID(d.of) && (len(named) == 0 || named[0] == d.of) {
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
	d.invalid = &messages.Invalid{Fields: map[string][]string{bus.HeaderRequestID: {"names no request that somebody has reopened with these contents"}}}
	return nil
}

// reopenedFor is the sequence of the event by which a person has opened, as the last one who
// did, the history that the message names, for its contents; 0: there is none.
func (c *Consumer[R]) reopenedFor(ctx context.Context, d *delivery[R]) (uint64, error) {
	e, err := c.Log.Last(ctx, c.op.Name, c.op.Name.Subject(messages.Reopened, d.of))
	if err != nil || e.Body == nil {
		return 0, err
	}
	var body messages.ReopenedBody
	if messages.DecodeEvent(e.Body, &body) != nil || body.By == messages.ByCorrection || body.Fingerprint != d.print {
		return 0, nil
	}
	return e.Sequence, nil
}

var errBehind = errors.New("a replica does not have the event yet that opened the request again")

// errLags has a redriven request come back when the replica may have caught up.
func errLags() error {
	return &history.RetryLaterError{At: time.Now().Add(retry.Fenced), Cause: errBehind}
}
