package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
)

// Message is a message as a stream has it.
type Message struct {
	Subject  string
	Sequence uint64
	Time     time.Time
	Header   nats.Header
	Data     []byte
	Pending  uint64 // messages under the filter after this one; of a Scan only
}

// ErrNoStream says that no stream of that name answers this user.
var ErrNoStream = errors.New("there is no such stream, or this user may not read it")

func noStream(stream string, err error) error {
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("stream %s: %w", stream, ErrNoStream)
	}
	return err
}

// Last returns the last message under a filter, as any replica has it; false means that there is none. Errors: ErrNoStream.
func Last(ctx context.Context, nc *nats.Conn, stream, filter string) (Message, bool, error) {
	got, err := direct(ctx, nc, stream, lastOf(filter))
	if err != nil || got == nil {
		return Message{}, false, noStream(stream, err)
	}
	return *got, true, nil
}

func lastOf(filter string) map[string]any { return map[string]any{"last_by_subj": filter} }

// anywhere asks any replica of a stream for one message and, if it has none, the leader; nil means that there is none.
func anywhere(ctx context.Context, nc *nats.Conn, stream string, what map[string]any) (*Message, error) {
	got, err := direct(ctx, nc, stream, what)
	if err == nil && got == nil {
		got, err = fromLeader(ctx, nc, stream, what)
	}
	return got, err
}

// direct asks any replica of a stream for one message; nil means that it has none. It may lag behind the others.
func direct(ctx context.Context, nc *nats.Conn, stream string, what map[string]any) (*Message, error) {
	subject := api(nc, "DIRECT.GET."+stream)
	m, err := ask(ctx, nc, subject, what)
	if errors.Is(err, nats.ErrNoResponders) { // or the client took a message without a body for that
		err = askMany(ctx, nc, subject, what, 1, func(one *nats.Msg) (more bool, err error) {
			m = one
			return false, nil
		})
	}
	if err != nil {
		return nil, err
	}
	return messageIn(m)
}

// messageIn reads the message in the answer to a direct get; nil means that there is none, or no further one.
func messageIn(m *nats.Msg) (got *Message, err error) {
	switch status := statusOf(m); status {
	case "":
	case "204", "404":
		return nil, nil
	case "413":
		return nil, errManySubjects
	case "503":
		return nil, nats.ErrNoResponders
	default:
		return nil, fmt.Errorf("nats: direct get: status %s %s", status, m.Header.Get("Description"))
	}
	got = &Message{Subject: added(m, jetstream.SubjectHeader), Header: m.Header, Data: m.Data}
	if got.Sequence, err = strconv.ParseUint(added(m, jetstream.SequenceHeader), 10, 64); err == nil {
		got.Time, err = time.Parse(time.RFC3339Nano, added(m, jetstream.TimeStampHeaer))
	}
	if err != nil {
		return nil, fmt.Errorf("nats: direct get: %w", err)
	}
	return got, nil
}

// added is a header that the server added to a stored message: the last one, since its publisher may have given the same.
func added(m *nats.Msg, name string) string {
	if values := m.Header[name]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// statusOf is what the server says instead of a message; "" means a stored one, which may have a Status header itself.
func statusOf(m *nats.Msg) string {
	if added(m, jetstream.StreamHeader) != "" {
		return ""
	}
	return m.Header.Get("Status")
}

// fromLeader asks a stream's leader for one message; nil means that it has none. Errors: its *jetstream.APIError, or no answer.
func fromLeader(ctx context.Context, nc *nats.Conn, stream string, what map[string]any) (*Message, error) {
	var answer struct {
		Message struct {
			Subject  string    `json:"subject"`
			Sequence uint64    `json:"seq"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
			Time     time.Time `json:"time"`
		} `json:"message"`
		Error *jetstream.APIError `json:"error"`
	}
	m, err := ask(ctx, nc, api(nc, "STREAM.MSG.GET."+stream), what)
	if err == nil {
		err = json.Unmarshal(m.Data, &answer)
	}
	switch got := answer.Message; {
	case err != nil:
	case answer.Error == nil:
		m := &Message{Subject: got.Subject, Sequence: got.Sequence, Time: got.Time, Data: got.Data}
		if len(got.Header) > 0 {
			m.Header, _ = nats.DecodeHeadersMsg(got.Header) // what the server cannot have stored is left out
		}
		return m, nil
	case answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	default:
		err = answer.Error
	}
	return nil, fmt.Errorf("nats: ask the leader of %s: %w", stream, err)
}

// ask sends a request to JetStream and waits for the answer for retry.Answer.
func ask(ctx context.Context, nc *nats.Conn, subject string, what map[string]any) (*nats.Msg, error) {
	body, _ := json.Marshal(what) // texts, numbers and times always encode
	ctx, cancel := context.WithTimeout(ctx, retry.Answer)
	defer cancel()
	return nc.RequestWithContext(ctx, subject, body)
}

// askMany sends a request to JetStream and calls each with up to n answers, for retry.Answer, none of which the client takes for a status.
func askMany(ctx context.Context, nc *nats.Conn, subject string, what map[string]any, n int,
	each func(*nats.Msg) (more bool, err error)) error {
	body, _ := json.Marshal(what) // texts, numbers and times always encode
	ctx, cancel := context.WithTimeout(ctx, retry.Answer)
	defer cancel()
	answers := make(chan *nats.Msg, n)
	sub, err := nc.ChanSubscribe(nc.NewInbox(), answers)
	if err != nil {
		return fmt.Errorf("nats: ask %s: %w", subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // the rest is given up
	if err := nc.PublishRequest(subject, sub.Subject, body); err != nil {
		return fmt.Errorf("nats: ask %s: %w", subject, err)
	}
	for more := true; more; {
		select {
		case m := <-answers:
			if more, err = each(m); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
