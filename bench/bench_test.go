package main

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// TestMain lets the test's program be a server or an upstream, as bench itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"server", "upstream", "log"}, os.Args[1]) {
		main()
		return
	}
	m.Run()
}

// opened is a stage with an upstream that answers at once.
func opened(t *testing.T) *stage {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := workshop{dir: t.TempDir(), self: self}.open("test", "upstream")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// call makes a call as a contestant would.
func call(t *testing.T, s *stage, path, body string) string {
	t.Helper()
	client := http.Client{Timeout: time.Minute}
	response, err := client.Post(s.address+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func TestTheUpstreamCountsCallsAndAddresses(t *testing.T) {
	s := opened(t)
	if answer := call(t, s, "/v3/mandates", enrollmentNumber("a")); answer != enrolled {
		t.Errorf("an enrollment was answered %s", answer)
	}
	if answer := call(t, s, "/api/v0/messages", messageTo("b", 2500)); !strings.Contains(answer, `"total_recipient":2500}`) {
		t.Errorf("a message was answered %s", answer)
	}
	seen, err := s.api.ask("reset")
	if err != nil {
		t.Fatal(err)
	}
	if seen.Calls != 2 || seen.Ats != 2502 || seen.First == 0 {
		t.Errorf("%+v were counted, want 2 calls with 2502 addresses", seen)
	}
	if seen, err = s.api.ask("calls"); err != nil {
		t.Fatal(err)
	}
	if seen.Calls != 0 || seen.Ats != 0 || seen.First != 0 {
		t.Errorf("after a reset there are %+v", seen)
	}
}

// A run counts only when every request ended well, once.
func TestARunDoesNotCountUnless(t *testing.T) {
	s := opened(t)
	work := requests{items: 2}
	ended := func(id string, state messages.State) {
		if _, err := s.js.PublishMsg(t.Context(), nats.NewMsg(messages.Enroll.Subject(state, id))); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		calls int
		run   func()
		right bool
	}{
		"every request has one outcome": {2, func() { ended("a", messages.Succeeded); ended("b", messages.Succeeded) }, true},
		"one has none":                  {2, func() { ended("a", messages.Succeeded) }, false},
		"one failed":                    {2, func() { ended("a", messages.Succeeded); ended("b", messages.Failed) }, false},
		"one has two": {2, func() {
			ended("a", messages.Succeeded)
			ended("a", messages.Succeeded)
			ended("b",
				messages.Succeeded)
		}, false},
		"one was called twice": {3, func() { ended("a", messages.Succeeded); ended("b", messages.Succeeded) }, false},
	} {
		if err := work.prepare(t.Context(), s, name); err != nil {
			t.Fatal(err)
		}
		for range c.calls {
			call(t, s, "/v3/mandates", enrollmentNumber("a"))
		}
		c.run()
		if _, err := work.verify(t.Context(), s, 1); (err == nil) != c.right {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every contestant does every scenario right; how fast does not matter here.
func TestEveryContestantDoesItsWork(t *testing.T) {
	devtest.Full(t)
	w, clean, err := build(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := clean(); err != nil {
			t.Error(err)
		}
	})
	var results []result
	for _, s := range scenarios(0.02) {
		if s.concurrency > 64 || s.latency > 100*time.Millisecond {
			continue // the same, and slow with so little to do
		}
		r, err := s.compete(t.Context(), w, s.contestants(false), 1)
		if err != nil {
			t.Fatalf("%s: %v", s.key, err)
		}
		results = append(results, r)
	}
	t.Log("\n" + table(results))
}

// shown are results of two rounds with a busy machine in the second.
func shown() []result {
	return []result{{scenarios(1)[0], []contestant{{name: "errand"}, {name: "loop"}}, [][]figures{
		{{100, 0.2, 0.2, 0.1, 30}, {200, 0.1, 0.1, 0.1, 20}},
		{{10, 0.6, 0.3, 0.1, 30}, {40, 0.2, 0.1, 0.1, 20}},
	}}}
}

func TestRatiosAreThoseWithinARound(t *testing.T) {
	got := shown()[0].ratio(1, columns[0].of)
	if want := (spread{0.375, 0.25, 0.5}); got != want {
		t.Errorf("the ratio of the rates is %v, want %v", got, want)
	}
	if text := ratios(shown()); !strings.Contains(text, "0.38 (0.25 to 0.50)") {
		t.Errorf("the table does not show it:\n%s", text)
	}
}

func TestTheSummaryHasTheRateAndTheRatios(t *testing.T) {
	if text := summary(shown()); !regexp.MustCompile(`\| enrollments, 0 ms, 64 in flight +\| +55 \| +0\.38 \|`).MatchString(text) {
		t.Errorf("it does not contain the rate and its ratio:\n%s", text)
	}
}

func TestTheTablesOfThePageAreReplaced(t *testing.T) {
	page := "a\n<!-- bench -->\nold\n<!-- end of bench -->\nz\n"
	got, err := replace(page, "new")
	if want := "a\n<!-- bench -->\n\nnew\n\n<!-- end of bench -->\nz\n"; err != nil || got != want {
		t.Errorf("it is %q, %v, want %q", got, err, want)
	}
	if _, err := replace("a\nz\n", "new"); err == nil {
		t.Error("tables that are not there were replaced")
	}
}

func TestThePageHasTables(t *testing.T) {
	page, err := os.ReadFile("../docs/why/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replace(string(page), "new"); err != nil {
		t.Error(err)
	}
}
