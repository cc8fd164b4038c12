package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// payerMarker stands for a payer's data: it is in many values of bad input, and must never be in a log.
const payerMarker = "zqPayer"

// poison is a request that ends as failed/invalid_request.
type poison struct {
	name   string // shown instead of the body, for long ones
	body   string
	field  string   // that the event must name
	header []string // lines, as a careless client may write them
	id     string   // of the request; "" for <stream>-<sequence>
}

func (p poison) String() string {
	if p.name != "" {
		return p.name
	}
	return fmt.Sprintf("%q %q", p.body, p.header)
}

// wantRejected runs a queue that begins with bad requests: each gets its one
// event and its dead letter, no call is made for it, and the good ones behind it are answered.
func wantRejected(t *testing.T, q *operation, concurrency int, kinds []poison) {
	inBubble(t, func(t *testing.T, b *bubble) {
		sequences := make([]uint64, len(kinds))
		for i, k := range kinds {
			sequences[i] = b.raw(q.Requested(), k.header, k.body)
		}
		const goods = 3
		b.request(q, "good-", goods)
		logged := b.keepLogs()
		failed := b.published(q.Subject("failed", "*"), len(kinds))
		good := b.published(q.Subject(q.succeeded, "*"), goods)
		b.run(b.program(q, concurrency), 10*time.Minute, func() bool { return failed() && good() })
		for i := range goods {
			b.wantOne(q.Subject(q.succeeded, fmt.Sprint("good-", i)))
		}
		b.queueEmpty(q.queue.Stream)

		events, dead := map[string]event{}, map[string]event{}
		for _, e := range b.events(q.Subject("*", "*")) {
			if id := e.id(); !strings.HasPrefix(id, "good-") {
				errorIf(t, events[id].Subject != "", "%s has two events, %s and %s", id, events[id].Subject, e.Subject)
				events[id] = e
			}
		}
		for _, d := range b.events("dead." + q.Requested()) {
			dead[d.Header.Get("Errand-Sequence")] = d
		}
		errorIf(t, len(events) != len(kinds) || len(dead) != len(kinds),
			"%d events and %d dead letters of %d bad requests", len(events), len(dead), len(kinds))
		for i, k := range kinds {
			id := k.id
			if id == "" {
				id = fmt.Sprint(q.queue.Stream, "-", sequences[i])
			}
			k.check(t, id, events[id], dead[fmt.Sprint(sequences[i])])
		}
		calls := b.oracle().Calls[q.call]
		errorIf(t, calls != goods, "%d calls of %s, want %d, for the good ones", calls, q.call, goods)
		n := logged.count(payerMarker)
		errorIf(t, n != 0, "%d lines of the log hold data of a request", n)
		n = logged.count("nak with delay")
		errorIf(t, n != 0, "%d requests were delivered again\n%s", n, b.logs)
	})
}

func (p poison) check(t *testing.T, id string, e, dead event) {
	fields, _ := e.Body["fields"].(map[string]any)
	errorIf(t, e.reason() != "invalid_request" || fields[p.field] == nil || e.Body["request_id"] != id || e.Header.Get("Ce-Id") != "",
		"%s: want failed/invalid_request of %s under %s, got %s %.500s", p, p.field, id, e.Subject, e.Raw)
	errorIf(t, dead.Raw != p.body || dead.Header.Get("Errand-Reason") != "invalid_request" || dead.Header.Get("Errand-Request-Id") != id ||
		dead.Header.Get("Errand-Deliveries") != "1", "%s: dead letter %.200q %.500v", p, dead.Raw, dead.Header)
	for name := range dead.Header {
		if l := strings.ToLower(name); strings.HasPrefix(l, "nats-expected") || l == "nats-rollup" || l == "nats-ttl" ||
			strings.HasPrefix(l, "nats-schedule") {
			t.Errorf("%s: the dead letter was given %s", p, name)
		}
	}
}

// with is a good body in which one field has another value, as JSON.
func with(good map[string]any, field, value string) poison {
	delete(good, "request_id")
	good[field] = json.RawMessage(value)
	var members []string // by hand: not every value here is what encoding/json would write
	for name, v := range good {
		raw, ok := v.(json.RawMessage)
		if !ok {
			raw, _ = json.Marshal(v)
		}
		members = append(members, fmt.Sprintf("%q:%s", name, raw))
	}
	p := poison{body: "{" + strings.Join(members, ",") + "}", field: field}
	if len(value) > 200 {
		p.name = field + " " + value[:100]
	}
	return p
}
