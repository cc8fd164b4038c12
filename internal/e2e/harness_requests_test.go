package e2e

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/programs"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// enrollment is a valid request.
func enrollment(id string, more ...string) map[string]any {
	return having(map[string]any{"request_id": id, "order_number": "order-" + id, "amount": 100, "payer_id_type": 1,
		"payer_id":   "900101011234",
		"payer_name": "Test Payer", "payer_email": "payer@example.test", "payer_telephone_number": "0123456789",
		"frequency_mode": "MT", "application_reason": "story"}, more)
}

// having sets more fields of a body: names and values in turn.
func having(body map[string]any, more []string) map[string]any {
	for i := 0; i+1 < len(more); i += 2 {
		body[more[i]] = more[i+1]
	}
	return body
}

// message is a valid request to n people.
func message(id string, n int, more ...string) map[string]any {
	to := make([]string, n)
	for i := range to {
		to[i] = fmt.Sprintf("%s-%d@example.test", id, i)
	}
	return having(map[string]any{"request_id": id, "to": to, "subject": "story " + id, "content": "hello"}, more)
}

// about is a fault of the calls with a recipient of the request m1 alone.
func about(recipient int, f sandbox.Fault) sandbox.Fault {
	f.Match = fmt.Sprintf("m1-%d@", recipient)
	return f
}

// listed stores n recipients, as message names them, in the object store, and returns a request for them.
func (w *world) listed(id string, n int, more ...string) map[string]any {
	w.t.Helper()
	body := message(id, n, more...)
	return w.listedAs(body, strings.Join(body["to"].([]string), "\n"))
}

// listedAs stores a list as an object of one chunk, and has a request name it instead of its recipients. The messages are
// written by hand: the object store's own Put leaves a goroutine behind now and then, which a bubble does not forgive.
func (w *world) listedAs(body map[string]any, list string) map[string]any {
	w.t.Helper()
	id := body["request_id"].(string)
	sum := sha256.Sum256([]byte(list))
	digest := "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:])
	ctx := w.t.Context()
	_, err := w.js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: "lists"})
	must(w.t, err)
	chunks := 0
	for rest := []byte(list); len(rest) > 0; chunks++ {
		n := min(len(rest), 128<<10)
		_, err := w.js.Publish(ctx, "$O.lists.C."+id, rest[:n])
		must(w.t, err)
		rest = rest[n:]
	}
	_, err = w.js.Publish(ctx, "$O.lists.M."+base64.URLEncoding.EncodeToString([]byte(id)), encode(w.t, map[string]any{
		"name": id, "bucket": "lists", "nuid": id, "size": len(list), "chunks": chunks, "digest": digest, "mtime": time.Now().UTC()}))
	must(w.t, err)
	delete(body, "to")
	body["to_object"] = map[string]string{"bucket": "lists", "name": id, "digest": digest}
	return body
}

// upstreamTime is a time as the e-mandate service writes it.
func upstreamTime(t time.Time) string {
	return t.In(zone).Format(time.DateTime)
}

// zone is the time zone of the e-mandate service's dates.
var zone = time.FixedZone("UTC+8", 8*60*60)

// operation is one of the four kinds of requests, and the program that works on them.
type operation struct {
	messages.Operation
	program   string
	queue     bus.Queue
	call      string         // the sandbox's name for it
	succeeded messages.State // how a good request ends
	request   func(id string, more ...string) map[string]any
	read      *operation // of a write: the read of the same service
}

var (
	listOp    = &operation{messages.Transactions, "mandate-consumer", bus.TransactionsQueue, "transactions", messages.Listed, query, nil}
	accountOp = &operation{messages.Account, "mail-consumer", bus.AccountQueue, "account", messages.Reported, query, nil}
	enrollOp  = &operation{messages.Enroll, "mandate-consumer", bus.EnrollQueue, "enroll", messages.Succeeded, enrollment, listOp}
	sendOp    = &operation{messages.Send, "mail-consumer", bus.SendQueue, "send", messages.Accepted, toOne, accountOp}

	writes     = []*operation{enrollOp, sendOp}
	operations = []*operation{enrollOp, listOp, sendOp, accountOp}
)

// query is a valid request for a read.
func query(id string, more ...string) map[string]any {
	return having(map[string]any{"request_id": id}, more)
}

// toOne is a valid message to one recipient.
func toOne(id string, more ...string) map[string]any { return message(id, 1, more...) }

// events filters all events of the operation's requests, good the last events of requests that ended well.
func (o *operation) events() string { return o.Filter("*") }
func (o *operation) good() string   { return o.Subject(o.succeeded, "*") }

// program is the one that works on an operation.
func (b *bubble) program(o *operation, concurrency int) programs.Program {
	if o.program == "mandate-consumer" {
		p := b.mandates()
		p.Concurrency = concurrency
		return p
	}
	p := b.mails()
	p.Concurrency = concurrency
	return p
}

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

// finalEvent returns the one final event of a history; the error says that there is no final event, or more than one, or
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
