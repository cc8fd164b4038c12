package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// decisionOf is what the payer of the n-th enrollment decides; "" means that the link is never opened.
func decisionOf(n int) string {
	return []string{sandbox.Approve, sandbox.Decline, sandbox.Approve, sandbox.Expire, sandbox.Approve,
		sandbox.Abandon, sandbox.Approve, "", sandbox.Approve, sandbox.Decline}[n%10]
}

// open is the payer behind a link, who decides.
func open(box *sandbox.Sandbox, link, decision string) error {
	at, err := url.Parse(link)
	if err != nil {
		return err
	}
	r := httptest.NewRequest(http.MethodPost, at.Path, strings.NewReader(url.Values{"decision": {decision}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	box.ServeHTTP(w, r)
	if w.Code != http.StatusSeeOther {
		return fmt.Errorf("%s on %s: %d %s", decision, link, w.Code, w.Body)
	}
	return nil
}

// bounce has every tenth of the approved order numbers bounce in the next cycle, others in each.
func bounce(t *testing.T, box *sandbox.Sandbox, cycle int, approved []string) {
	t.Helper()
	var bounced []string
	for n, order := range approved {
		if n%10 == cycle {
			bounced = append(bounced, order)
		}
	}
	_, _, err := box.Cycle(bounced...)
	must(t, err)
}

// recordState is a state of a record of the transaction list.
type recordState struct{ id, status string }

// published is what an event about a record says.
type published struct {
	event
	messages.TransactionBody
	by          string
	transaction struct {
		ID        string `json:"id"`
		ReturnURL string `json:"return_url"`
	}
}

func (p *published) state() recordState { return recordState{p.transaction.ID, p.Status} }

// request is the one that the record is of: each call has a return_url with its id. "" means another program's.
func (p *published) request() string {
	if parts := strings.Split(p.transaction.ReturnURL, "/"); len(parts) > 2 {
		return parts[len(parts)-2]
	}
	return ""
}

func readPublished(t *testing.T, events []event) (all []published) {
	for _, e := range events {
		p := published{event: e, TransactionBody: decode[messages.TransactionBody](t, e)}
		p.by, _ = e.Body["by"].(string)
		err := json.Unmarshal(p.Transaction, &p.transaction)
		fatalIf(t, err != nil, "%s: %v", e.Raw, err)
		all = append(all, p)
	}
	return all
}

// wantEachState wants the last state of each of the sandbox's records published once, those before at most once, and
// and nothing that was not; each under the request that the record is of. It returns the events by what they are about.
func wantEachState(t *testing.T, box *sandbox.Sandbox, events []event) map[recordState]published {
	t.Helper()
	all, wrong := readPublished(t, events), 0
	fail := func(format string, args ...any) {
		if wrong++; wrong <= 20 {
			t.Errorf(format, args...)
		}
	}
	requests := map[string]map[string]bool{} // of an order number
	for _, p := range all {
		if requests[p.OrderNumber] == nil {
			requests[p.OrderNumber] = map[string]bool{}
		}
		requests[p.OrderNumber][p.request()] = true
	}
	first := map[recordState]published{}
	for _, p := range all {
		if _, again := first[p.state()]; again {
			fail("%v is published again: %s", p.state(), p.Subject)
			continue
		}
		first[p.state()] = p
		exact := p.Match.Confidence == messages.MatchExact
		switch of := requests[p.OrderNumber]; {
		case exact && (p.id() != p.request() || p.RequestID != p.id()), !exact && p.id() != messages.Unmatched,
			!exact && len(of) == 1 && p.request() != "":
			fail("%s is of the request %q: %+v", p.Subject, p.request(), p.Match)
		case p.Kind == messages.DeductionKind && len(p.Match.Candidates) > 0:
			fail("%s, a deduction, names %v", p.Subject, p.Match.Candidates)
		case p.Kind == messages.ApplicationKind && !exact && p.request() != "" &&
			!slices.Equal(slices.Sorted(slices.Values(p.Match.Candidates)), slices.Sorted(maps.Keys(of))):
			fail("%s is of one of %v: %+v", p.Subject, of, p.Match)
		}
	}
	left := maps.Clone(first)
	for _, r := range box.Oracle(sandbox.Query{Records: true}).Records {
		for i, s := range r.States {
			state := recordState{r.ID, strings.ToLower(s.State)}
			if _, ok := left[state]; !ok && i == len(r.States)-1 {
				fail("%s %s of %s, since %v, is not published", r.Type, s.State, r.OrderNumber, s.Since)
			}
			delete(left, state)
		}
	}
	for state, p := range left {
		fail("%v was never listed: %s", state, p.Subject)
	}
	errorIf(t, wrong > 20, "and %d more", wrong-20)
	return first
}

// wantOwnCallbacks wants each callback once, and under the request whose order number it names;
// it counts them by their checksum.
func wantOwnCallbacks(t *testing.T, events []event, orders map[string]string) map[messages.CallbackChecksum]int {
	seen, checksums := map[string]bool{}, map[messages.CallbackChecksum]int{}
	for _, e := range events {
		body := decode[messages.CallbackBody](t, e)
		var sent struct {
			OrderNumber string `json:"order_number"`
		}
		err := json.Unmarshal([]byte(body.Body), &sent)
		errorIf(t, err != nil || orders[e.id()] != sent.OrderNumber, "%s is about %q: %v", e.Subject, sent.OrderNumber, err)
		errorIf(t, seen[e.id()+body.Digest], "%s is stored again: %s", e.Subject, body.Digest)
		seen[e.id()+body.Digest] = true
		checksums[body.Checksum]++
	}
	return checksums
}

// perPage is how many records the service shows on a page.
const perPage = 25

// enrollDirectly makes enrollments without a program: pages to list.
func (w *world) enrollDirectly(n int) {
	w.t.Helper()
	for i := range n {
		w.direct("/v3/mandates", enrollment(fmt.Sprint("listed", i), "portal_key", portalKey))
	}
}

// wantListed wants a listing's events to be its pages, each once and in order, and then its end.
func wantListed(t *testing.T, history []event, pages, total int) {
	t.Helper()
	var got []int
	records := 0
	for _, e := range history {
		switch string(e.state()) {
		case "page":
			list, _ := e.Body["records"].([]any)
			got, records = append(got, number(e.Body["page"])), records+len(list)
		case "listed":
			errorIf(t, number(e.Body["pages"]) != pages || number(e.Body["total"]) != total,
				"listed: %s, want %d pages and %d records", e.Raw, pages, total)
		}
	}
	if e, err := finalEvent(history); err != nil || string(e.state()) != "listed" {
		t.Errorf("the listing ended as %s %s: %v", e.Subject, e.Raw, err)
	}
	for i := range max(len(got), pages) {
		if i >= len(got) || got[i] != i+1 {
			t.Errorf("pages %v, want 1 to %d, each once", got, pages)
			break
		}
	}
	errorIf(t, records != total, "%d records in the pages, want %d", records, total)
}

// wantPagesOnce wants each page to have been read well once, and at most so many again.
func (b *bubble) wantPagesOnce(pages, again int) {
	b.t.Helper()
	read := map[int]int{}
	calls := b.exchanges(func(x exchange) bool { return x.operation == "transactions" && x.status == http.StatusOK })
	for _, x := range calls {
		n, err := strconv.Atoi(x.page)
		if err != nil {
			n = 1
		}
		read[n]++
	}
	errorIf(b.t, len(read) != pages || len(calls) > pages+again,
		"%d pages were read by %d calls, want %d by at most %d: %v", len(read), len(calls), pages, pages+again, read)
}

// uncertain makes an enrollment that ends so, and another one that does not, so that
// the list is never empty. Kind is what goes wrong.
func (b *bubble) uncertain(kind string, more ...string) event {
	b.t.Helper()
	b.publish("mandate.enroll.requested", enrollment("other"))
	b.run(b.mandates(), time.Minute, b.published("mandate.enroll.succeeded.other", 1))
	f := sandbox.Fault{Operation: "enroll", Kind: kind, Times: 1}
	if kind == sandbox.Delay {
		f.Delay = sandbox.Duration(40 * time.Second) // done when its caller has left and looked twice
	}
	b.fault(f)
	b.declare("bulk")
	b.traced("mandate.enroll.requested.lane.bulk", enrollment("r1", append([]string{"on_unknown", "report"}, more...)...))
	b.run(b.mandates(), 5*time.Minute, b.published("mandate.enroll.uncertain.r1", 1))
	return b.wantOne("mandate.enroll.uncertain.r1")
}
