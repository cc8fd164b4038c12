package consumer

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/history"
	"errand/internal/requests/hold"
	"errand/internal/telemetry"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// Outcome is a settled delivery of a request, as an Observer gets it.
type Outcome struct {
	Operation  messages.Operation
	State      messages.State
	Reason     messages.Reason // "" where it went well
	Repeated   bool            // it had ended before this delivery
	DeadLetter bool            // one was stored
	Took       time.Duration   // since it was taken
	Age        time.Duration   // since it was published
}

// ending is how a request ended: what is logged, counted and, where it went wrong, written on its dead letter.
type ending struct {
	id       string
	state    messages.State
	why      cause  // where it did not go well
	sequence uint64 // of the event
	before   bool   // it had ended before this delivery
	attempt  int
}

func (e ending) wrong() bool {
	return e.state == messages.Failed || e.state == messages.Uncertain || e.state == messages.Partial
}

// dead reports whether the request gets a dead letter: not if every batch was accepted, some with fewer recipients.
func (e ending) dead() bool { return e.wrong() && !(e.state == messages.Partial && e.why.accepted) }

type cause struct {
	messages.Facts
	Unsettled []messages.Unsettled `json:"unsettled"` // batches of a message
	All       int                  `json:"unsettled_count"`
	accepted  bool                 // every batch was, some with fewer recipients
}

// causeOf reads the cause from a final event; for a partial one it is its first batch's that was not accepted.
func causeOf(body []byte) (c cause, err error) {
	err = json.Unmarshal(body, &c)
	if _, other := errors.AsType[*json.UnmarshalTypeError](err); other { // the rest was read
		err = nil
	}
	i := slices.IndexFunc(c.Unsettled, func(u messages.Unsettled) bool { return u.State != messages.Accepted })
	c.accepted = i < 0 && len(c.Unsettled) == c.All
	if c.Reason == "" && len(c.Unsettled) > 0 {
		first := c.Unsettled[max(i, 0)]
		c.Reason, c.Message, c.HTTPStatus = first.Reason, first.Message, first.HTTPStatus
	}
	return c, err
}

const maxNames = 20

// fieldName is what looks like the name of a field: some lower-case words.
var fieldName = regexp.MustCompile(`^[a-z][a-z_]{0,39}\z`)

// fields are the names of the fields at fault. Names are the requester's or the service's: an unlikely one is shown as "?".
func (c cause) fields() (names []string) {
	for name := range c.Fields {
		if !fieldName.MatchString(name) {
			name = "?"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), maxNames)]
}

// settled logs and counts an acknowledged request. One that did not end well is a warning the first time only.
func (c *Consumer[R]) settled(d *delivery[R], end ending, took time.Duration) {
	c.Settled(Outcome{Operation: c.op.Name, State: end.state, Reason: end.why.Reason, Repeated: end.before, DeadLetter: end.dead(),
		Took: took, Age: time.Since(d.Published)})
	log, level := c.Logger, zerolog.InfoLevel
	if end.wrong() {
		log = log.With().Str("reason", string(end.why.Reason)).Int("http_status", end.why.HTTPStatus).Strs("fields", end.why.fields()).Logger()
		if !end.before {
			level = zerolog.WarnLevel
		}
	}
	log.WithLevel(level).Str("op", string(c.op.Name)).Str("request_id", end.id).Str("state", string(end.state)).
		Bool("repeated", end.before).Int("attempt", end.attempt).Uint64("delivery", d.Delivered).Dur("took", took).Msg("settled")
}

// unsettled is the end of a delivery that goes back to the queue: deferred, or for a fault of the program or of NATS.
func unsettled(end ending, err error) telemetry.Ending {
	e := telemetry.Ending{Request: end.id, State: messages.Deferred}
	if _, later := errors.AsType[*history.RetryLaterError](err); !later {
		e.Failed = !errors.Is(err, history.ErrFenced)
		return e
	}
	if failed, ok := errors.AsType[*clients.Error](err); ok {
		e.Reason = messages.Reason(failed.Reason)
	} else if _, held := errors.AsType[*hold.ActiveError](err); held {
		e.Reason = messages.ReasonHeld
	}
	return e
}
