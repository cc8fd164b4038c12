package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// gossip is an upstream that quotes to the caller all that it was sent, in one of its ways at the first call about each
// order number, subject or address; the second goes to the sandbox.
type gossip struct {
	box   *sandbox.Sandbox
	mu    sync.Mutex
	asked map[string]bool
}

// gossipWays are the forms in which an answer quotes; %[1]s is text for JSON.
var gossipWays = []string{
	`{"message":"%[1]s","error":"%[1]s"}`,
	`{"error":{"%[1]s":["%[1]s"],"payer_email":["%[1]s is not wanted"]}}`,
	`{"error":true,"status_code":%[2]d,"message":"%[1]s","data":{"%[1]s":"%[1]s"}}`,
	`%[1]s`,
	`<html><title>%[1]s</title>`,
}

// gossipStatuses are the answers' statuses; 0 cuts the connection in the middle of one.
var gossipStatuses = []int{0, 200, 302, 400, 401, 402, 403, 404, 422, 429, 500, 503}

func (g *gossip) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // what is cut off is not quoted
	about, way, status := "", 0, 0
	for text := string(body) + r.URL.RawQuery; ; {
		_, rest, found := strings.Cut(text, "gossip-")
		if _, err := fmt.Sscanf(rest, "%d-%d", &way, &status); !found || err == nil {
			about = fmt.Sprint(r.Method, found, way, status)
			break
		}
		text = rest
	}
	g.mu.Lock()
	first := !g.asked[about]
	g.asked[about] = true
	g.mu.Unlock()
	if !first || about == fmt.Sprint(r.Method, false, 0, 0) {
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		g.box.ServeHTTP(w, r)
		return
	}
	quoted, _ := json.Marshal(r.Header.Get("Authorization") + r.Header.Get("X-API-Key") + " " + r.URL.String() + " " + string(body)) // a text
	answer := fmt.Sprintf(gossipWays[way], quoted[1:len(quoted)-1], status)
	w.Header().Set("Location", "/?q="+r.URL.RawQuery+r.Header.Get("X-API-Key"))
	w.Header().Set("X-Echo", r.Header.Get("Authorization"))
	if status == 0 {
		w.Header().Set("Content-Length", fmt.Sprint(len(answer)+1))
		status = http.StatusOK
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer) // a caller that left is its own business
}

// An upstream quotes keys and payers in answers of every kind, and requests hold payers where nothing of the kind
// belongs. Logs, metrics and pages show neither, at any level; events and dead letters show no key.
func TestNoSecretAndNoPayerLeaksWhateverTheUpstreamAnswers(t *testing.T) {
	in := install(t, "UPSTREAM_TIMEOUT=5s", "RETRY_FIRST=10ms", "RETRY_MAX=200ms", "CONCURRENCY=8", "MAIL_BATCH_SIZE=1")
	web := httptest.NewServer(&gossip{box: in.box, asked: map[string]bool{}})
	t.Cleanup(web.Close)
	requests := 0
	for way := range gossipWays {
		for _, status := range gossipStatuses {
			mark := fmt.Sprintf("gossip-%d-%d", way, status)
			e := enrollment(mark, "payer_name", "Test Payer", "metadata", "for 900101011234 at payer@example.test", "return_url",
				"https://shop.example.test/?who=payer@example.test")
			in.publish("mandate.enroll.requested", e)
			in.publish("mail.send.requested", message(mark, 1))
			in.publish("mandate.transactions.requested", map[string]any{"request_id": mark, "order_number": mark,
				"payer_email": "payer@example.test"})
			requests++
		}
	}
	bad := in.hostile()
	programs := []*process{in.start("mandate-consumer", "MANDATE_API_URL="+web.URL), in.start("mail-consumer", "MAIL_API_URL="+web.URL),
		in.start("log-poller", "MAIL_API_URL="+web.URL)}
	for _, filter := range []string{"mandate.enroll.*.*", "mail.send.*.*"} {
		in.waitOutcomes(filter, requests+bad, 90*time.Second)
	}
	in.waitOutcomes("mandate.transactions.*.*", requests, 90*time.Second)
	for _, p := range programs {
		for _, path := range []string{"/", "/healthz", "/readyz", "/metrics", "/debug/pprof/", "/debug/vars", "/debug/"} {
			if status, _ := p.get(path); status == http.StatusOK && !slices.Contains([]string{"/", "/healthz", "/readyz", "/metrics"}, path) {
				t.Errorf("%s serves %s", p.name, path)
			}
		}
		p.stop(time.Minute)
	}
	quoted := 0
	for _, e := range append(in.events("mandate.enroll.*.*"), in.events("mail.send.*.*")...) {
		if strings.Contains(e.Raw, "[redacted]") {
			quoted++
		}
	}
	errorIf(t, quoted < 2*len(gossipWays), "only %d outcomes quote the upstream; the keys were looked for in little", quoted)
}

// hostile publishes requests that hold payers where nothing of the kind belongs, as many
// to the enrollments as to the messages, and returns how many of each.
func (in *installation) hostile() (each int) {
	const who = "Test Payer <payer@example.test> 900101011234"
	put := func(subject, body string, header nats.Header) {
		in.t.Helper()
		_, err := in.producer.PublishMsg(in.t.Context(), &nats.Msg{Subject: subject, Data: []byte(body), Header: header})
		must(in.t, err)
	}
	named := nats.Header{nats.MsgIdHdr: {who}, "traceparent": {who}, "tracestate": {who}, "Errand-Reason": {who}, "X-Payer": {who}}
	for subject, fields := range map[string][]string{
		"mandate.enroll.requested": {"order_number", "amount", "payer_id_type", "payer_id", "payer_name", "payer_email",
			"payer_telephone_number", "frequency_mode",
			"max_frequency", "effective_date", "expiry_date", "return_url", "link_expired_at", "on_unknown", "give_up_at", "request_id",
			"checksum", who},
		"mail.send.requested": {"to", "from", "cc", "bcc", "as_html", "headers", "subject", "content", "on_unknown", "give_up_at", "request_id",
			"to_object",
			"reply_to", "attachments", "batch_size", "payer", "x", who},
	} {
		for i, field := range fields {
			body, _ := json.Marshal(map[string]any{field: who, "nonsense " + who: i}) // texts always encode
			put(subject, string(body), nil)
		}
		put(subject, who, named)
		put(subject, `{"`+who+`":`, nil)
		each = len(fields) + 2
	}
	return each
}

// The payer of the enrollments of this file; nothing else in them looks like this.
var payer = map[string]string{"payer_name": "Zoe Quill", "payer_email": "zoe@quill.example.test", "payer_id": "911122334455",
	"payer_telephone_number": "60177777777"}

func ofPayer(id string, more ...string) map[string]any {
	e := enrollment(id, more...)
	for name, value := range payer {
		e[name] = value
	}
	return e
}

// With EVENT_PAYER_DATA=none no event holds anything of a payer, however an enrollment
// ends and whatever the service says of it; with full the answers do.
func TestEventsHoldNoPayerWhereTheyAreNotTo(t *testing.T) {
	for _, setting := range []string{"full", "none"} {
		runInBubble(t, setting, func(t *testing.T, b *bubble) {
			p := b.mandates()
			p.EventPayerData = setting
			b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 422, Match: "order-refused",
				Body: []byte(fmt.Sprintf(`{"message":"%s is not wanted","errors":{"payer_email":["ZOE@quill.example.test, id 911122334455"]}}`,
					payer["payer_name"]))})
			b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.AcceptCut, Match: "order-lost"})
			for _, id := range []string{"done", "refused", "lost"} {
				b.publish("mandate.enroll.requested", ofPayer(id, "portal_key", "own-portal-of-"+id))
			}
			b.run(p, 5*time.Hour, func() bool {
				return b.count("mandate.enroll.resolved.lost") > 0 && b.count("mandate.enroll.failed.refused") > 0
			})
			b.publish("mandate.transactions.requested", map[string]any{"request_id": "all"})
			b.run(p, time.Minute, func() bool { return b.count("mandate.transactions.listed.all") > 0 })

			shown := map[string]bool{}
			for _, e := range b.events("mandate.*.*.*") {
				for name, value := range payer {
					if strings.Contains(strings.ToLower(e.Raw+fmt.Sprint(e.Header)), strings.ToLower(value)) {
						shown[string(messages.StateOf(e.Subject))] = true
						errorIf(t, setting == "none", "%s shows %s: %s", e.Subject, name, e.Raw)
					}
				}
			}
			for _, state := range []string{"succeeded", "failed", "uncertain", "resolved", "page"} {
				errorIf(t, setting == "full" && !shown[state], "no %s shows the payer: it was looked for in too little", state)
			}
			done := decode[messages.EnrollSucceeded](t, b.wantOne("mandate.enroll.succeeded.done"))
			for _, kept := range []string{`"url":"http://127.0.0.1:8085/enroll/`, `"order_number":"order-done"`, `"amount":`, `"frequency_mode":`,
				`"effective_date":`} {
				errorIf(t, !strings.Contains(string(done.Enrollment), kept), "the enrollment lacks %s: %s", kept, done.Enrollment)
			}
		})
	}
}

// An upstream that quotes a request's own portal_key in its answers, or another's in its list, makes no event show it.
func TestARequestsOwnPortalKeyReachesNoEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const own = "own-portal/key-of-one"
		b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.AcceptStatus, Status: 200, Match: "order-quoted",
			Body: []byte(`{"url":"https://x.example.test/1","order_number":"order-quoted","portal_key":"own-portal\/key-of-one",` +
				`"note":"own\u002dportal/key-of-one, portal-for-tests"}`)})
		b.fault(sandbox.Fault{Operation: "transactions", Kind: sandbox.Status, Status: 200,
			Body: []byte(`{"data":[{"order_number":"order-x","portal_key":"whose-is-it","portal":"portal-for-tests"}]}`)})
		b.publish("mandate.enroll.requested", enrollment("quoted", "portal_key", own))
		b.publish("mandate.transactions.requested", map[string]any{"request_id": "all"})
		b.run(b.mandates(), time.Minute, func() bool {
			return b.count("mandate.enroll.succeeded.quoted") > 0 && b.count("mandate.transactions.listed.all") > 0
		})
		for _, e := range b.events("mandate.*.*.*") {
			for _, secret := range []string{"portal/key", `portal\/key`, "u002d", "portal-for-tests", "whose-is-it"} {
				errorIf(t, strings.Contains(e.Raw, secret), "%s shows %s: %s", e.Subject, secret, e.Raw)
			}
		}
		if e := b.wantOne("mandate.enroll.succeeded.quoted"); strings.Count(e.Raw, "[redacted]") < 3 {
			t.Errorf("the answer was not quoted: %s", e.Raw)
		}
	})
}
