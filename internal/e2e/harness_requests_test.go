package e2e

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/sandbox"
)

// enrollment is a valid request.
func enrollment(id string, more ...string) map[string]any {
	body := map[string]any{"request_id": id, "order_number": "order-" + id, "amount": 100, "payer_id_type": 1, "payer_id": "900101011234",
		"payer_name": "Test Payer", "payer_email": "payer@example.test", "payer_telephone_number": "0123456789",
		"frequency_mode": "MT", "application_reason": "story"}
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
	body := map[string]any{"request_id": id, "to": to, "subject": "story " + id, "content": "hello"}
	for i := 0; i+1 < len(more); i += 2 {
		body[more[i]] = more[i+1]
	}
	return body
}

// putList stores n recipients, as message names them, as an object of one chunk, and gives
// a request for them. The messages are those of the object store, written by hand: its own
// Put leaves a goroutine behind now and then, which a bubble does not forgive.
func (b *bubble) putList(id string, n int, more ...string) map[string]any {
	b.t.Helper()
	body := message(id, n, more...)
	list := []byte(strings.Join(body["to"].([]string), "\n"))
	delete(body, "to")
	sum := sha256.Sum256(list)
	digest := "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:])
	if _, err := b.js.CreateOrUpdateObjectStore(b.t.Context(), jetstream.ObjectStoreConfig{Bucket: "lists"}); err != nil {
		b.t.Fatal(err)
	}
	b.publish("$O.lists.C."+id, list)
	b.publish("$O.lists.M."+base64.URLEncoding.EncodeToString([]byte(id)), map[string]any{
		"name": id, "bucket": "lists", "nuid": id, "size": len(list), "chunks": 1, "digest": digest, "mtime": time.Now().UTC()})
	body["to_object"] = map[string]string{"bucket": "lists", "name": id, "digest": digest}
	return body
}

// about is a fault of the calls with a recipient of the request m1 alone.
func about(recipient int, f sandbox.Fault) sandbox.Fault {
	f.Match = fmt.Sprintf("m1-%d@", recipient)
	return f
}
