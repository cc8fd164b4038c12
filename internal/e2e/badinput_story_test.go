package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/app"
	"errand/internal/sandbox"
)

// marked stands for a payer's data: it is in many values of the stories of bad input,
// and must never be in a log.
const marked = "zqPayer"

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

// queue is one of the four kinds of requests.
type queue struct {
	subject, stream string
	good            func(id string) any
	state           string // that good ends in
	call            string // its call, in the oracle
}

func queues() []queue {
	asking := func(id string) any { return map[string]any{"request_id": id} }
	return []queue{
		{"mandate.enroll.requested", "MANDATE_REQUESTS", func(id string) any { return enrollment(id) }, "succeeded", "enroll"},
		{"mandate.transactions.requested", "MANDATE_REQUESTS", asking, "listed", "transactions"},
		{"mail.send.requested", "MAIL_REQUESTS", func(id string) any { return message(id, 1) }, "accepted", "send"},
		{"mail.account.requested", "MAIL_REQUESTS", asking, "reported", "account"},
	}
}

// event is the subject of the queue's event in a state.
func (q queue) event(state, id string) string {
	return strings.Replace(q.subject, "requested", state+"."+id, 1)
}

// program is the one that works off the queue.
func (b *bubble) program(q queue, concurrency int, logger *zerolog.Logger) app.Program {
	if strings.HasPrefix(q.subject, "mandate") {
		p := b.mandates()
		p.Concurrency, p.Logger = concurrency, logger
		return p
	}
	p := b.mails()
	p.Concurrency, p.Logger = concurrency, logger
	return p
}

func (b *bubble) logger() (*record, *zerolog.Logger) {
	r := &record{}
	logger := zerolog.New(io.MultiWriter(b.logs, r)).Level(zerolog.DebugLevel)
	return r, &logger
}

// raw publishes as a client does that checks nothing: the header lines go to the
// server as they are. It gives the sequence in the stream.
func (b *bubble) raw(subject string, header []string, body string) uint64 {
	b.t.Helper()
	conn, err := b.n.InProcessConn()
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	if _, err := in.ReadString('\n'); err != nil { // INFO
		b.t.Fatal(err)
	}
	head := "NATS/1.0\r\n"
	for _, line := range header {
		head += line + "\r\n"
	}
	head += "\r\n"
	var said sync.WaitGroup
	said.Go(func() { // the pipe has no buffer: the server may answer while we write
		_, _ = fmt.Fprintf(conn, "CONNECT {\"headers\":true,\"verbose\":false,\"no_responders\":true}\r\nSUB raw 1\r\nHPUB %s raw %d %d\r\n%s%s\r\n",
			subject, len(head), len(head)+len(body), head, body)
	})
	defer said.Wait()
	for {
		line, err := in.ReadString('\n')
		if err != nil || strings.HasPrefix(line, "-ERR") {
			b.t.Fatalf("publish: %q %v", line, err)
		}
		if !strings.HasPrefix(line, "MSG raw") {
			continue
		}
		var ack struct {
			Seq   uint64
			Error json.RawMessage
		}
		if line, err = in.ReadString('\n'); err != nil || json.Unmarshal([]byte(line), &ack) != nil || ack.Seq == 0 {
			b.t.Fatalf("%s %.200q: %q %v", subject, header, line, err)
		}
		return ack.Seq
	}
}

// poisoned tells the story of a queue that begins with bad requests: each gets its one
// event and its dead letter, none is called for, and the good ones behind it are answered.
func poisoned(t *testing.T, q queue, concurrency int, kinds []poison) {
	inBubble(t, func(t *testing.T, b *bubble) {
		sequences := make([]uint64, len(kinds))
		for i, k := range kinds {
			sequences[i] = b.raw(q.subject, k.header, k.body)
		}
		const goods = 3
		for i := range goods {
			b.publish(q.subject, q.good(fmt.Sprint("good-", i)))
		}
		logged, logger := b.logger()
		failed := b.all(q.event("failed", "*"), len(kinds))
		good := b.all(q.event(q.state, "*"), goods)
		b.run(b.program(q, concurrency, logger), 10*time.Minute, func() bool { return failed() && good() })
		for i := range goods {
			b.wantOne(q.event(q.state, fmt.Sprint("good-", i)))
		}
		b.queueEmpty(q.stream)

		events, dead := map[string]event{}, map[string]event{}
		for _, e := range b.told(q.event("*", "*")) {
			if _, id, _ := cutLast(e.Subject); !strings.HasPrefix(id, "good-") {
				if events[id].Subject != "" {
					t.Errorf("%s has two events, %s and %s", id, events[id].Subject, e.Subject)
				}
				events[id] = e
			}
		}
		for _, d := range b.told("dead." + q.subject) {
			dead[d.Header.Get("Errand-Sequence")] = d
		}
		if len(events) != len(kinds) || len(dead) != len(kinds) {
			t.Errorf("%d events and %d dead letters of %d bad requests", len(events), len(dead), len(kinds))
		}
		for i, k := range kinds {
			id := k.id
			if id == "" {
				id = fmt.Sprint(q.stream, "-", sequences[i])
			}
			k.check(t, id, events[id], dead[fmt.Sprint(sequences[i])])
		}
		if n := b.box.Oracle(sandbox.Query{}).Calls[q.call]; n != goods {
			t.Errorf("%d calls of %s, want %d: those of the good ones", n, q.call, goods)
		}
		if n := logged.count(marked); n != 0 {
			t.Errorf("%d lines of the log hold data of a request", n)
		}
		if n := logged.count("put back"); n != 0 {
			t.Errorf("%d requests were put back\n%s", n, b.logs)
		}
	})
}

func cutLast(subject string) (before, after string, found bool) {
	i := strings.LastIndexByte(subject, '.')
	return subject[:max(i, 0)], subject[i+1:], i >= 0
}

func (p poison) check(t *testing.T, id string, e, dead event) {
	t.Helper()
	fields, _ := e.Body["fields"].(map[string]any)
	if e.reason() != "invalid_request" || fields[p.field] == nil || e.Body["request_id"] != id || e.Header.Get("Ce-Id") != "" {
		t.Errorf("%s: want failed/invalid_request of %s under %s, got %s %.500s", p, p.field, id, e.Subject, e.Raw)
	}
	if dead.Raw != p.body || dead.Header.Get("Errand-Reason") != "invalid_request" || dead.Header.Get("Errand-Request-Id") != id || dead.Header.Get("Errand-Deliveries") != "1" {
		t.Errorf("%s: dead letter %.200q %.500v", p, dead.Raw, dead.Header)
	}
	for name := range dead.Header {
		if l := strings.ToLower(name); strings.HasPrefix(l, "nats-expected") || l == "nats-rollup" || l == "nats-ttl" || strings.HasPrefix(l, "nats-schedule") {
			t.Errorf("%s: the dead letter was given %s", p, name)
		}
	}
}
