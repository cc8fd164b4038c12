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
