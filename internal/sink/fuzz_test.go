package sink

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// FuzzTally reads any answer to one of two writes: only one that names a stream and no
// error counts as stored, a refusal ends the wait, and a foreign or late one disturbs
// nobody.
func FuzzTally(f *testing.F) {
	for _, data := range []string{"", "null", "{}", `{"stream":"S","seq":7}`, `{"stream":"S","seq":-1}`, `{"stream":"","seq":1}`, `{"stream":"S","duplicate":true}`, `{"error":{"code":503}}`, `{"stream":"S","error":{"err_code":10071}}`, `{"stream":7}`, "\xff"} {
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

		y := &tally{prefix: "in.", first: 0}
		first, all := y.begin(2)
		y.acknowledged(&nats.Msg{Subject: "in." + token, Data: data})
		y.acknowledged(&nats.Msg{Subject: "in." + token, Data: data})
		seen := 0
		for i := range 2 {
			if y.seen[i] {
				seen++
				if err := y.answer(i); (err == nil) != good {
					t.Fatalf("%q counts as %v", data, err)
				}
			} else if y.answer(i) == nil {
				t.Fatalf("%q to %q: write %d counts as stored without an answer", data, token, i)
			}
		}
		refusal := seen > 0 && readable && said.Error != nil
		select {
		case <-all:
			if !refusal {
				t.Fatalf("%q to %q ends the wait, seen %d", data, token, seen)
			}
		default:
			if refusal {
				t.Fatalf("%q to %q does not end the wait", data, token)
			}
		}
		if first != 0 || seen > 1 || y.left != 2-seen {
			t.Fatalf("%q: seen %d, left %d", token, seen, y.left)
		}
	})
}
