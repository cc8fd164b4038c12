package sandbox

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func send(t testing.TB, s *Sandbox, subject string, to ...string) {
	t.Helper()
	must(t, s, "POST", "/api/v0/messages", message1().with("subject", subject).with("to", to).String())
}

func logs(t testing.TB, s *Sandbox, query string) map[string]any {
	t.Helper()
	return must(t, s, "GET", "/api/v0/logs"+query, "")["data"].(map[string]any)
}

// tos returns the recipients of a page, in its order.
func tos(t testing.TB, page map[string]any) []string {
	var list []string
	for _, entry := range page["data"].([]any) {
		list = append(list, dig(t, entry, "to").(string))
	}
	return list
}

func TestMailIsQueuedUntilTheOutboundServerHasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSandbox(t, strictOptions())
		set(t, s, func(v *Settings) { v.LogDelay = Duration(10 * time.Second) })
		send(t, s, "Notice", "a@example.test")
		time.Sleep(10*time.Second - time.Millisecond)
		equal(t, "before", logs(t, s, "")["total_record"], 0)
		time.Sleep(time.Millisecond)
		page := logs(t, s, "")
		equal(t, "after", page["total_record"], 1)
		equal(t, "created_at is the event's time", dig(t, page, "data", 0, "created_at"), "2000-01-01T00:00:10.000Z")
	})
}

func TestRowsOfOneMessageShareAnEnvelopeWithTheTimeOfAcceptance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSandbox(t, strictOptions())
		time.Sleep(1234 * time.Millisecond)
		accepted := time.Now()
		send(t, s, "one", "a@example.test", "b@example.test")
		send(t, s, "two", "a@example.test")
		time.Sleep(time.Hour)
		set(t, s, func(v *Settings) { v.LogOrder = Oldest })
		page := logs(t, s, "")
		id := func(i int) string { return dig(t, page, "data", i, "envelope_id").(string) }
		if !regexp.MustCompile(`^[0-9a-f]{18}$`).MatchString(id(0)) || id(0) != id(1) || id(0) == id(2) {
			t.Errorf("envelopes are %s %s %s", id(0), id(1), id(2))
		}
		equal(t, "first eleven digits", id(0)[:11], fmt.Sprintf("%011x", accepted.UnixMilli()))
	})
}

func TestTheLogIsPagedByLimitAndPage(t *testing.T) {
	s := instant(t, newSandbox(t, strictOptions()))
	send(t, s, "Notice", many(250)...)
	for query, want := range map[string][]any{ // rows, current_page, limit, total_page
		"":                  {100, 1, 100, 3},
		"?page=3":           {50, 3, 100, 3},
		"?page=4":           {0, 4, 100, 3},
		"?limit=250":        {250, 1, 250, 1},
		"?limit=30&page=2":  {30, 2, 30, 9},
		"?limit=0&page=-1":  {100, 1, 100, 3},
		"?limit=x":          {100, 1, 100, 3},
		"?limit=2147483647": {250, 1, 1000, 1},
	} {
		got := logs(t, s, query)
		equal(t, query, []any{len(tos(t, got)), got["current_page"], got["limit"], got["total_page"]}, want)
		equal(t, query+" total_record", got["total_record"], 250)
	}
	set(t, s, func(v *Settings) { v.LogCap = 40 })
	got := logs(t, s, "?limit=500")
	equal(t, "capped", []any{len(tos(t, got)), got["limit"], got["total_page"]}, []any{40, 40, 7})
}

func TestTheLogHasTheOrderThatIsSet(t *testing.T) {
	s := instant(t, newSandbox(t, strictOptions()))
	send(t, s, "Notice", many(50)...)
	order := func(order string) []string {
		set(t, s, func(v *Settings) { v.LogOrder = order })
		return tos(t, logs(t, s, ""))
	}
	oldest, newest, none := order(Oldest), order(Newest), order(NoOrder)
	equal(t, "oldest", oldest, many(50))
	slices.Reverse(newest)
	equal(t, "newest, reversed", newest, many(50))
	if slices.Equal(none, oldest) || !slices.Equal(none, order(NoOrder)) {
		t.Errorf("none lists %v, want another order, and the same each time", none)
	}
	slices.Sort(none)
	slices.Sort(oldest)
	equal(t, "none, sorted", none, oldest)
}

func TestNewRowsShiftThePages(t *testing.T) {
	s := instant(t, newSandbox(t, strictOptions()))
	send(t, s, "Notice", many(4)...)
	before := tos(t, logs(t, s, "?limit=2&page=2"))
	send(t, s, "Notice", "new@example.test")
	equal(t, "page 2 before and after", [][]string{before, tos(t, logs(t, s, "?limit=2&page=2"))},
		[][]string{{"r1@example.test", "r0@example.test"}, {"r2@example.test", "r1@example.test"}})
}

func TestASpreadLogsAMessageGradually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := instant(t, newSandbox(t, strictOptions()))
		set(t, s, func(v *Settings) { v.LogSpread = Duration(10 * time.Second) })
		send(t, s, "one", many(10)...)
		time.Sleep(1500 * time.Millisecond)
		send(t, s, "two", many(10)...)
		time.Sleep(3 * time.Second)
		equal(t, "rows after 4.5 s", logs(t, s, "")["total_record"], 5+4)
		var times []string
		for _, entry := range logs(t, s, "")["data"].([]any) {
			times = append(times, dig(t, entry, "created_at").(string))
		}
		slices.Reverse(times)
		if !slices.IsSorted(times) {
			t.Errorf("events of two messages are not in their order: %v", times)
		}
		time.Sleep(time.Minute)
		equal(t, "rows in the end", logs(t, s, "")["total_record"], 20)
	})
}

func TestADeferredRowIsDeliveredLaterInItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := instant(t, newSandbox(t, strictOptions()))
		send(t, s, "Notice", "please-Defer@example.test", "bounce.me@example.test", "bob@defer.test")
		state := func() string {
			var all []string
			for _, entry := range logs(t, s, "")["data"].([]any) {
				reply := dig(t, entry, "status", "response").(string)
				all = append(all, fmt.Sprint(dig(t, entry, "to"), dig(t, entry, "delivered"), dig(t, entry, "status", "delivered"), reply[:3],
					dig(t, entry, "envelope_id"), dig(t, entry, "created_at")))
			}
			return strings.Join(all, "\n")
		}
		early := state()
		for _, want := range []string{"bob@defer.test 1 true", "bounce.me@example.test 0 false", "please-Defer@example.test 0 false"} {
			if !strings.Contains(strings.ReplaceAll(early, "test1", "test 1"), want) &&
				!strings.Contains(strings.ReplaceAll(early, "test0", "test 0"), want) {
				t.Errorf("log is\n%s\nwant %s", early, want)
			}
		}
		time.Sleep(5 * time.Minute)
		late := state()
		want := strings.Replace(early, "please-Defer@example.test0 false451", "please-Defer@example.test1 true250", 1)
		if late != want || late == early {
			t.Errorf("after five minutes the log is\n%s\nwant\n%s", late, want)
		}
	})
}

func TestSharesAreDrawnFromTheSeedWhateverTheOrder(t *testing.T) {
	states := func(seed uint64, to []string) map[string]string {
		o := strictOptions()
		o.Seed = seed
		s := instant(t, newSandbox(t, o))
		set(t, s, func(v *Settings) { v.ShareBounced, v.ShareDeferred = 0.2, 0.1 })
		send(t, s, "Notice", to...)
		got := map[string]string{}
		for _, entry := range logs(t, s, "?limit=1000")["data"].([]any) {
			got[dig(t, entry, "to").(string)] = dig(t, entry, "status", "response").(string)[:1]
		}
		return got
	}
	to := many(1000)
	one := states(1, to)
	counts := map[string]int{}
	for _, code := range one {
		counts[code]++
	}
	if counts["5"] < 150 || counts["5"] > 250 || counts["4"] < 60 || counts["4"] > 140 {
		t.Errorf("of 1,000: %v, want about 200 bounced and 100 deferred", counts)
	}
	slices.Reverse(to)
	if fmt.Sprint(states(1, to)) != fmt.Sprint(one) {
		t.Error("the same seed in another order drew other states")
	}
	if fmt.Sprint(states(2, to)) == fmt.Sprint(one) {
		t.Error("another seed drew the same states")
	}
}

func TestALowerDelayAppliesToQueuedMail(t *testing.T) {
	s := newSandbox(t, strictOptions())
	set(t, s, func(v *Settings) { v.LogDelay = Duration(time.Hour) })
	send(t, s, "Notice", "a@example.test")
	equal(t, "queued", logs(t, s, "")["total_record"], 0)
	instant(t, s)
	equal(t, "logged", logs(t, s, "")["total_record"], 1)
	set(t, s, func(v *Settings) { v.LogDelay = Duration(time.Hour) })
	equal(t, "still logged", logs(t, s, "")["total_record"], 1)
}

func TestForeignRowsAreSortedInByTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := instant(t, newSandbox(t, strictOptions()))
		send(t, s, "one", "a@example.test")
		time.Sleep(10 * time.Second)
		send(t, s, "two", "b@example.test")
		insert(t, s, `{"to":"mid@x.test","created_at":"2000-01-01T00:00:05Z","envelope_id":"e1"}`)
		insert(t, s, `{"to":"now@x.test"}`)
		insert(t, s, `{"to":"old@x.test","created_at":"1999-12-31T00:00:00Z"}`)
		equal(t, "order", tos(t, logs(t, s, "")), []string{"now@x.test", "b@example.test", "mid@x.test", "a@example.test", "old@x.test"})
		insert(t, s, `{"to":"mid@x.test","envelope_id":"e1","delivered":0,"status":{"response":"550 no"}}`)
		page := logs(t, s, "")
		equal(t, "replaced in place", []any{page["total_record"], dig(t, page, "data", 2, "delivered"),
			dig(t, page, "data", 2, "status", "response")}, []any{5, 0, "550 no"})
	})
}
