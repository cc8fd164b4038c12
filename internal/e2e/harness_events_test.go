package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

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
	err := json.Unmarshal([]byte(e.Raw), &body)
	fatalIf(t, err != nil, "%s: %v: %s", e.Subject, err, e.Raw)
	return body
}

// finalEvent returns the one final event of a history; the error says that there is none, or more than one, or
// something after it. What becomes known later of one that ended as uncertain is left out.
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

// event is one stored event, read back.
type event struct {
	Subject  string
	Sequence uint64 // in its stream
	Header   nats.Header
	Body     map[string]any
	Raw      string
}

func (e event) reason() string { s, _ := e.Body["reason"].(string); return s }

// evidence counts the records that an event quotes.
func (e event) evidence() int { records, _ := e.Body["evidence"].([]any); return len(records) }

func number(v any) int { f, _ := v.(float64); return int(f) }

// must ends the test for an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// errorIf fails the test when wrong is true.
func errorIf(t *testing.T, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Errorf(format, args...)
	}
}

// fatalIf ends the test when wrong is true.
func fatalIf(t *testing.T, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Fatalf(format, args...)
	}
}

// noError fails the test for an error; goroutines may call it too.
func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// equal fails the test when got is not want.
func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
