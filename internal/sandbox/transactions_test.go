package sandbox

import (
	"fmt"
	"testing"
)

func list(t testing.TB, s *Sandbox, query string) map[string]any {
	t.Helper()
	return must(t, s, "GET", "/v3/mandates/transactions"+query, "")
}

func TestWhatIsEnrolledIsListedAtOnce(t *testing.T) {
	s := newSandbox(t, strictOptions())
	must(t, s, "POST", "/v3/mandates", enrollment1().with("metadata", "m").with("return_url", "https://shop.example.test/r").String())
	record := dig(t, list(t, s, "?order_number=DD1"), "data", 0)
	for name, want := range map[string]any{"transaction_type": "Enrollment", "order_number": "DD1", "status": 0, "status_description": "New",
		"amount":      100,
		"payer_email": "payer@example.test", "payer_telephone_number": "60190000000", "metadata": "m",
		"return_url": "https://shop.example.test/r"} {
		equal(t, name, dig(t, record, name), want)
	}
	equal(t, "mandate", []any{dig(t, record, "mandate", "frequency_mode_label"), dig(t, record, "mandate", "status"),
		dig(t, record, "mandate", "amount")}, []any{"Monthly", 0, 100})
	equal(t, "an order never enrolled", dig(t, list(t, s, "?order_number=DD2"), "data"), "[]")
}

func TestOneOrderNumberTwiceIsTwoEnrollments(t *testing.T) {
	s := newSandbox(t, strictOptions())
	one := must(t, s, "POST", "/v3/mandates", enrollment1().String())
	two := must(t, s, "POST", "/api/v2/mandates", enrollment1().String())
	if one["url"] == two["url"] {
		t.Errorf("both have the url %v", one["url"])
	}
	must(t, s, "POST", "/v3/mandates", enrollment1().with("order_number", "DD2").String())
	got := list(t, s, "?order_number=DD1")
	equal(t, "records", dig(t, got, "meta", "total"), 2)
	if dig(t, got, "data", 0, "id") == dig(t, got, "data", 1, "id") {
		t.Errorf("both have one id: %v", got["data"])
	}
}

func TestAPageHoldsTwentyFiveRecordsNewestFirst(t *testing.T) {
	s := newSandbox(t, strictOptions())
	for i := range 51 {
		must(t, s, "POST", "/v3/mandates", enrollment1().with("order_number", fmt.Sprintf("DD%d", i)).String())
	}
	path := "http://sandbox.test/v3/mandates/transactions"
	for query, want := range map[string][]any{ // records, current, from, to, prev, next
		"":            {25, 1, 1, 25, nil, path + "?page=2"},
		"?page=2":     {25, 2, 26, 50, path + "?page=1", path + "?page=3"},
		"?page=3":     {1, 3, 51, 51, path + "?page=2", nil},
		"?page=9":     {0, 9, nil, nil, nil, nil},
		"?page=x":     {25, 1, 1, 25, nil, path + "?page=2"},
		"?page=-1":    {25, 1, 1, 25, nil, path + "?page=2"},
		"?per_page=9": {25, 1, 1, 25, nil, path + "?page=2"},
	} {
		got := list(t, s, query)
		records := dig(t, got, "data").([]any)
		equal(t, query, []any{len(records), dig(t, got, "meta", "current_page"), dig(t, got, "meta", "from"), dig(t, got, "meta", "to"),
			dig(t, got, "links", "prev"), dig(t, got, "links", "next")}, want)
		equal(t, query+" whole", []any{dig(t, got, "meta", "total"), dig(t, got, "meta", "last_page"), dig(t, got, "meta", "per_page"),
			dig(t, got, "meta", "path"),
			dig(t, got, "links", "first"), dig(t, got, "links", "last")}, []any{51, 3, 25, path, path + "?page=1", path + "?page=3"})
	}
	equal(t, "newest first", dig(t, list(t, s, ""), "data", 0, "order_number"), "DD50")
}

func TestFiltersNarrowTheListAndLinksDropThem(t *testing.T) {
	s := newSandbox(t, strictOptions())
	for i := range 60 {
		must(t, s, "POST", "/v3/mandates", enrollment1().with("order_number", fmt.Sprintf("DD%d", i%2)).with("payer_email",
			fmt.Sprintf("p%d@example.test", i%3)).String())
	}
	for query, want := range map[string]int{
		"?order_number=DD1": 30, "?order_number=DD": 0, "?payer_email=p0@example.test": 20, "?order_number=DD1&payer_email=p0@example.test": 10,
		"?status=0": 60, "?status=3": 0, "?exchange_reference_number=EXR00000007": 1,
		"?exchange_reference_number=EXR00000007&order_number=DD1": 0,
	} {
		equal(t, query, dig(t, list(t, s, query), "meta", "total"), want)
	}
	equal(t, "next of a filtered page", dig(t, list(t, s, "?order_number=DD1"), "links", "next"),
		"http://sandbox.test/v3/mandates/transactions?page=2")
	if err := s.Decide("DD1", Approve); err != nil {
		t.Fatal(err)
	}
	equal(t, "approved", dig(t, list(t, s, "?status=3&order_number=DD1"), "meta", "total"), 1)
}
