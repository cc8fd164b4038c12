package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/history"
	"errand/internal/poll"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// Requests gives the records of calls in MAIL_DELIVERIES and then the events in
// MAIL_EVENTS, those since a time or those that it did not give before, up to the last
// one of each. What the last ones are is asked of the streams' leaders, of the events
// first: every outcome that is given comes with the record of its call.
func (d *Deliveries) Requests(ctx context.Context, since time.Time) iter.Seq2[poll.Record, error] {
	records := messages.Log.Subject(messages.Sent, ">")
	return func(yield func(poll.Record, error) bool) {
		outcome, err := d.end(ctx, MailEvents, "mail.>")
		if err != nil {
			yield(poll.Record{}, err)
			return
		}
		sent, err := d.end(ctx, MailDeliveries, records)
		if err != nil {
			yield(poll.Record{}, err)
			return
		}
		for _, part := range []struct {
			*reader
			filters []string
			end     end
		}{{&d.sent, []string{records}, sent}, {&d.outcomes, nil, outcome}} {
			if part.end.Sequence+1 < part.next && part.end.Time.After(part.at) { // a new stream
				part.next = 0
			}
			if part.next == 0 {
				part.since = since
			}
			if part.end.Sequence == 0 {
				continue
			}
			whole, err := part.follow(ctx, d.js, jetstream.OrderedConsumerConfig{FilterSubjects: part.filters}, part.end.Sequence, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
				return yield(poll.Record{Subject: m.Subject(), Sequence: meta.Sequence.Stream, Body: m.Data()}, nil)
			})
			if err != nil {
				yield(poll.Record{}, fmt.Errorf("bus: read %s: %w", part.stream, err))
			}
			if err != nil || !whole {
				return
			}
		}
	}
}

// end is where a stream ends.
type end struct {
	Sequence uint64    `json:"seq"` // 0: it is empty
	Time     time.Time `json:"time"`
}

// end asks the leader of a stream for its last message on a subject. What the stream's
// state calls its last may have been removed: who waited for that would wait until there
// is another.
func (d *Deliveries) end(ctx context.Context, stream, filter string) (end, error) {
	ask, _ := json.Marshal(lastOf(filter)) // texts always encode
	for try := 1; ; try++ {
		last, err := d.endOnce(ctx, stream, ask)
		var api *jetstream.APIError
		if err == nil || errors.As(err, &api) && api.Code < 500 || try == lastTries || !retry.Pause(ctx, time.Duration(try)*100*time.Millisecond) {
			return last, err
		}
	}
}

func (d *Deliveries) endOnce(ctx context.Context, stream string, ask []byte) (end, error) {
	ctx, cancel := context.WithTimeout(ctx, ackWait)
	defer cancel()
	what := "STREAM.MSG.GET." + stream
	var answer struct {
		Message end                 `json:"message"`
		Error   *jetstream.APIError `json:"error"`
	}
	m, err := d.log.Publisher.nc.RequestWithContext(ctx, "$JS.API."+what, ask)
	if err == nil {
		err = json.Unmarshal(m.Data, &answer)
	}
	switch {
	case err != nil:
	case answer.Error == nil:
		return answer.Message, nil
	case answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return end{}, nil
	default:
		err = answer.Error
	}
	return end{}, fmt.Errorf("bus: ask %s: %w", what, err)
}

// storing is how long a resolution may take to store.
const storing = 20 * time.Second

// Resolve stores what became of a request over the event that left it uncertain. One
// that another poller stored before is as good.
func (d *Deliveries) Resolve(ctx context.Context, e messages.Event, over uint64) error {
	ctx, cancel := context.WithTimeout(ctx, storing)
	defer cancel()
	_, err := d.log.Append(ctx, history.Record{Event: e, Last: over, Writer: d.writer})
	if err != nil && !errors.Is(err, history.ErrConflict) {
		return err
	}
	return nil
}
