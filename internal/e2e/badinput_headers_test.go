package e2e

import (
	"fmt"
	"strings"
	"testing"

	"errand/internal/sandbox/devkit/inshort"
)

// hostileHeaders are what a careless or hostile producer may send along. The bodies are bad,
// so that each needs a dead letter.
func hostileHeaders() (kinds []poison) {
	body := `{"nobody":"` + payerMarker + `"}`
	add := func(name, id string, header ...string) {
		kinds = append(kinds, poison{name: name, body: body, field: "nobody", header: header, id: id})
	}
	for _, id := range []string{".", "*", ">", "..", "a b", "ü", strings.Repeat("x", 65), strings.Repeat("x", 10_000), "a.b", "$JS", "\x01\x7f", "\u202e\u200b", "\xff"} {
		add("Nats-Msg-Id "+id[:min(len(id), 70)], "", "Nats-Msg-Id: "+id)
	}
	add("Nats-Msg-Id null", "null", "Nats-Msg-Id: null")
	add("Nats-Msg-Id 7", "7", "Nats-Msg-Id:7")
	add("two Nats-Msg-Id", "first", "Nats-Msg-Id: first", "Nats-Msg-Id: second")
	add("a fitting Nats-Msg-Id", strings.Repeat("y", 64), "Nats-Msg-Id: "+strings.Repeat("y", 64))
	add("names that no client of ours would write", "", "X Spaced: 1", "Ü: 2", "\"q\": 3", "a\tb: 4", "\xff: 5", "X-\u200b: 6", "(c): 7", "X-Own: kept")
	add("values of all kinds", "", "X-A: \x00\x01\x7f", "X-B: \u2028\u202e\u200b", "X-C: \xff\xfe", "X-D:", "X-E:    ", "X-F: a: b; c")
	add("a header block without colon", "", "no colon here")
	add("an empty name", "", ": value")
	add("one of 60 KiB", "", "X-Long: "+strings.Repeat("v", 60<<10))
	add("all of 64 KiB", "", "X-Long: "+strings.Repeat("v", 32<<10), "Y-Long: "+strings.Repeat("v", 65535-len("NATS/1.0\r\nX-Long: \r\nY-Long: \r\n\r\n")-32<<10))
	add("a name of 60 KiB", "", strings.Repeat("n", 60<<10)+": v")
	var many []string
	for i := range 7000 {
		many = append(many, fmt.Sprintf("%d:%d", i, i%10))
	}
	add("7000 names", "", many...)
	same := make([]string, 10_000)
	for i := range same {
		same[i] = "X:1"
	}
	add("10000 of a name", "", same...)
	add("expectations that held for the request", "", "Nats-Expected-Stream: *", "nats-rollup: all", "NATS-TTL: 1s", "nats-expected-last-sequence: 1", "Nats-Required-Api-Level: 1")
	add("what the server writes", "", "Nats-Stream: X", "Nats-Sequence: 1", "Nats-Num-Pending: 1", "Nats-Last-Stream-Seq: 0", "Nats-Subject: x", "Nats-Marker-Reason: MaxAge")
	add("forged words of ours", "", "Errand-Reason: fine", "errand-writer: me", "Errand-Sequence: 1", "Errand-Request-Id: other", "Errand-Stream: other")
	add("forged CloudEvents", "", "ce-id: forged", "ce-type: forged", "ce-subject: forged", "ce-source: forged", "Ce-Id: forged", "content-type: text/html")
	add("a status and a body", "", "Status: 409", "Description: Consumer Deleted")
	for _, parent := range []string{"", "x", strings.Repeat("0", 10<<10), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\t", "ff-" + strings.Repeat("0", 32), "\u202e\xff\x00", "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01"} {
		add("traceparent "+parent[:min(len(parent), 40)], "", "traceparent: "+parent, "tracestate: "+strings.Repeat("a=b,", 5000))
	}
	return kinds
}

func TestHostileHeadersBlockNothing(t *testing.T) {
	for _, q := range operations {
		for _, concurrency := range inshort.Choose(t, []int{2, 8}, []int{8}) {
			t.Run(fmt.Sprint(q.Requested(), " ", concurrency), func(t *testing.T) {
				kinds := hostileHeaders()
				for i, k := range kinds {
					for j, line := range k.header {
						kinds[i].header[j] = strings.Replace(line, "Nats-Expected-Stream: *", "Nats-Expected-Stream: "+q.queue.Stream, 1)
					}
				}
				wantRejected(t, q, concurrency, kinds)
			})
		}
	}
}
