package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"errand/pkg/messages"
)

// ErrManyCallbacks says that as many callbacks of a request are stored as are kept.
var ErrManyCallbacks = errors.New("bus: as many callbacks of the request are stored as are kept")

// maxCallbacks is how many callbacks of one request are stored; the service sends a few
// for each application and each deduction.
const maxCallbacks = 64

// maxRaces is how often a callback is written over others of its request that came meanwhile.
const maxRaces = 10

// Callback stores a callback of a request, once for each digest: a repeated one is stored
// already. It is fenced like every event, by the last callback of the request. Errors:
// ErrManyCallbacks, or that nobody knows whether it is stored.
func (s EventStore) Callback(ctx context.Context, request string, body *messages.CallbackBody) error {
	e := messages.Event{Operation: messages.Callback, State: messages.Received, ID: request, Body: body}
	filter := messages.Callback.Filter(request)
	m := &nats.Msg{Subject: e.Subject()}
	body.Common = messages.Common{RequestID: request, At: messages.Time{Time: time.Now()}}
	last := uint64(0) // nearly every callback is the first
	for try := 1; ; try++ {
		data, err := e.Encode()
		if err != nil {
			return err
		}
		m.Data, m.Header = data, nats.Header{}
		e.Headers(m.Header, s.Source, body.Digest)
		Fence(m.Header, filter, last)
		_, err = s.Publisher.Publish(ctx, m)
		switch {
		case err == nil:
			return nil
		case tooLarge(err) && messages.Abridge(body):
			continue
		case !IsConflict(err) || try == maxRaces:
			return fmt.Errorf("bus: store a callback of %s: %w", request, err)
		}
		var stored bool
		if last, stored, err = s.callbacks(ctx, filter, body.Digest); err != nil || stored {
			return err
		}
	}
}

// callbacks reads those of a request: the sequence of the last one, and whether one has a
// digest.
func (s EventStore) callbacks(ctx context.Context, filter, digest string) (last uint64, stored bool, err error) {
	scan := Scan{Stream: MandateEvents, Filter: filter, Page: maxCallbacks + 1}
	found, err := scan.Next(ctx, s.Publisher.nc)
	if err != nil || len(found) == 0 {
		return 0, false, err
	}
	for _, m := range found {
		if m.Header.Get(eventID) == digest {
			return 0, true, nil
		}
	}
	if len(found) >= maxCallbacks {
		return 0, false, ErrManyCallbacks
	}
	return found[len(found)-1].Sequence, false, nil
}
