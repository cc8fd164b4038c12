package sink

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// FuzzAcknowledgements reads any answer to one of two writes: only one that names a stream and no
// error counts as stored, a refusal ends the wait, and a foreign or late one disturbs
// nobody.
func FuzzAcknowledgements(f *testing.F) {
	for _, data := range []string{"", "null", "{}", `{"stream":"S","seq":7}`, `{"stream":"S","seq":-1}`, `{"stream":"","seq":1}`, `{"stream":"S","duplicate":true}`, `{"error":{"code":503}}`, `{"stream":"S","error":{"err_code":10071}}`, `{"stream":7}`, "\xff",
		`{"stream":"MAIL_DELIVERIES", "seq":7}`, `{"stream":"MAIL_DELIVERIES", "seq":}`, `{"stream":"MAIL_DELIVERIES", "seq":07}`, `{"stream":"MAIL_DELIVERIES", "seq":99999999999999999999}`} {
		f.Add([]byte(data), "1")
	}
	f.Add([]byte(`{"stream":"S"}`), "zzzzzzzzzzzzzzzzzz")
	f.Add([]byte(`{"stream":"S"}`), "-1")
	f.Fuzz(func(t *testing.T, data []byte, token string) {
		var said struct {
			Stream    string
			Seq       uint64
			Duplicate bool
			Error     *jetstream.APIError
		}
		readable := json.Unmarshal(data, &said) == nil
		good := readable && said.Stream != "" && said.Error == nil

		a := &acks{prefix: "in."}
		p, later := a.begin(2), a.begin(1)
		a.receive(&nats.Msg{Subject: "in." + token, Data: data})
		a.receive(&nats.Msg{Subject: "in." + token, Data: data})
		seen := 0
		for _, got := range p.got {
			if !errors.Is(got, errUnanswered) {
				seen++
				if (got == nil) != good {
					t.Fatalf("%q counts as %v", data, got)
				}
			}
		}
		refusal := seen > 0 && readable && said.Error != nil
		select {
		case <-p.done:
			if !refusal {
				t.Fatalf("%q to %q ends the wait, seen %d", data, token, seen)
			}
		default:
			if refusal {
				t.Fatalf("%q to %q does not end the wait", data, token)
			}
		}
		if seen > 1 || p.left != 2-seen || seen > 0 && later.left != 1 {
			t.Fatalf("%q: seen %d, left %d and %d", token, seen, p.left, later.left)
		}
	})
}
