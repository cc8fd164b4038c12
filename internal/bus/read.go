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
	"errand/pkg/messages"
)

// stored is a message as a stream has it.
type stored struct {
	subject string
	seq     uint64
	at      time.Time
	header  nats.Header // of a direct get only
	data    []byte
}

// insist is get until there is an answer or ctx ends.
func (s EventStore) insist(ctx context.Context, op messages.Operation, what map[string]any) (*stored, error) {
	for n := 1; ; n++ {
		got, err := s.get(ctx, op, what)
		if err == nil || !retry.Pause(ctx, retry.Store.Wait(n)) {
			return got, err
		}
	}
}

// get asks the events stream of op for one event; nil: there is none. What is stale in it
// the fences of whatever is written upon it make harmless.
func (s EventStore) get(ctx context.Context, op messages.Operation, what map[string]any) (*stored, error) {
	return direct(ctx, s.Publisher.nc, EventsOf(op), what)
}

func lastOf(filter string) map[string]any { return map[string]any{"last_by_subj": filter} }

// direct asks any replica of a stream for one message; nil: it has none. It may lag
// behind the others.
func direct(ctx context.Context, nc *nats.Conn, stream string, what map[string]any) (*stored, error) {
	m, err := ask(ctx, nc, "$JS.API.DIRECT.GET."+stream, what)
	if errors.Is(err, nats.ErrNoResponders) { // or so a message without a body says
		m, err = askOnce(ctx, nc, "$JS.API.DIRECT.GET."+stream, what)
	}
	if err != nil {
		return nil, err
	}
	switch status := statusOf(m); status {
	case "":
	case "404":
		return nil, nil
	case "503":
		return nil, nats.ErrNoResponders
	default:
		return nil, fmt.Errorf("nats: direct get: status %s %s", status, m.Header.Get("Description"))
	}
	return storedIn(m)
}

// storedIn is the message in the answer to a direct get.
func storedIn(m *nats.Msg) (got *stored, err error) {
	got = &stored{subject: added(m, jetstream.SubjectHeader), header: m.Header, data: m.Data}
	if got.seq, err = strconv.ParseUint(added(m, jetstream.SequenceHeader), 10, 64); err == nil {
		got.at, err = time.Parse(time.RFC3339Nano, added(m, jetstream.TimeStampHeaer))
	}
	if err != nil {
		return nil, fmt.Errorf("nats: direct get: %w", err)
	}
	return got, nil
}

// added is a header that the server has added to a stored message. Whoever stored it may have
// given it the same: the server's is the last one.
func added(m *nats.Msg, name string) string {
	if values := m.Header[name]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// statusOf is what the server says instead of a message; "": this is a stored one, which may
// have any status of its own.
func statusOf(m *nats.Msg) string {
	if added(m, jetstream.StreamHeader) != "" {
		return ""
	}
	return m.Header.Get("Status")
}

// fromLeader asks the leader of a stream for one message; nil: the stream has none.
// Errors: the leader's *jetstream.APIError, or that nobody answers within retry.Answer.
func fromLeader(ctx context.Context, nc *nats.Conn, stream string, what map[string]any) (*stored, error) {
	var answer struct {
		Message struct {
			Subject  string    `json:"subject"`
			Sequence uint64    `json:"seq"`
			Data     []byte    `json:"data"`
			Time     time.Time `json:"time"`
		} `json:"message"`
		Error *jetstream.APIError `json:"error"`
	}
	m, err := ask(ctx, nc, "$JS.API.STREAM.MSG.GET."+stream, what)
	if err == nil {
		err = json.Unmarshal(m.Data, &answer)
	}
	switch {
	case err != nil:
	case answer.Error == nil:
		return &stored{subject: answer.Message.Subject, seq: answer.Message.Sequence, at: answer.Message.Time, data: answer.Message.Data}, nil
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

// Place is where a message lies in its stream; a zero one: there is no message.
type Place struct {
	Sequence uint64
	Time     time.Time
}

// answersTo asks JetStream and gives the answers, up to n. The client takes nothing of them for a
// status, as it does with those of a subscription of its own.
func answersTo(nc *nats.Conn, subject string, what map[string]any, n int) (answers chan *nats.Msg, end func(), err error) {
	body, _ := json.Marshal(what) // texts, numbers and times always encode
	answers = make(chan *nats.Msg, n)
	sub, err := nc.ChanSubscribe(nc.NewInbox(), answers)
	if err != nil {
		return nil, nil, err
	}
	if err := nc.PublishRequest(subject, sub.Subject, body); err != nil {
		_ = sub.Unsubscribe()
		return nil, nil, err
	}
	return answers, func() { _ = sub.Unsubscribe() }, nil // the rest is given up
}

// askOnce is ask, for an answer that may be a message with any headers.
func askOnce(ctx context.Context, nc *nats.Conn, subject string, what map[string]any) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.Answer)
	defer cancel()
	answers, end, err := answersTo(nc, subject, what, 1)
	if err != nil {
		return nil, err
	}
	defer end()
	select {
	case m := <-answers:
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// LastPlace asks the leader of a stream for its last message under a filter: unlike a
// direct get it is not answered by a replica that lags behind. Errors: the server's
// *jetstream.APIError, or that nobody answers within retry.Answer.
func LastPlace(ctx context.Context, nc *nats.Conn, stream, filter string) (Place, error) {
	m, err := fromLeader(ctx, nc, stream, lastOf(filter))
	if err != nil || m == nil {
		return Place{}, err
	}
	return Place{m.seq, m.at}, nil
}
