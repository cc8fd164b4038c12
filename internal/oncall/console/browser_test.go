package console

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"errand/internal/bus"
	"errand/internal/oncall/act"
	"errand/pkg/messages"
)

//go:embed testdata/axe-core/axe.min.js
var axe string

var browserPath = flag.String("browser", "",
	"a Chromium to run pages in, such as chromium-headless-shell; default: none, and the tests that need one are left out")

var shots = flag.String("shots", "",
	"a directory for a picture of every page, in both themes and at two widths, instead of the checks; default: none")

// browser starts Chromium, or skips the test where none is named: .ci/run console names one.
func browser(t *testing.T) context.Context {
	t.Helper()
	if *browserPath == "" {
		t.Skip("it needs -browser") //nolint:forbidigo // .ci/run console has it
	}
	ctx, end := chromedp.NewExecAllocator(context.Background(), chromedp.ExecPath(*browserPath), chromedp.Headless, chromedp.NoSandbox,
		chromedp.NoFirstRun)
	t.Cleanup(end)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(closeTab)
	ctx, stop := context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(stop)
	return ctx
}

func do(ctx context.Context, t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

func evaluate[T any](ctx context.Context, t *testing.T, script string, opts ...chromedp.EvaluateOption) T {
	t.Helper()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, opts...))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// window has the browser prefer a theme, and gives its window a width.
func window(ctx context.Context, t *testing.T, theme string, width int64) {
	t.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"}}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		t.Fatal(err)
	}
	do(ctx, t, chromedp.EmulateViewport(width, 900))
}

// populated is an installation with some of everything.
func populated(t *testing.T) *installation {
	t.Helper()
	in := installed(t)
	in.failed("order-1")
	in.store("mandate.enroll.started.order-2", body{"request_id": "order-2", "deadline": time.Now()})
	ended := in.store("mandate.enroll.uncertain.order-2", body{"request_id": "order-2", "reason": "no_answer", "message": "timeout"})
	in.store("dead.mandate.enroll.requested", body{"request_id": "order-2", "order_number": "DD002"}, "Errand-Request-Id", "order-2",
		"Errand-Reason", "no_answer", "Nats-Msg-Id", bus.DeadLetterID(messages.Enroll, "order-2", ended))
	in.store("mandate.enroll.succeeded.order-3", body{"request_id": "order-3"})
	in.store("mandate.enroll.requested", body{"request_id": "waits", "order_number": "DD004"})
	in.store("mail.send.accepted.letter-1", body{"request_id": "letter-1"})
	in.store("mail.delivery.delivered.letter-1", body{"event_id": "e", "entry": body{"to": "ann@example.com"}, "smtp": body{"code": 250}})
	in.shows("/requests", "letter-1")
	in.shows("/dead-letters", "order-2")
	in.shows("/queues", "waits")
	return in
}

// redriven is the page of a redrive.
func (in *installation) redriven() string {
	in.t.Helper()
	page := in.shows("/dead-letters", "order-1")
	letter := regexp.MustCompile(`value="(\d+)" aria-label="Select order-1"`).FindStringSubmatch(page)
	if len(letter) < 2 {
		in.t.Fatalf("order-1 is not listed:\n%s", page)
	}
	in.post("/redrive", url.Values{"item": {"seq:" + letter[1]}, "why": {"it is back"}})
	return regexp.MustCompile(`/redrives/[A-Z0-9]+`).FindString(in.shows("/dead-letters", "1 of 1 request"))
}

// busy adds what a bad day leaves: programs that hold, many failures with long ids, and acts.
func (in *installation) busy() {
	in.t.Helper()
	for _, p := range []bus.ProgramStatus{
		{Program: "mandate-consumer", Host: "mandate-consumer-7c9d8b5f6-x2x4z", Version: "1.4.0",
			Holds: []bus.Hold{{Operation: messages.Enroll, Why: "status 503: the bank is being moved", Since: messages.Time{Time: time.Now()}}}},
		{Program: "mail-consumer", Host: "mail-consumer-5b8f7d9c4-q8w7e", Version: "1.4.0"},
	} {
		p.Started = messages.Time{Time: time.Now().Add(-50 * time.Hour)}
		if err := bus.AnswerStatus(in.js.Conn(), p.Program, func() bus.ProgramStatus { return p }); err != nil {
			in.t.Fatal(err)
		}
	}
	for n := range 30 {
		id := fmt.Sprintf("newsletter-2026-11-25-kuala-lumpur-%06d", 4711*n)
		reason := []string{"refused", "refused", "unavailable"}[n%3]
		ended := in.store("mail.send.failed."+id, body{"request_id": id, "reason": reason, "attempt": n, "http_status": 429,
			"message": "status 429: the plan's quota of 20000 messages a day is used up"})
		in.store("dead.mail.send.requested", body{"request_id": id, "to": "ann@example.com"}, "Errand-Request-Id", id, "Errand-Reason", reason,
			"Errand-Message", "status 429: the plan's quota of 20000 messages a day is used up",
			"Nats-Msg-Id", bus.DeadLetterID(messages.Send, id, ended))
		in.store("mandate.enroll.requested", body{"request_id": fmt.Sprintf("signup-2026-11-25-branch-ampang-%06d", n), "order_number": id})
	}
	person, err := in.person(anybody)
	if err != nil {
		in.t.Fatal(err)
	}
	for n := range 2 * actsRead / 3 {
		_, err := person.Do(in.t.Context(), act.Act{Verb: act.Redrive, Target: fmt.Sprintf("newsletter-2026-11-25-kuala-lumpur-%06d", n),
			Why: fmt.Sprint("INC00123", n/4, ": the quota was raised"), Plan: "safe: no call had an effect"},
			func(context.Context) (string, error) { return "reopened and published", nil })
		if err != nil {
			in.t.Fatal(err)
		}
	}
	in.shows("/dead-letters", "kuala-lumpur")
	in.shows("/", "held")
}

// violations are what axe-core has against a page.
func violations(ctx context.Context, t *testing.T) []string {
	t.Helper()
	evaluate[chromedp.Void](ctx, t, axe)
	return evaluate[[]string](ctx, t,
		`axe.run().then(r => r.violations.flatMap(v => v.nodes.map(n => v.id + ": " + n.html.slice(0, 200) + " " + n.failureSummary)))`,
		chromedp.EvalAwaitPromise)
}

// picture takes one of a whole page.
func picture(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	name = strings.Trim(regexp.MustCompile(`[^a-z0-9.]+`).ReplaceAllString(name, "-"), "-")
	if err := os.WriteFile(filepath.Join(*shots, name+".png"), png, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEveryPageIsAccessibleInBothThemesAndFitsAPhone(t *testing.T) {
	ctx := browser(t)
	in := populated(t)
	in.busy()
	in.post("/queues/mail.send/pause", url.Values{"for": {"1h"}, "why": {"the service is being moved"}})
	in.shows("/audit", "being moved")
	found, err := in.startFind(formOfWord("ann@example.com"), anybody)
	if err != nil {
		t.Fatal(err)
	}
	pages := []string{"/", "/find", found, "/requests", "/requests?state=failed&since=1h", "/requests/order-1", "/requests/letter-1",
		"/requests/waits", "/requests/never", "/dead-letters",
		"/redrive?operation=mandate.enroll", "/queues", "/queues/mandate.enroll/pause", "/queues/mail.send/pause", "/audit", in.redriven(),
		"/requests/waits/cancel?operation=mandate.enroll", "/requests/order-1/reveal", "/nothing"}
	for _, page := range pages {
		do(ctx, t, chromedp.Navigate(in.base+page))
		if *shots != "" {
			for _, width := range []int64{1400, 390} {
				for _, theme := range []string{"light", "dark"} {
					window(ctx, t, theme, width)
					picture(ctx, t, fmt.Sprintf("page%s.%d.%s", page, width, theme))
				}
			}
			continue
		}
		for theme, width := range map[string]int64{"light": 1400, "dark": 390} {
			window(ctx, t, theme, width)
			if wide := evaluate[int64](ctx, t, "document.documentElement.scrollWidth"); wide > width {
				t.Errorf("%s is %d wide in a window of %d", page, wide, width)
			}
			for _, v := range violations(ctx, t) {
				t.Errorf("%s, %s, %d: %s", page, theme, width, v)
			}
		}
	}
}

func TestAnOpenPageShowsWhatHappensAndKeepsWhatSomebodyOpened(t *testing.T) {
	ctx := browser(t)
	in := populated(t)
	do(ctx, t, chromedp.Navigate(in.base+"/requests"), chromedp.WaitVisible(`[data-live-state]`),
		chromedp.Focus(`main a[href="/requests/order-3"]`))
	in.store("mandate.enroll.succeeded.order-9", body{"request_id": "order-9"})
	do(ctx, t, chromedp.WaitVisible(`main a[href="/requests/order-9"]`))
	if focused := evaluate[string](ctx, t, "document.activeElement.textContent"); focused != "order-3" {
		t.Errorf("the focus went to %q", focused)
	}
	if fresh := evaluate[[]string](ctx, t, `[...document.querySelectorAll("tr.fresh")].map(row => row.dataset.key)`); !slices.Equal(fresh,
		[]string{"mandate.enrollorder-9"}) {
		t.Errorf("marked as new are %q", fresh)
	}
	do(ctx, t, chromedp.Navigate(in.base+"/requests/order-3"), chromedp.WaitVisible(`[data-live-state]`),
		chromedp.Click("main details summary"))
	in.store("mandate.enroll.reopened.order-3", body{"request_id": "order-3", "by": "ann", "why": "live"})
	do(ctx, t, chromedp.WaitVisible(`main .timeline li:nth-child(2)`))
	if open := evaluate[bool](ctx, t, "document.querySelector('main details').open"); !open {
		t.Error("the event that was opened is closed again")
	}
}

// A page that can no longer be refreshed says at its top since when it stands still, and why.
func TestAPageThatStandsStillSaysSince(t *testing.T) {
	ctx := browser(t)
	in := populated(t)
	do(ctx, t, chromedp.Navigate(in.base+"/requests"), chromedp.WaitVisible(`[data-live-state]`))
	for answer, want := range map[string]string{
		`Promise.resolve(new Response("", { status: 401 }))`: "your login has ended. Reload it to log in.",
		`window.asks("/requests//", options)`:                "your login has ended. Reload it to log in.", // it redirects
		`Promise.reject(new TypeError("no answer"))`:         "the console does not answer. It is asked again.",
	} {
		evaluate[chromedp.Void](ctx, t, `window.asks ??= window.fetch; window.fetch = (_, options) => `+answer+`;
			document.dispatchEvent(new Event("visibilitychange"))`)
		do(ctx, t, chromedp.WaitVisible("[data-stale]"), chromedp.WaitNotVisible("[data-live-state]"))
		said, err := chromedp.Run(ctx, chromedp.TextContent("[data-stale]"))
		if err != nil || !strings.HasPrefix(said, "This page is of ") || !strings.HasSuffix(said, want) {
			t.Errorf("it says %q, %v, want %q", said, err, want)
		}
		evaluate[chromedp.Void](ctx, t, `window.fetch = window.asks; document.dispatchEvent(new Event("visibilitychange"))`)
		do(ctx, t, chromedp.WaitVisible("[data-live-state]"), chromedp.WaitNotVisible("[data-stale]"))
	}
}

func TestKeysFindAndListTheKeys(t *testing.T) {
	ctx := browser(t)
	in := installed(t)
	press := func(key string) {
		t.Helper()
		evaluate[chromedp.Void](ctx, t, `document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "`+key+`", bubbles: true }))`)
	}
	do(ctx, t, chromedp.Navigate(in.base+"/queues"), chromedp.WaitVisible("[data-live-state]"))
	press("?")
	do(ctx, t, chromedp.WaitVisible("dialog"), chromedp.Click("dialog button"), chromedp.WaitNotVisible("dialog"))
	press("/")
	do(ctx, t, chromedp.WaitVisible("#word:focus"))
	press("x")
	press("6")
	do(ctx, t, chromedp.WaitVisible(`form[action="/audit"]`))
}

// What people do is done without scripts: forms alone have to do.
func TestEveryActWorksWithoutScriptsAndHasItsEffect(t *testing.T) {
	ctx := browser(t)
	in := populated(t)
	if _, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	why := chromedp.SendKeys("#why", "a test does it")
	submit := chromedp.Click("main form:last-of-type button")

	do(ctx, t, chromedp.Navigate(in.base+"/find"), chromedp.SendKeys("#word", "order-1"), chromedp.Click("main form button"),
		chromedp.WaitVisible(`main a[href="/requests/order-1"]`),
		chromedp.Click(`main a[href="/requests/order-1"]`), chromedp.WaitVisible(".timeline"))

	do(ctx, t, chromedp.Click(`main a[href^="/redrive"]`), chromedp.WaitVisible("#why"), why, chromedp.Click("main button.main"),
		chromedp.WaitVisible("progress"))
	in.until("order-1 is reopened and queued", func() bool {
		return slices.Contains(in.events("MANDATE_EVENTS", "mandate.enroll.*.order-1"), "mandate.enroll.reopened.order-1") &&
			len(in.events("MANDATE_REQUESTS", "mandate.enroll.requested")) == 2
	})

	do(ctx, t, chromedp.Navigate(in.base+"/requests/waits"), chromedp.Click(`main a[href*="/cancel"]`), chromedp.WaitVisible("#why"), why,
		submit, chromedp.WaitVisible(".timeline"))
	if got := in.events("MANDATE_EVENTS", "mandate.enroll.*.waits"); !slices.Equal(got, []string{"mandate.enroll.failed.waits"}) {
		t.Errorf("cancelled, it has the events %q", got)
	}

	do(ctx, t, chromedp.Navigate(in.base+"/queues/mail.send/pause"), why, submit, chromedp.WaitVisible("#programs"))
	queue, err := in.reader.Queue(t.Context(), bus.SendQueue, time.Now())
	if err != nil || queue.PausedUntil == nil {
		t.Errorf("paused, the queue is %+v, %v", queue, err)
	}
	do(ctx, t, chromedp.Navigate(in.base+"/queues/mail.send/pause"), chromedp.WaitVisible(`form[action$="/resume"]`), why, submit,
		chromedp.WaitVisible("#programs"))
	if queue, err = in.reader.Queue(t.Context(), bus.SendQueue, time.Now()); err != nil || queue.PausedUntil != nil {
		t.Errorf("resumed, the queue is %+v, %v", queue, err)
	}

	do(ctx, t, chromedp.Navigate(in.base+"/requests/order-1/reveal"), why, submit, chromedp.WaitVisible(".timeline"))
	if page, err := chromedp.Run(ctx, chromedp.TextContent("main")); err != nil || !strings.Contains(page, "Ann Tester") {
		t.Errorf("revealed, the page is %q, %v", page, err)
	}

	acts, err := act.Acts(t.Context(), in.reader.Conn, act.Query{})
	if err != nil {
		t.Fatal(err)
	}
	var did []string
	for _, a := range acts {
		did = append(did, fmt.Sprint(a.Verb, " ", a.Target, " ", a.Result, ": ", a.Why))
	}
	want := []string{"reveal order-1 done", "resume mail-send done", "pause mail-send done", "cancel waits done",
		"redrive order-1 done"}
	for i := range want {
		want[i] += ": a test does it"
	}
	if !slices.Equal(did, want) {
		t.Errorf("the audit has\n%s\nwant\n%s", strings.Join(did, "\n"), strings.Join(want, "\n"))
	}
}

// What may be done twice runs only where somebody ticks it.
func TestARedriveRunsWhatIsSafeAndWhatIsTickedAlone(t *testing.T) {
	t.Parallel()
	in := populated(t)
	page := in.shows("/redrive?operation=mandate.enroll", "order-2")
	form := url.Values{"why": {"it is back"}}
	for part := range strings.SplitSeq(page, `name="item" value="`) {
		if sequence, _, found := strings.Cut(part, `"`); found && !strings.Contains(sequence, "<") {
			form.Add("item", sequence)
		}
	}
	if n := len(form["item"]); n != 2 {
		t.Fatalf("the plan has %d requests:\n%s", n, page)
	}
	if status, _ := in.post("/redrive", url.Values{"item": form["item"]}); status != 400 {
		t.Errorf("without a reason: %d, want 400", status)
	}
	in.post("/redrive", form)
	in.until("order-1 is reopened", func() bool { return len(in.events("MANDATE_EVENTS", "mandate.enroll.reopened.order-1")) == 1 })
	in.shows("/dead-letters", "2 of 2 requests")
	if got := in.events("MANDATE_EVENTS", "mandate.enroll.reopened.order-2"); len(got) > 0 {
		t.Error("what may be done twice runs without being ticked")
	}
	form["accept"] = form["item"]
	in.post("/redrive", form)
	in.until("order-2 is reopened", func() bool { return len(in.events("MANDATE_EVENTS", "mandate.enroll.reopened.order-2")) == 1 })
}
