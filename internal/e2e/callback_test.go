package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"errand/internal/bus"
	"errand/internal/callback"
	"errand/pkg/clients"
)

// Each call has the return_url that is configured when it is made; what the sender named stays. No event has its token.
func TestACallHasTheReturnURLOfItsTime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fault(often(1, asking("enroll", 503, "60")))
		b.publish("mandate.enroll.requested", enrollment("r1"))
		configured := b.mandates()
		configured.CallbackURL, configured.CallbackSecret = "https://callbacks.example.com/a/", strings.Repeat("secret-a", 4)
		b.run(configured, time.Minute, func() bool { return b.count("mandate.enroll.deferred.r1") > 0 })
		b.publish("mandate.enroll.requested", enrollment("r2", "return_url", "https://shop.example.com/back"))
		moved := b.mandates()
		moved.CallbackURL, moved.CallbackSecret = "https://callbacks.example.com/b", strings.Repeat("secret-b", 4)
		b.run(moved, time.Hour, func() bool { return b.ended("mandate.enroll", "r1")() && b.ended("mandate.enroll", "r2")() })
		b.wantEnd("mandate.enroll", "succeeded", "r1")
		b.wantEnd("mandate.enroll", "succeeded", "r2")
		var got []string
		for _, call := range b.of("enroll") {
			got = append(got, call.body["return_url"].(string))
		}
		slices.Sort(got)
		errorIf(t, len(got) != 3 || !strings.HasPrefix(got[0], "https://callbacks.example.com/a/r1/") ||
			!strings.HasPrefix(got[1], "https://callbacks.example.com/b/r1/") || got[2] != "https://shop.example.com/back", "got %q", got)
		for _, e := range b.events("mandate.enroll.*.*") {
			errorIf(t, strings.Contains(e.Raw, "callbacks.example.com"), "an event has the address: %s", e.Raw)
		}
	})
}

var (
	callbackCount = flag.Int("callback.count", 5000, "callbacks that are sent to the receiver")
	callbackRate  = flag.Float64("callback.rate", 5000, "how many of them a second")
	callbackBytes = flag.Int("callback.bytes", 2000, "how large each of them is")
)

// receiver is a callback-receiver as a process, and who sends to it.
type receiver struct {
	*process
	address func(id string) string
	client  *http.Client
}

const callbackSecret = "callback-secret-of-the-tests-" + secretMark

func (in *installation) receiver(addr string, env ...string) *receiver {
	in.t.Helper()
	address, err := callback.ReturnURL("http://"+addr+"/mandates", false, clients.NewSecret(callbackSecret))
	must(in.t, err)
	r := &receiver{in.start("callback-receiver", append(env, "MANDATE_CALLBACK_SECRET="+callbackSecret, "CALLBACK_LISTEN="+addr)...),
		address,
		&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 300}, Timeout: 30 * time.Second}}
	in.t.Cleanup(r.client.CloseIdleConnections)
	in.untilReady(r.process)
	return r
}

// post sends a callback; 0 means that it was not answered.
func (r *receiver) post(id, body string) (status int, retryAfter string) {
	answer, err := r.client.Post(r.address(id), "application/json", strings.NewReader(body))
	if err != nil {
		return 0, ""
	}
	_, _ = io.Copy(io.Discard, answer.Body) // so that the connection is used again
	_ = answer.Body.Close()
	return answer.StatusCode, answer.Header.Get("Retry-After")
}

// What is answered with 200 is stored, once, however many come; memory stays within the limit of the manifests.
func TestEveryCallbackThatIsAnsweredWith200IsStored(t *testing.T) {
	in := install(t, "LOG_LEVEL=info")
	r := in.receiver(ports(t, 1)[0], "GOMEMLIMIT=220MiB")
	body := `{"payer_name":"Test Payer","payer_email":"payer@example.test","padding":"` + strings.Repeat("x", max(0, *callbackBytes-80)) + `"}`
	pace, ids := rate.NewLimiter(rate.Limit(*callbackRate), 100), make(chan string)
	var senders sync.WaitGroup
	var mu sync.Mutex
	answers, stored := map[int]int{}, map[string]bool{}
	for range 300 {
		senders.Go(func() {
			for id := range ids {
				status, _ := r.post(id, body)
				mu.Lock()
				answers[status]++
				if status == http.StatusOK {
					stored[id] = true
				}
				mu.Unlock()
			}
		})
	}
	began := time.Now()
	for i := range *callbackCount {
		_ = pace.Wait(context.Background()) // never ends
		ids <- fmt.Sprint("r", i)
	}
	close(ids)
	senders.Wait()
	t.Logf("%d callbacks of %d bytes in %v: %v; peak memory %d KiB", *callbackCount, len(body), time.Since(began), answers, r.peak())
	found := in.subjects("mandate.callback.received.*")
	for id := range stored {
		n := found["mandate.callback.received."+id]
		fatalIf(t, n != 1, "%d events of %s, which was answered with 200", n, id)
	}
	errorIf(t, len(stored) == 0 || answers[http.StatusNotFound]+answers[0] > 0, "answers %v", answers)
	kib := r.peak()
	errorIf(t, kib > 240<<10, "peak memory is %d KiB", kib)
	if n := r.gauges()[`errand_callbacks_total{status="200"}`]; int(n) != len(stored) {
		t.Errorf("%v are counted of %d", n, len(stored))
	}
	r.stop(time.Minute)
}

// A sender that repeats what was not answered with 200 is stored once, whatever happened:
// NATS was away, the program was killed before it answered, others sent the same at once.
func TestARepeatedCallbackIsStoredOnceWhateverHappened(t *testing.T) {
	in := installWith(t, failpointBuild)
	first := in.receiver(ports(t, 1)[0])
	addr := ports(t, 1)[0]
	second := in.receiver(addr, "ERRAND_FAILPOINT="+"after store mandate.callback.received")

	if status, _ := second.post("killed", "{}"); status != 0 {
		t.Fatalf("answered with %d by a program that was to be killed", status)
	}
	<-second.ended
	second.expectEnd()
	second = in.receiver(addr)
	if status, _ := second.post("killed", "{}"); status != http.StatusOK {
		t.Errorf("after the kill: %d, want 200", status)
	}

	var senders sync.WaitGroup
	var mu sync.Mutex
	answers := map[int]int{}
	for i := range 1000 {
		senders.Go(func() {
			status, _ := []*receiver{first, second}[i%2].post("crowd", "{}")
			mu.Lock()
			defer mu.Unlock()
			answers[status]++
		})
	}
	senders.Wait()
	errorIf(t, answers[200] == 0 || answers[200]+answers[429]+answers[503] != 1000, "a thousand at once: %v", answers)

	in.nats.Stop()
	if status, after := first.post("away", `{"payer_name":"Test Payer"}`); status != http.StatusServiceUnavailable || after == "" {
		t.Errorf("without NATS: %d, Retry-After %q; want 503", status, after)
	}
	must(t, in.nats.Restart())
	in.until("a repeat to be stored", time.Minute, func() bool {
		status, _ := first.post("away", `{"payer_name":"Test Payer"}`)
		return status == 200
	})
	if status, _ := second.post("away", `{"payer_name":"Test Payer"}`); status != http.StatusOK {
		t.Errorf("once more, elsewhere: %d", status)
	}
	for _, id := range []string{"killed", "crowd", "away"} {
		n := in.count("mandate.callback.received." + id)
		errorIf(t, n != 1, "%d events of %s", n, id)
	}

	// People see it, over two accounts.
	ann, _ := connectAs(t, in.nats.URL, "ann")
	m, err := ann.Request(bus.StatusSubject(bus.CallbackReceiver), nil, 10*time.Second)
	errorIf(t, err != nil || !strings.Contains(string(m.Data), `"program":"callback-receiver"`), "how it is: %v %v", m, err)
	in.untilReady(first.process)
	for _, r := range []*receiver{first, second} {
		r.get("/metrics") // looked through for payers, as the log is
		r.stop(time.Minute)
	}
}
