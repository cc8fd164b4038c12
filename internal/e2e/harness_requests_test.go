package e2e

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

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
