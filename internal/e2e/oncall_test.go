package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/oncall/inspect"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// A person sees with the rights of the shipped configuration which programs run, what they
// hold and since when, what waits for that reason, and that it is over.
func TestPeopleSeeWhatIsHeldAndWhatWaitsForIt(t *testing.T) {
	in := install(t, "RETRY_MAX=200ms", "RETRY_TRIES=2")
	nc, js := connectAs(t, in.nats.URL, "ann")
	ann := inspect.Reader{Conn: nc, JS: js}
	problems := func() (list []string) {
		s, err := ann.Status(t.Context(), time.Now())
		must(t, err)
		for _, p := range s.Problems {
			list = append(list, p.Where+": "+p.What)
		}
		return list
	}
	want := []string{"program: no mandate-consumer answers: does one run?", "program: no mail-consumer answers: does one run?",
		"program: no log-poller answers: does one run?"}
	got := problems()
	errorIf(t, !slices.Equal(got, want), "before a program runs: %q, want %q", got, want)
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 401})
	for _, program := range everyProgram {
		in.start(program)
	}
	in.request(enrollOp, "r", 5)
	in.until("the hold to be seen", time.Minute, func() bool {
		list := problems()
		return len(list) == 1 && strings.HasPrefix(list[0], "upstream: mandate.enroll is held for ") &&
			strings.HasSuffix(list[0], "answers 401: credentials, account or quota")
	})
	stuck, err := ann.Stuck(t.Context(), time.Now(), 100, time.Now())
	errorIf(t, err != nil || len(stuck.Requests) != 5 || len(stuck.Causes) == 0 ||
		!strings.Contains(stuck.Causes[0].Why, "held: mandate service (enroll) answers 401"),
		"what waits: %+v, %v, want 5 requests for a hold", stuck, err)
	in.box.ClearFaults("*")
	in.until("the end of the hold to be seen", time.Minute, func() bool {
		return len(problems()) == 0 && in.count("mandate.enroll.succeeded.*") == 5
	})
	stories, err := ann.Stories(t.Context(), "r0", time.Now())
	errorIf(t, err != nil || len(stories) != 1 || stories[0].State != messages.Succeeded, "the story of r0: %+v, %v", stories, err)
}

// consoleOf starts a console behind a proxy, which is the test, that knows of one request, which failed. It returns a function
// that asks it for a page, or posts a form, as ann@example.com, who may do everything.
func consoleOf(t *testing.T, env ...string) (ask func(path string, form url.Values) (status int, body string)) {
	t.Helper()
	in := install(t)
	in.start("mandate-consumer")
	in.publish("mandate.enroll.requested", enrollment("bad", "amount", "many"))
	p := in.start("console", append([]string{"CONSOLE_ADDR=127.0.0.1:0", "CONSOLE_DIR=" + t.TempDir(), "CONSOLE_LOGIN=proxy",
		"CONSOLE_URL=https://errand.example.com", "CONSOLE_PROXY_PEERS=127.0.0.1", "CONSOLE_READ_GROUPS=support",
		"CONSOLE_REVEAL_GROUPS=privacy", "CONSOLE_ACT_GROUPS=on-call"}, env...)...)
	in.until("the console to be ready", time.Minute, func() bool { return p.logged("serving pages", "\n") && p.says(http.StatusOK)() })
	var line struct {
		Addr string `json:"addr"`
	}
	must(t, json.Unmarshal([]byte(p.logLine("serving pages")), &line))
	client := &http.Client{Timeout: 10 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	ask = func(path string, form url.Values) (int, string) {
		t.Helper()
		method := http.MethodGet
		if form != nil {
			method = http.MethodPost
		}
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+line.Addr+path, strings.NewReader(form.Encode()))
		must(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Forwarded-User", "ann@example.com")
		r.Header.Set("X-Forwarded-Groups", "privacy,on-call")
		answer, err := client.Do(r)
		must(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		must(t, err)
		return answer.StatusCode, string(body)
	}
	in.until("the console to know the request", time.Minute, func() bool {
		_, body := ask("/requests", nil)
		return strings.Contains(body, "/requests/bad")
	})
	return ask
}

// consolePages are all kinds, of a request that failed.
var consolePages = []string{"/", "/find", "/requests", "/requests?state=failed", "/requests/bad", "/dead-letters", "/queues", "/audit"}

// Whatever the server refuses its user fails the test (installation.close).
func TestTheConsoleWorksWithTheRightsOfItsUser(t *testing.T) {
	ask := consoleOf(t, "NATS_USER=console-act", "NATS_PASSWORD="+password("console-act"))
	for _, page := range consolePages {
		status, body := ask(page, nil)
		errorIf(t, status != http.StatusOK, "%s: %d\n%s", page, status, body)
	}
	why := url.Values{"why": {"to be tried"}, "for": {"1h"}}
	for _, path := range []string{"/queues/mandate.enroll/pause", "/queues/mandate.enroll/resume"} {
		status, body := ask(path, why)
		errorIf(t, status != http.StatusSeeOther, "%s: %d\n%s", path, status, body)
	}
	if status, body := ask("/requests/bad/reveal", why); status != http.StatusOK || !strings.Contains(body, "payer@example.test") {
		t.Errorf("to reveal: %d\n%s", status, body)
	}
	if _, body := ask("/audit", nil); strings.Count(body, "ann@example.com") < 3 {
		t.Errorf("the audit does not say that ann@example.com did three things:\n%s", body)
	}
}

// A console that only shows does with the rights of one who only reads.
func TestAConsoleThatOnlyShowsWorksWithTheRightsOfPeople(t *testing.T) {
	ask := consoleOf(t, "CONSOLE_ROLES=read")
	for _, page := range consolePages {
		status, body := ask(page, nil)
		errorIf(t, status != http.StatusOK || strings.Contains(body, "payer@example.test"), "%s: %d\n%s", page, status, body)
	}
	for _, path := range []string{"/queues/mandate.enroll/pause", "/requests/bad/reveal"} {
		status, _ := ask(path, url.Values{"why": {"to be tried"}, "for": {"1h"}})
		errorIf(t, status != http.StatusForbidden, "%s: %d, want 403", path, status)
	}
}
