package mandate

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"errand/pkg/clients"
	"errand/pkg/messages"

	"github.com/google/go-cmp/cmp"
)

// read collects a listing to its end.
func read(t *testing.T, f *fake, filter Filter, from int) (pages []Page, err error) {
	t.Helper()
	for page, e := range client(t, Config{URL: f.URL}).Transactions(t.Context(), filter, from) {
		if e != nil {
			return pages, e
		}
		pages = append(pages, page)
	}
	return pages, nil
}

func (f *fake) lines() (lines []string) {
	for _, a := range f.arrived {
		lines = append(lines, a.Line)
	}
	return lines
}

func TestAListIsReadToItsLastPageWithTheFiltersOnEveryCall(t *testing.T) {
	f := newFake(t, 200, golden(t, "transactions.response.first.json"), golden(t, "transactions.response.last.json"))
	pages, err := read(t, f, Filter{OrderNumber: "DD 001", Status: "3", ExchangeReferenceNumber: "EX-TX-1", PayerEmail: "payer@example.test",
		Redact: "not sent"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	const filters = "exchange_reference_number=EX-TX-1&order_number=DD+001"
	want := []arrived{
		{"GET /v3/mandates/transactions?" + filters + "&payer_email=payer%40example.test&status=3", sentHeader, ""},
		{"GET /v3/mandates/transactions?" + filters + "&page=2&payer_email=payer%40example.test&status=3", sentHeader, ""},
	}
	if diff := cmp.Diff(want, f.arrived); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if len(pages) != 2 {
		t.Fatalf("%d pages, want 2", len(pages))
	}
	for i, page := range pages {
		record := string(page.Records[0])
		if page.Number != i+1 || page.LastPage != 2 || page.Total != 2 || len(page.Records) != 1 ||
			!strings.Contains(record, fmt.Sprintf(`"TX-%d"`, i+1)) {
			t.Errorf("page %d: got %+v", i+1, page)
		}
		if !strings.Contains(record, `"payout"`) || !strings.Contains(record, `"frequency_mode_label"`) {
			t.Errorf("page %d lost fields: %s", i+1, record)
		}
	}
}

func TestAListEnds(t *testing.T) {
	record := func(id int) string { return fmt.Sprintf(`{"data":[{"id":"%d"}]`, id) }
	for _, c := range []struct {
		name    string
		from    int
		answers []string
		pages   int
	}{
		{"at the only page", 1, []string{string(golden(t, "transactions.response.json"))}, 1},
		{"at an empty list", 1, []string{string(golden(t, "transactions.response.empty.json"))}, 1},
		{"at its last page, asked from there", 2, []string{string(golden(t, "transactions.response.last.json"))}, 1},
		{"without links and meta", 1, []string{record(1) + `}`}, 1},
		{"by meta alone", 1, []string{record(1) + `,"meta":{"last_page":2}}`, record(2) + `,"meta":{"last_page":"2"}}`}, 2},
		{"by links alone", 1, []string{record(1) + `,"links":{"next":"x"}}`, record(2) + `,"links":{"next":null}}`}, 2},
		{"at an empty page", 1, []string{record(1) + `,"links":{"next":"x"}}`, `{"data":[],"links":{"next":"x"}}`}, 2},
		{"where meta and links disagree", 1, []string{record(1) + `,"links":{"next":null},"meta":{"last_page":9}}`}, 1},
	} {
		var answers [][]byte
		for _, answer := range c.answers {
			answers = append(answers, []byte(answer))
		}
		f := newFake(t, 200, answers...)
		if pages, err := read(t, f, Filter{}, c.from); err != nil || len(pages) != c.pages || len(f.arrived) != c.pages {
			t.Errorf("%s: got %d pages by %v, %v, want %d", c.name, len(pages), f.lines(), err, c.pages)
		}
	}
}

func TestAListThatNeverEndsIsABadAnswer(t *testing.T) {
	for name, answers := range map[string][][]byte{
		"the same page for ever": {[]byte(`{"data":[{"id":"1"}],"links":{"next":"x"}}`)},
		"another page than asked": {golden(t, "transactions.response.first.json"),
			[]byte(`{"data":[{"id":"other"}],"meta":{"current_page":1}}`)},
		"no data":                   {[]byte(`{"links":{}}`)},
		"data is null":              {[]byte(`{"data":null}`)},
		"data is an object":         {[]byte(`{"data":{}}`)},
		"a page that is cut":        {golden(t, "transactions.response.json")[:200]},
		"an error in a success":     {[]byte(`{"message":"no"}`)},
		"a page number of any kind": {[]byte(`{"data":[],"meta":{"current_page":true}}`)},
	} {
		f := newFake(t, 200, answers...)
		_, err := read(t, f, Filter{}, 1)
		var e *clients.Error
		if !errors.As(err, &e) || e.Fate != clients.Unknown || e.Reason != messages.ReasonBadAnswer || e.Operation != "transactions" {
			t.Errorf("%s: got %v, want unknown, bad_answer", name, err)
		}
		if len(f.arrived) > 2 {
			t.Errorf("%s: %d calls", name, len(f.arrived))
		}
	}
}

func TestAListingThatIsLeftMakesNoFurtherCall(t *testing.T) {
	f := newFake(t, 200, golden(t, "transactions.response.first.json"))
	for range client(t, Config{URL: f.URL}).Transactions(t.Context(), Filter{}, 1) {
		break
	}
	if len(f.arrived) != 1 {
		t.Errorf("%d calls, want 1", len(f.arrived))
	}
}

func TestAListingIsReadFromV3WhereEnrollmentsGoToV2(t *testing.T) {
	v3 := newFake(t, 200, golden(t, "transactions.response.json"))
	c := client(t, Config{URL: v3.URL, V2URL: "http://127.0.0.1:1", Version: "v2"})
	for _, err := range c.Transactions(t.Context(), Filter{}, 1) {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestARefusedListingTellsTheFate(t *testing.T) {
	f := newFake(t, 429, golden(t, "enroll.busy.429.json"))
	f.header = http.Header{"X-Ratelimit-Reset": {"30"}}
	_, err := read(t, f, Filter{PayerEmail: "payer@example.test"}, 1)
	var e *clients.Error
	if !errors.As(err, &e) || e.Fate != clients.Busy || e.RetryAfter.Seconds() != 30 || strings.Contains(err.Error(), "payer") {
		t.Errorf("got %v, want busy for 30 s without the query", err)
	}
}
