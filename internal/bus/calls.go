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
	return func(yield func(poll.Record, error) bool) {
		outcome, sent, err := d.ends(ctx)
		if err != nil {
			yield(poll.Record{}, err)
			return
		}
		for _, part := range []struct {
			*reader
			filter string
			last   uint64
		}{{&d.sent, messages.Log.Subject(messages.Sent, ">"), sent}, {&d.outcomes, "", outcome}} {
			if part.last+1 < part.next { // a new stream
				part.next = 0
			}
			if part.next == 0 {
				part.since = since
			}
			var filters []string
			if part.filter != "" {
				filters = []string{part.filter}
			}
			if part.last == 0 {
				continue
			}
			whole, err := part.follow(ctx, d.js, jetstream.OrderedConsumerConfig{FilterSubjects: filters}, part.last, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
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

// ends gives the sequences of the last event in MAIL_EVENTS and of the last record of
// a call.
func (d *Deliveries) ends(ctx context.Context) (outcome, sent uint64, err error) {
	var info struct {
		State struct {
			Last uint64 `json:"last_seq"`
		} `json:"state"`
	}
	if err = d.ask(ctx, "STREAM.INFO."+MailEvents, nil, &info); err != nil {
		return 0, 0, err
	}
	var last struct {
		Message struct {
			Sequence uint64 `json:"seq"`
		} `json:"message"`
	}
	err = d.ask(ctx, "STREAM.MSG.GET."+MailDeliveries, map[string]string{"last_by_subj": messages.Log.Subject(messages.Sent, ">")}, &last)
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeMessageNotFound {
		err = nil
	}
	return info.State.Last, last.Message.Sequence, err
}

// ask asks the API of JetStream for something that only leaders answer.
func (d *Deliveries) ask(ctx context.Context, what string, with, into any) error {
	var body []byte
	if with != nil {
		body, _ = json.Marshal(with) // texts always encode
	}
	for try := 1; ; try++ {
		err := d.askOnce(ctx, what, body, into)
		var api *jetstream.APIError
		if err == nil || errors.As(err, &api) && api.Code < 500 || try == lastTries || !retry.Pause(ctx, time.Duration(try)*100*time.Millisecond) {
			return err
		}
	}
}

func (d *Deliveries) askOnce(ctx context.Context, what string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, ackWait)
	defer cancel()
	m, err := d.log.Publisher.nc.RequestWithContext(ctx, "$JS.API."+what, body)
	if err != nil {
		return fmt.Errorf("bus: ask %s: %w", what, err)
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err = json.Unmarshal(m.Data, &answer); err == nil && answer.Error != nil {
		err = answer.Error
	}
	if err == nil {
		err = json.Unmarshal(m.Data, into)
	}
	if err != nil {
		return fmt.Errorf("bus: ask %s: %w", what, err)
	}
	return nil
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
