package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"errand/internal/sandbox"
)

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
	b.publish("mandate.enroll.requested", enrollment("r1", append([]string{"on_unknown", "report"}, more...)...))
	b.run(b.mandates(), 5*time.Minute, b.published("mandate.enroll.uncertain.r1", 1))
	return b.wantOne("mandate.enroll.uncertain.r1")
}
