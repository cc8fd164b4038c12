package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/programs"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

func (b *bubble) transactions() *programs.TransactionPoller {
	return &programs.TransactionPoller{Common: b.common(), MandateAPI: b.mandates().MandateAPI, Interval: 30 * time.Second,
		FullInterval: 2 * time.Hour}
}

// Each state of each record is one event, under the request that it is of, through restarts and
// decisions that come days after the enrollment.
func TestEachStateOfEachTransactionIsOneEvent(t *testing.T) {
	full(t)
	inBubble(t, func(t *testing.T, b *bubble) {
		const n = 60 // three pages
		for i := range n {
			b.publish("mandate.enroll.requested", enrollment(fmt.Sprintf("r%d", i), "order_number", fmt.Sprintf("DD %d", i)))
		}
		b.run(b.mandates(), time.Hour, func() bool { return b.count("mandate.enroll.succeeded.*") == n })
		b.run(b.transactions(), time.Hour, func() bool { return b.count("mandate.application.new.*") == n })
		for i := range n {
			b.decide(fmt.Sprintf("DD %d", i), []string{sandbox.Approve, sandbox.Decline, sandbox.Abandon}[i%3])
		}
		b.run(b.transactions(), time.Hour, nil)
		for cycle := range 2 {
			_, _, err := b.box.Cycle(fmt.Sprintf("DD %d", 3*cycle))
			must(t, err)
			b.run(b.transactions(), time.Hour, nil)
		}
		got := map[string]int{}
		for _, e := range append(b.events("mandate.application.>"), b.events("mandate.deduction.>")...) {
			body := decode[messages.TransactionBody](t, e)
			got[strings.Join(strings.Split(e.Subject, ".")[1:3], ".")]++
			if want := strings.Replace(body.OrderNumber, "DD ", "r", 1); body.Match.Confidence != messages.MatchExact ||
				!strings.HasSuffix(e.Subject, "."+want) || body.RequestID != want {
				t.Errorf("%s is of %q, %+v", e.Subject, body.OrderNumber, body.Match)
			}
		}
		want := map[string]int{"application.new": n, "application.approved": n / 3, "application.failed": n / 3, "application.cancelled": n / 3,
			"deduction.approved": 2*n/3 - 2, "deduction.failed": 2}
		for subject, count := range want {
			errorIf(t, got[subject] != count, "%d events on mandate.%s, want %d", got[subject], subject, count)
		}
		errorIf(t, len(got) != len(want), "got %v, want %v", got, want)
		t.Logf("%d calls in 5 hours", b.calls("transactions"))
	})
}

// A mandate that ends, and one that goes on again, are published once each, by whichever poller runs. A refused request does not own
// its order number: the next one does.
func TestAMandateThatEndsIsPublishedUnderTheRequestThatWasNotRefused(t *testing.T) {
	full(t)
	inBubble(t, func(t *testing.T, b *bubble) {
		var refused atomic.Bool
		b.script = func(x exchange) reply {
			if x.operation == "enroll" && !refused.Swap(true) {
				return reply{status: http.StatusUnprocessableEntity}
			}
			return reply{}
		}
		for _, r := range []string{"r1", "r2"} {
			b.publish("mandate.enroll.requested", enrollment(r, "order_number", "DD1"))
			b.run(b.mandates(), time.Hour, func() bool { return b.count("mandate.enroll.*."+r) == 2 })
		}
		fatalIf(t, b.count("mandate.enroll.failed.r1") != 1, "r1 was not refused")
		want := "new new; "
		b.run(b.transactions(), 10*time.Minute, nil)
		for _, step := range []struct{ decision, state string }{{sandbox.Approve, "approved active; "}, {sandbox.End, "approved terminated; "},
			{sandbox.Resume, "approved active; "}, {sandbox.End, "approved terminated; "}} {
			b.decide("DD1", step.decision)
			want += step.state
			for range 2 {
				b.run(b.transactions(), time.Hour, nil)
			}
			got := ""
			for _, e := range b.events("mandate.application.>") {
				body := decode[messages.TransactionBody](t, e)
				got += body.Status + " " + body.MandateStatus + "; "
				errorIf(t, body.Match.Confidence != messages.MatchExact || body.RequestID != "r2", "%s is %+v", e.Subject, body.Match)
			}
			errorIf(t, got != want, "after %s: %q, want %q", step.decision, got, want)
		}
	})
}

// After 31 hours without a poller, of which the events of 30 are kept, what was made meanwhile is
// published once, under no request, as its events are gone; and nothing that was published before.
func TestAPollerThatWasAwayForLongerThanEventsAreKeptPublishesWhatWasMadeMeanwhile(t *testing.T) {
	full(t)
	inBubble(t, func(t *testing.T, b *bubble) {
		const n = 30
		b.request(enrollOp, "r", n)
		b.run(b.mandates(), time.Hour, func() bool { return b.count("mandate.enroll.succeeded.*") == n })
		for i := range n {
			b.decide(fmt.Sprintf("order-r%d", i), sandbox.Approve)
		}
		b.run(b.transactions(), 10*time.Minute, nil)
		got := b.count("mandate.application.approved.*")
		fatalIf(t, got != n, "%d approvals, want %d", got, n)
		for _, hours := range []time.Duration{1, 10, 20} {
			time.Sleep(hours * time.Hour)
			_, _, err := b.box.Cycle()
			must(t, err)
		}
		b.purge(bus.MandateEvents, ">") // the server would drop them by the real time
		b.keepFor(bus.MandateEvents, 30*time.Hour)
		for range 2 {
			b.run(b.transactions(), 20*time.Minute, nil)
		}
		b.wantNone("mandate.application.>")
		ids := map[string]bool{}
		for _, e := range b.events("mandate.deduction.>") {
			body := decode[messages.TransactionBody](t, e)
			if ids[body.EventID] = true; e.Subject != "mandate.deduction.approved.unmatched" || body.Match.Confidence != messages.MatchNone ||
				body.OrderNumber == "" {
				t.Errorf("%s, %+v", e.Subject, body.Match)
			}
		}
		got = b.count("mandate.deduction.>")
		errorIf(t, got != 3*n || len(ids) != 3*n, "%d events of %d deductions, want %d", got, len(ids), 3*n)
	})
}

// listed is a transaction list of so many records, the newest first, whose pages say of it what
// meta makes of the truth.
type listed struct {
	records []map[string]any
	meta    func(map[string]any)
}

func (l *listed) RoundTrip(r *http.Request) (*http.Response, error) {
	number, _ := strconv.Atoi(r.URL.Query().Get("page")) // the first one is not named
	number = max(number, 1)
	last := (len(l.records) + perPage - 1) / perPage
	meta := map[string]any{"current_page": number, "last_page": last, "per_page": perPage, "total": len(l.records)}
	links := map[string]any{"next": nil}
	if number < last {
		links["next"] = "http://127.0.0.1:1/elsewhere"
	}
	l.meta(meta)
	page := l.records[min(len(l.records), (number-1)*perPage):min(len(l.records), number*perPage)]
	body, err := json.Marshal(map[string]any{"data": page, "links": links, "meta": meta})
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: int64(len(body)),
		Body: io.NopCloser(bytes.NewReader(body)), Request: r}, err
}

// A list is read to its end and without a fault whatever its pages say of their size and number,
// and however large the fields of some records are.
func TestAListIsReadWholeWhateverItsPagesSay(t *testing.T) {
	says := func(name string, value any) func(map[string]any) {
		return func(meta map[string]any) { meta[name] = value }
	}
	for name, c := range map[string]struct {
		meta  func(map[string]any)
		large int // bytes of a field
	}{
		"more a page than it shows":   {says("per_page", 100), 0},
		"one a page":                  {says("per_page", 1), 0},
		"a page that holds all":       {says("per_page", 1e9), 0},
		"a number no list has":        {says("total", json.Number("1000000000000000000")), 0},
		"a number no computer has":    {says("total", strings.Repeat("9", 40)), 0},
		"one record":                  {says("total", 1), 0},
		"the truth, of large records": {func(map[string]any) {}, 30 << 10},
	} {
		runInBubble(t, name, func(t *testing.T, b *bubble) {
			const n = 2*perPage + 10
			list, now := &listed{meta: c.meta}, time.Now()
			for i := range n {
				list.records = append(list.records, map[string]any{"id": fmt.Sprint("tx-", i),
					"created_at":       now.Add(-time.Duration(i) * time.Minute).Format(time.RFC3339),
					"transaction_type": "Enrollment", "status": "0", "status_description": "New", "metadata": strings.Repeat("x", c.large)})
			}
			p := b.transactions()
			p.Transport = list
			b.run(p, 10*time.Minute, nil)
			seen := map[string]bool{}
			events := b.events("mandate.application.new." + messages.Unmatched)
			for _, e := range events {
				seen[decode[messages.TransactionBody](t, e).EventID] = true
			}
			errorIf(t, len(events) != n || len(seen) != n, "%d events of %d records, want %d\n%s", len(events), len(seen), n, b.logs)
			said := b.logs.String()
			errorIf(t, strings.Contains(said, "sweep: failed"), "a sweep failed:\n%s", said)
		})
	}
}
