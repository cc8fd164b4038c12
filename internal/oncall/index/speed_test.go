package index

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/history"
	"errand/internal/oncall/inspect"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

var requests = flag.Int("requests", 2000, "how many requests TestPagesAreRightAmongManyRequests indexes; 1000000 measures the index")

// The pages are right among many requests too. How long each takes is logged and not judged:
// that is the machine's.
func TestPagesAreRightAmongManyRequests(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	n := *requests
	began := time.Now()
	messages := in.many(n)
	t.Logf("%d requests, %d messages published in %v", n, messages, time.Since(began).Round(time.Millisecond))
	dir := t.TempDir()
	p := in.process(dir) // by itself, without the server of NATS
	t.Log("indexed, and " + p.current())
	p.kill()
	x := in.open(dir)
	if info, err := os.Stat(filepath.Join(dir, file)); err == nil {
		t.Logf("the file has %d bytes a request", info.Size()/int64(n))
	}
	for _, p := range in.pages(n) {
		slowest, sum, got := time.Duration(0), time.Duration(0), ""
		const times = 5
		for range times {
			began := time.Now()
			answer, err := p.ask(t, x)
			took := time.Since(began)
			if err != nil {
				t.Fatal(err)
			}
			got, slowest, sum = fmt.Sprint(answer), max(slowest, took), sum+took
		}
		t.Logf("%-45s %8v on average, %8v at most", p.what, (sum / times).Round(10*time.Microsecond), slowest.Round(10*time.Microsecond))
		if got != p.want {
			t.Errorf("%s: %s, want %s", p.what, got, p.want)
		}
	}
}

// asked is what a page asks.
type asked struct {
	what string
	ask  func(t *testing.T, x *Index) (any, error)
	want string
}

func (in installation) pages(n int) []asked {
	enrolled, mailed := n*3/5, n*2/5
	rows := func(f Filter) func(*testing.T, *Index) (any, error) {
		return func(t *testing.T, x *Index) (any, error) {
			page, err := x.Requests(t.Context(), f)
			return len(page.Rows), err
		}
	}
	return []asked{
		{"the newest", rows(Filter{}), "50"},
		{"enrollments that failed", rows(Filter{Operations: []messages.Operation{messages.Enroll}, States: []messages.State{messages.Failed}}),
			"50"},
		{"for a reason that none has", rows(Filter{Reasons: []messages.Reason{messages.ReasonLinkLost}}), "0"},
		{"dead letters that are safe", rows(Filter{Dead: true, Classes: []inspect.Class{inspect.Safe}, Limit: 1000}),
			fmt.Sprint(min(1000, enrolled/20))},
		{"of the last hour", rows(Filter{Since: time.Now().Add(-time.Hour)}), "50"},
		{"page after page, twenty", func(t *testing.T, x *Index) (any, error) {
			f, sum := Filter{}, 0
			for range 20 {
				page, err := x.Requests(t.Context(), f)
				if err != nil {
					return nil, err
				}
				sum += len(page.Rows)
				f.Before = page.Next
			}
			return sum, nil
		}, "1000"},
		{"one by its id", func(t *testing.T, x *Index) (any, error) {
			rows, err := x.Request(t.Context(), fmt.Sprint("e", enrolled/2+1))
			return rows[0].State, err
		}, "succeeded"},
		{"an order number", in.names("dd77"), "[{mandate.enroll e77 order number}]"},
		{"a payer", in.names("Payer77@example.com"), "[{mandate.enroll e77 payer}]"},
		{"a recipient", in.names("to77@example.com"), "[{mail.send m77 recipient}]"},
		{"events of three days", func(t *testing.T, x *Index) (any, error) {
			events, err := x.Events(t.Context(), time.Now().Add(-72*time.Hour))
			return Sum(events, func(Kind) Kind { return Kind{Class: "all"} })[0].Count, err
		}, fmt.Sprint(enrolled + mailed + mailed)}, // and their rows
		{"what there is", func(t *testing.T, x *Index) (any, error) {
			counts, err := x.Counts(t.Context())
			return len(counts), err
		}, "3"},
		{"requests that are open", rows(Filter{Classes: []inspect.Class{inspect.Underway}}), "0"},
	}
}

func (in installation) names(word string) func(*testing.T, *Index) (any, error) {
	return func(_ *testing.T, x *Index) (any, error) {
		known, err := in.find(x, word)
		return known.Requests, err
	}
}

// many stores what n requests leave: three of five are enrollments, of which one in twenty
// failed; the others are messages that were delivered.
func (in installation) many(n int) (stored int) {
	in.t.Helper()
	js, err := jetstream.New(in.nc, jetstream.WithPublishAsyncMaxPending(4000))
	if err != nil {
		in.t.Fatal(err)
	}
	store := func(subject, body string, header ...string) {
		stored++
		if _, err := js.PublishMsgAsync(devtest.Message(in.t, subject, body, header...), jetstream.WithStallWait(time.Minute)); err != nil {
			in.t.Fatal(err)
		}
	}
	const common = `{"request_id":%q,"at":"2026-01-01T00:00:00.000Z","attempt":1,`
	fingerprint := strings.Repeat("4c4a2fac", 8)
	for i := range n * 3 / 5 {
		id := fmt.Sprint("e", i)
		store("mandate.enroll.started."+id,
			fmt.Sprintf(common+`"deadline":"2026-01-01T00:00:35.000Z","fingerprint":%q,"order_number":"DD%d","max_frequency":9}`, id, fingerprint,
				i))
		if i%20 != 0 {
			store("mandate.enroll.succeeded."+id,
				fmt.Sprintf(common+`"order_number":"DD%d","enrollment":{"payer_email":"payer%d@example.com","url":"https://pay.example/enroll/%d"},"fingerprint":%q}`, id, i, i, i, fingerprint))
			continue
		}
		store("mandate.enroll.failed."+id,
			fmt.Sprintf(common+`"order_number":"DD%d","reason":"refused","message":"amount: too low","http_status":422,"fingerprint":%q}`, id, i,
				fingerprint))
		store("dead.mandate.enroll.requested",
			fmt.Sprintf(`{"request_id":%q,"order_number":"DD%d","payer_email":"payer%d@example.com","amount":30}`, id, i, i),
			"Errand-Request-Id", id, "Errand-Reason", "refused")
	}
	for i := range n * 2 / 5 {
		id := fmt.Sprint("m", i)
		body, err := messages.Event{Operation: messages.Send, State: messages.Started, ID: id, Body: &messages.SendStarted{
			Fingerprint: fingerprint, Recipients: 1, Batches: 1, BatchSize: 1000,
			Secret: history.KeysOf(in.secret, "us@example.com", []string{fmt.Sprintf("to%d@example.com", i)})}}.Encode()
		if err != nil {
			in.t.Fatal(err)
		}
		store("mail.send.started."+id, string(body))
		store("mail.send.accepted."+id,
			fmt.Sprintf(common+`"recipients":1,"accepted":1,"batches":1,"duplicates":0,"invalid_count":0,"invalid":[],"fingerprint":%q}`, id,
				fingerprint))
		store("mail.delivery.delivered."+id,
			fmt.Sprintf(common+`"event_id":"%064d","entry":{"to":"to%d@example.com","envelope_id":"e%d"},"smtp":{"code":250,"enhanced":"2.0.0"},"match":{"confidence":"exact","batch":1}}`, id, i, i, i))
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(5 * time.Minute):
		in.t.Fatal("the messages were not stored")
	}
	return stored
}
