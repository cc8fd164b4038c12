package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/pkg/messages"
)

func (e event) state() messages.State { return messages.StateOf(e.Subject) }

// id is what follows the state in the subject: a request id, or <request id>.<n>.
func (e event) id() string { return strings.SplitN(e.Subject, ".", 4)[3] }

func (e event) operation() messages.Operation {
	tokens := strings.SplitN(e.Subject, ".", 3)
	return messages.Operation(tokens[0] + "." + tokens[1])
}

func (e event) final() bool { return e.state().Final(e.operation()) }

// decode reads an event's body into the struct that the contract has for it.
func decode[B any](t *testing.T, e event) (body B) {
	t.Helper()
	if err := json.Unmarshal([]byte(e.Raw), &body); err != nil {
		t.Fatalf("%s: %v: %s", e.Subject, err, e.Raw)
	}
	return body
}

// histories gives every event under a filter by what it is about, in the order in
// which they were stored.
func (in *installation) histories(filter string) map[string][]event {
	in.t.Helper()
	out := map[string][]event{}
	for _, e := range in.events(filter) {
		out[e.id()] = append(out[e.id()], e)
	}
	return out
}

// finalEvent gives the one final event of a history; the error says that there is none, or
// more than one, or something after it. What becomes known later of one that ended as
// uncertain is left out.
func finalEvent(history []event) (event, error) {
	if n := len(history); n > 1 && history[n-1].state() == messages.Resolved && history[n-2].state() == messages.Uncertain {
		history = history[:n-1]
	}
	var states []messages.State
	ends := 0
	for _, e := range history {
		states = append(states, e.state())
		if e.final() {
			ends++
		}
	}
	if ends != 1 || !history[len(history)-1].final() {
		return event{}, fmt.Errorf("%d final events, want one and nothing after it: %v", ends, states)
	}
	return history[len(history)-1], nil
}

// wantFinal fails unless the history under filter has exactly one final event, the last.
func (in *installation) wantFinal(filter string) event {
	in.t.Helper()
	e, err := finalEvent(in.events(filter))
	if err != nil {
		in.t.Fatalf("%s: %v\n%s", filter, err, in.lastOutput())
	}
	return e
}

// event is one stored event, read back.
type event struct {
	Subject  string
	Sequence uint64 // in its stream
	Header   nats.Header
	Body     map[string]any
	Raw      string
}

func (e event) reason() string { s, _ := e.Body["reason"].(string); return s }

func readEvents(t *testing.T, js jetstream.JetStream, filter string) (out []event) {
	t.Helper()
	stream := map[string]string{"mandate": bus.MandateEvents, "mail": bus.MailEvents, "dead": bus.DeadLetters}[strings.Split(filter, ".")[0]]
	if strings.HasPrefix(filter, "mail.delivery") || strings.HasPrefix(filter, "mail.log") {
		stream = bus.MailDeliveries
	}
	c := insist(t, func() (jetstream.Consumer, error) {
		return js.OrderedConsumer(t.Context(), stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}})
	})
	info := insist(t, func() (*jetstream.ConsumerInfo, error) { return c.Info(t.Context()) })
	end := time.Now().Add(time.Minute)
	for left := info.NumPending; left > 0; {
		batch, err := c.Fetch(int(min(left, 500)), jetstream.FetchMaxWait(5*time.Second))
		if err == nil {
			for m := range batch.Messages() {
				e := event{Subject: m.Subject(), Header: m.Headers(), Raw: string(m.Data())}
				if meta, err := m.Metadata(); err == nil {
					e.Sequence = meta.Sequence.Stream
				}
				_ = json.Unmarshal(m.Data(), &e.Body) // dead letters need not be JSON
				out = append(out, e)
				left--
				end = time.Now().Add(time.Minute)
			}
			err = batch.Error()
		}
		// In a cluster the consumer's server may not know yet who asks.
		if left > 0 && (err != nil && !bus.IsUnavailable(err) || time.Now().After(end)) {
			t.Fatalf("%s: %d events do not come: %v", filter, left, err)
		}
		if err != nil {
			<-time.After(100 * time.Millisecond)
		}
	}
	return out
}

func number(v any) int { f, _ := v.(float64); return int(f) }

// must ends the test for an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noError fails the test for an error; goroutines may call it too.
func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
