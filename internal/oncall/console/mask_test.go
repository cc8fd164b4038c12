package console

import (
	"html/template"
	"net/url"
	"strings"
	"testing"
	"time"

	"errand/internal/oncall/index"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

func TestWhatIsNotKnownToBeHarmlessIsHidden(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{`{"reason":"refused","payer_id":900101011234,"new_field":"Ann"}`, `{"reason":"refused","payer_id":"•••","new_field":"•••"}`},
		{`{"message":"ann@example.com is not known, nor 9001-0101-1234 at 12"}`, `{"message":"••• is not known, nor ••• at 12"}`},
		{`{"fields":{"payer_id":["900101011234 is wrong"]},"payer":{"a":[true]}}`,
			`{"fields":{"payer_id":["••• is wrong"]},"payer":{"a":["•••"]}}`},
		{`{"to":["a@b.c",null],"batches":2,"empty":{}}`, `{"to":["•••",null],"batches":2,"empty":{}}`},
		{`{"headers":{"status":"Ann Tester","X-Of":"Ann"},"status":"for ann@example.com","by":"ben@example.com"}`,
			`{"headers":{"status":"•••","X-Of":"•••"},"status":"for •••","by":"ben@example.com"}`},
		{`{"to":{"ann@example.com":"Ann","900101011234":1}}`, `{"to":{"•••":"•••","•••":"•••"}}`},
		{`{"message":"until 2026-11-22 23:53:07, born 1990-01-01, 1234-56-78 90:12:345"}`,
			`{"message":"until 2026-11-22 23:53:07, born •••, •••:12:345"}`},
		{`{"message":"until 2026-11-23T03:54:49Z or 2026-11-23T03:54:49.123Z"}`,
			`{"message":"until 2026-11-23T03:54:49Z or 2026-11-23T03:54:49.123Z"}`},
		{`{"enrollment":{"reason":"Ann","status":{"by":"Ann"}},"transaction":{"status":"Ann","message":"Ann"},"evidence":[{"status":"Ann"}]}`,
			`{"enrollment":{"reason":"•••","status":{"by":"•••"}},"transaction":{"status":"•••","message":"•••"},"evidence":[{"status":"•••"}]}`},
		{`{"evidence":{"seen":1,"batches":[{"count":2}]},"unsettled":[{"batch":1}]}`,
			`{"evidence":{"seen":1,"batches":[{"count":2}]},"unsettled":[{"batch":1}]}`},
		{`not JSON`, hidden},
		{`{"cut":`, hidden},
	} {
		got := strings.Join(strings.Fields(pretty([]byte(c.in), false, nil)), " ")
		got = strings.NewReplacer("{ ", "{", " }", "}", "[ ", "[", " ]", "]", ": ", ":", ", \"", ",\"", ", null", ",null").Replace(got)
		if got != c.want {
			t.Errorf("%s is shown as\n%s, want\n%s", c.in, got, c.want)
		}
		if revealed := pretty([]byte(c.in), true, nil); strings.Contains(revealed, hidden) {
			t.Errorf("%s is revealed as %s", c.in, revealed)
		}
	}
}

// An upstream's text repeats what the request says of the payer: nobody who may only read learns it.
func TestWhatTheRequestSaysOfItsPayerIsHiddenInEveryText(t *testing.T) {
	t.Parallel()
	request := []byte(`{"order_number":"DD001","payer_name":"Zo\u00eb  van Dam","payer_id":"S1234","payer_bank_name":"First Bank"}`)
	names := personalIn(messages.Enroll, request)
	for in, want := range map[string]string{
		"payer_name: Zoë van Dam is not the holder of account 1234": "payer_name: ••• is not the holder of account 1234",
		"Zoe\u0308 van Dam is not the holder":                       "••• is not the holder",
		"DAM, ZOË (S1234) of First Bank has DD001":                  "•••, ••• (•••) of First Bank has DD001",
		"Damage, and a S12345":                                      "Damage, and a S12345",
	} {
		if got := names.hide(in); got != want {
			t.Errorf("%s is shown as %s, want %s", in, got, want)
		}
	}
}

// What errand or a person who acts has written names requests and tickets, which people go by and commands are made of.
func TestIDsAndTicketsAreShownInWhatIsOurs(t *testing.T) {
	t.Parallel()
	in := installed(t)
	const id = "signup-20261128001"
	in.failed(id)
	in.store("mandate.enroll.reopened."+id, body{"by": "ben", "why": "INC0012345 of Ann Tester", "was": body{"state": "failed"}})
	in.store("mandate.enroll.failed.withdrawn", body{"reason": "cancelled", "message": "cancelled by ben: INC0012345"})
	in.store("mandate.enroll.failed.refused", body{"reason": "refused", "message": "refused is 20261128001"})
	for path, want := range map[string]string{
		"/requests/" + id:         "and not published: `errand dead redrive " + id + "` finishes it",
		"/requests/" + id + "?a=": "Reopened by ben (INC0012345 of •••) ", // whenever that was
		"/requests/withdrawn":     "Cancelled by ben: INC0012345, ",
		"/requests/refused":       "Failed: refused, refused is •••, ",
		"/requests/refused?a=":    `<p class="soft">refused is •••</p>`,
	} {
		if _, page := in.get(path); !strings.Contains(page, want) {
			t.Errorf("%s does not say %q:\n%s", path, want, page)
		}
	}
	_, refusal := in.post("/requests/unseen-20261128001/cancel", url.Values{"operation": {"mandate.enroll"}, "why": {"x"}})
	if want := "Unseen-20261128001 was never seen"; !strings.Contains(refusal, want) {
		t.Errorf("a refusal does not say %q:\n%s", want, refusal)
	}
	in.watch.mu.Lock()
	in.watch.known.Status.At, in.watch.known.Status.Problems = messages.Time{Time: time.Now()}, []inspect.Problem{
		{Kind: "held", Where: "upstream", What: "900101011234 is unknown"}, {Kind: "duplicates", Where: "requests", What: "two for " + id}}
	in.watch.known.Stuck.Causes = []inspect.Cause{{Why: "held: 900101011234 is unknown", Operation: messages.Enroll, Count: 1}}
	var main strings.Builder
	err := template.Must(templates["today"].Clone()).ExecuteTemplate(&main, "content", page{Data: today{known: in.watch.known}})
	in.watch.mu.Unlock()
	if said := main.String(); err != nil || !strings.Contains(said, "</a>: two for "+id) || !strings.Contains(said, "held: •••") ||
		strings.Contains(said, "900101011234") {
		t.Errorf("the problems are shown as\n%s%v", said, err)
	}
}

func TestANameIsHiddenHoweverItIsMade(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"Tan Tan Mei":         {"Tan Tan Mei is not the holder, tan-tan-mei, Mei Tan Tan", "••• is not the holder, •••-•••-•••, ••• ••• •••"},
		"İBRAHİM ÇELİK":       {"İBRAHİM ÇELİK \xff is not the holder", "••• \ufffd is not the holder"},
		"Σίσυφος":             {"ΣΊΣΥΦΟΣ Σίσυφος", "••• •••"},
		"Al O'Brien-Smith Li": {"AL O'BRIEN-SMITH LI, Smith", "•••, Smith"},
	} {
		if got := personalIn(messages.Enroll, []byte(`{"payer_name":"`+name+`"}`)).hide(c.in); got != c.want {
			t.Errorf("%s: %s is shown as %s, want %s", name, c.in, got, c.want)
		}
	}
}

func TestTheChartHasEveryHourAndTheFewAmongMany(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	counted := func(state messages.State, n, hour int) index.Count {
		return index.Count{Kind: index.Kind{State: state}, Count: n, At: begin.Add(time.Duration(hour) * time.Hour)}
	}
	c := chartOf([]index.Count{counted(messages.Succeeded, 9000, 0), counted(messages.Failed, 1, 0), counted(messages.Uncertain, 2, 23),
		counted(messages.Failed, 5, 24), counted(messages.Deferred, 7, 0)}, begin)
	if len(c.Bars) != 24 || c.Total != (tally{Good: 9000, Bad: 1, Doubt: 2}) {
		t.Fatalf("%d bars, in all %+v", len(c.Bars), c.Total)
	}
	if top := c.Lines[len(c.Lines)-1].Value; top != 10000 {
		t.Errorf("the highest line is %d, want 10000", top)
	}
	first := c.Bars[len(c.Bars)-1].Parts
	if len(first) != 2 || first[1].Height < 1 || first[1].Y > first[0].Y {
		t.Errorf("the first bar is %+v", first)
	}
}

// Who may publish requests chooses what a dead letter holds.
func TestABodyThatIsNestedDeepOrLongStaysSmall(t *testing.T) {
	t.Parallel()
	const n = 30_000
	for name, in := range map[string]string{
		"deep":          strings.Repeat("[", n) + strings.Repeat("]", n),
		"deep and open": strings.Repeat(`{"a":`, n),
		"wide":          strings.Repeat("[", 40) + "1" + strings.Repeat(",1", 15*n) + strings.Repeat("]", 40),
	} {
		for _, reveal := range []bool{false, true} {
			if n := len(pretty([]byte(in), reveal, nil)); n > 3<<20 {
				t.Errorf("%s, %d bytes, takes %d to show", name, len(in), n)
			}
		}
	}
}
