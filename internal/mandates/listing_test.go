package mandates

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
)

// pages answers with one page after the other, the last one for ever.
type pages []string

func (p *pages) RoundTrip(r *http.Request) (*http.Response, error) {
	body := (*p)[0]
	if len(*p) > 1 {
		*p = (*p)[1:]
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: int64(len(body)),
		Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// read reads the list under the order number DD 1.
func read(t *testing.T, answers ...string) Listing {
	t.Helper()
	api, err := mandate.New(mandate.Config{URL: "http://127.0.0.1:1", Token: clients.NewSecret("token")},
		clients.Transport((*pages)(&answers)))
	if err != nil {
		t.Fatal(err)
	}
	found, err := Read(t.Context(), nil, api, retry.Policy{}, mandate.Filter{OrderNumber: "DD 1"}, 2)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAListThatIsCutOrNotNarrowedProvesNothing(t *testing.T) {
	const (
		ours   = `{"order_number":"DD 1"}`
		theirs = `{"order_number":"DD 2"}`
	)
	all := func(meta string, records ...string) string {
		return fmt.Sprintf(`{"data":[%s]%s}`, strings.Join(records, ","), meta)
	}
	large := fmt.Sprintf(`{"order_number":"DD 1","metadata":"%s"}`, strings.Repeat("x", maxEvidence))
	for _, c := range []struct {
		what    string
		answers []string
		want    Proof
		flaw    string // for nothing
	}{
		{"an empty list", []string{all("")}, NotListed, ""},
		{"an empty list that counts none", []string{all(`,"meta":{"total":0,"last_page":1}`)}, NotListed, ""},
		{"its own record", []string{all("", ours)}, Listed, ""},
		{"its own among others", []string{all("", theirs, ours)}, Listed, ""},
		{"its own on the second page", []string{all(`,"meta":{"last_page":2}`, theirs), all(`,"meta":{"last_page":2}`, ours)}, Listed, ""},
		{"its own on a page of a list that is cut", []string{all(`,"meta":{"last_page":9}`, ours), all(`,"meta":{"last_page":9}`, theirs)},
			Listed, ""},
		{"more than the evidence takes", []string{all("", large, ours)}, Listed, ""},
		// However the order number is written.
		{"without the space", []string{all("", `{"order_number":"DD1"}`)}, Listed, ""},
		{"with other spaces", []string{all("", `{"order_number":" D\tD  1\u00a0"}`)}, Listed, ""},
		{"in lower case", []string{all("", `{"order_number":"dd 1"}`)}, Listed, ""},
		{"of its mandate", []string{all("", `{"order_number":"EX-7","mandate":{"order_number":"DD 1"}}`)}, Listed, ""},
		{"of its mandate only", []string{all("", `{"order_number":null,"mandate":{"order_number":"dd1"}}`)}, Listed, ""},
		// Records of another order number, or without one that can be read.
		{"another", []string{all("", theirs)}, Nothing, "not narrowed"},
		{"a longer one", []string{all("", `{"order_number":"DD 10"}`)}, Nothing, "not narrowed"},
		{"another of its mandate", []string{all("", `{"order_number":"EX-7","mandate":{"order_number":"DD 2"}}`)}, Nothing, "not narrowed"},
		{"a mandate that is not an object", []string{all("", `{"mandate":"DD 1"}`)}, Nothing, "not narrowed"},
		{"none", []string{all("", `{}`)}, Nothing, "not narrowed"},
		{"none that is text", []string{all("", `{"order_number":["DD 1"]}`, `{"order_number":true}`)}, Nothing, "not narrowed"},
		{"no record", []string{all("", `"DD 1"`, `7`, `null`)}, Nothing, "not narrowed"},
		// What was not shown to its end.
		{"more pages than are read", []string{all(`,"links":{"next":"x"}`, theirs), all(`,"links":{"next":"x"}`, theirs, theirs)}, Nothing,
			"not narrowed"},
		{"fewer records than it counts", []string{all(`,"meta":{"total":1}`)}, Nothing, "cut"},
		{"a page without records that links to another one, twice", []string{all(`,"links":{"next":"x"}`), all(`,"links":{"next":"x"}`)}, Nothing,
			"cut"},
		{"fewer pages than it counts", []string{all(`,"meta":{"last_page":2},"links":{"next":null}`)}, Nothing, "cut"},
		{"as many as its first page counted", []string{all(`,"meta":{"total":3,"last_page":2}`, ours),
			all(`,"meta":{"last_page":2}`, ours, ours)}, Listed, ""},
	} {
		found := read(t, c.answers...)
		if got := found.Proof(); got != c.want {
			t.Errorf("%s: got proof %d, want %d: %+v", c.what, got, c.want, found)
		}
		if c.want == Nothing && !strings.Contains(found.Flaw, c.flaw) {
			t.Errorf("%s: it proves nothing since %q, want %q", c.what, found.Flaw, c.flaw)
		}
	}
}

func TestAnOrderNumberThatIsListedAsANumberIsTheSame(t *testing.T) {
	for _, c := range []struct {
		record, order string
		want          bool
	}{
		{`{"order_number":1001}`, "1001", true},
		{`{"order_number":1001}`, "10 01", true},
		{`{"mandate":{"order_number":1001}}`, "1001", true},
		{`{"order_number":12345678901234567890}`, "12345678901234567890", true},
		{`{"order_number":12345678901234567891}`, "12345678901234567890", false},
		{`{"order_number":1001}`, "01001", false},
		{`{"order_number":1e3}`, "1000", false},
	} {
		if got := about([]byte(c.record), c.order); got != c.want {
			t.Errorf("%s is of %q: got %t, want %t", c.record, c.order, got, c.want)
		}
	}
}

func TestAListIsCutWhereItIsNotReadToItsEnd(t *testing.T) {
	const ours = `{"order_number":"DD 1"}`
	large := fmt.Sprintf(`{"order_number":"DD 1","metadata":"%s"}`, strings.Repeat("x", maxEvidence))
	many := fmt.Sprintf(`{"order_number":"DD 1","metadata":"%s"}`, strings.Repeat("x", maxEvidence/2-50))
	for _, c := range []struct {
		what    string
		answers []string
		records int
		cut     bool
	}{
		{"one page", []string{`{"data":[` + ours + `]}`}, 1, false},
		{"as many pages as are read", []string{`{"data":[` + ours + `],"links":{"next":"x"}}`, `{"data":[` + ours + `,` + ours +
			`],"links":{"next":null}}`}, 3, false},
		{"one page more", []string{`{"data":[` + ours + `],"links":{"next":"x"}}`, `{"data":[` + ours + `,` + ours + `],"links":{"next":"x"}}`},
			3, true},
		{"the total of an earlier page", []string{`{"data":[` + ours + `],"links":{"next":"x"},"meta":{"total":3}}`,
			`{"data":[{"order_number":"dd 1"}],"links":{"next":null}}`}, 2, true},
		{"as many as it counts", []string{`{"data":[` + ours + `],"meta":{"total":1,"last_page":1}}`}, 1, false},
		{"as much as is kept", []string{`{"data":[` + many + `,` + many + `]}`}, 2, false},
		{"more than is kept", []string{`{"data":[` + many + `,` + many + `,` + many + `]}`}, 2, true},
		{"one that is larger than all that is kept", []string{`{"data":[` + large + `,` + ours + `]}`}, 1, true},
	} {
		if got := read(t, c.answers...); len(got.Records) != c.records || got.Cut != c.cut {
			t.Errorf("%s: got %d records, cut %t; want %d, %t", c.what, len(got.Records), got.Cut, c.records, c.cut)
		}
	}
}
