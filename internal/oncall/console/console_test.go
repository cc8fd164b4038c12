package console

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/oncall/access"
	"errand/internal/oncall/act"
	"errand/internal/oncall/index"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/internal/retry"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// installation is a server of NATS with what a test stores there, and a console before it.
type installation struct {
	t    *testing.T
	nats *devkit.NATS
	js   jetstream.JetStream
	*Server
	base string
}

type body = map[string]any

// installed starts a console over an empty installation.
func installed(t *testing.T, roles ...string) *installation {
	t.Helper()
	n, nc := devtest.Provisioned(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	in := &installation{t: t, nats: n, js: js}
	in.open(t.TempDir(), roles...)
	return in
}

// open starts the console.
func (in *installation) open(dir string, roles ...string) {
	t := in.t
	t.Helper()
	if len(roles) == 0 {
		roles = []string{"read", "reveal", "act"}
	}
	config := access.Config{Addr: "127.0.0.1:0", Login: "none", User: "ann", Roles: roles}
	guard, err := access.New(config, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	x, err := index.Open(index.Options{Dir: dir, Discarded: act.Discarded, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := bus.Connect(bus.Connection{URL: in.nats.URL}, "console", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	in.Server = newServer(programs.Connected{Conn: nc, JetStream: js, Logger: zerolog.Nop(), Version: "test"}, x, guard, nil)
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, work := range []func(context.Context){func(ctx context.Context) { x.Follow(ctx, nc, js) }, in.watch.run, in.runs.run} {
		wg.Go(func() { work(ctx) })
	}
	_, token, _ := strings.Cut(guard.Link(""), "=")
	pages := in.handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, port, _ := strings.Cut(r.Host, ":")
		r.AddCookie(&http.Cookie{Name: "errand-token-" + port, Value: token}) // as after it was opened with its link
		pages.ServeHTTP(w, r)
	}))
	in.base = server.URL
	t.Cleanup(func() {
		stop()
		server.Close()
		wg.Wait()
		nc.Close()
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
}

// store stores a message, and waits until it is.
func (in *installation) store(subject string, content any, header ...string) (sequence uint64) {
	in.t.Helper()
	ack, err := in.js.PublishMsg(in.t.Context(), devtest.Message(in.t, subject, content, header...))
	if err != nil {
		in.t.Fatal(err)
	}
	return ack.Sequence
}

// failed stores an enrollment that was refused, with its dead letter.
func (in *installation) failed(id string) {
	in.t.Helper()
	request := body{"request_id": id, "order_number": "DD001", "payer_name": "Ann Tester", "payer_email": "ann@example.com",
		"payer_id": "900101011234"}
	in.store("mandate.enroll.started."+id, body{"request_id": id, "attempt": 1, "order_number": "DD001", "deadline": time.Now()})
	ack, err := in.js.Publish(in.t.Context(), "mandate.enroll.failed."+id,
		mustJSON(body{"request_id": id, "attempt": 1, "at": time.Now(), "reason": "refused", "http_status": 422,
			"message": "The payer ann@example.com with 900101011234 is not known.", "order_number": "DD001"}))
	if err != nil {
		in.t.Fatal(err)
	}
	in.store("dead.mandate.enroll.requested", request, "Errand-Request-Id", id, "Errand-Reason", "refused", "Nats-Msg-Id",
		bus.DeadLetterID("mandate.enroll", id, ack.Sequence))
}

// begun stores how a message of these contents was cut into batches.
func (in *installation) begun(id string, batches int, contents body) {
	in.t.Helper()
	meta, _ := messages.Check(messages.Send, mustJSON(contents)) // only its fingerprint counts
	in.store("mail.send.started."+id, body{"batches": batches, "batch_size": 1000, "fingerprint": meta.Fingerprint})
}

func mustJSON(content any) []byte {
	text, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	return text
}

// get asks for a page as a browser without scripts does.
func (in *installation) get(path string) (status int, page string) {
	in.t.Helper()
	return in.ask(http.MethodGet, path, nil)
}

// post submits a form, and returns the page that it leads to.
func (in *installation) post(path string, form url.Values) (status int, page string) {
	in.t.Helper()
	return in.ask(http.MethodPost, path, form)
}

func (in *installation) ask(method, path string, form url.Values) (int, string) {
	in.t.Helper()
	r, err := http.NewRequestWithContext(in.t.Context(), method, in.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		in.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := (&http.Client{Timeout: 20 * time.Second}).Do(r)
	if err != nil {
		in.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		in.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// shows waits until a page has a text.
func (in *installation) shows(path, text string) (page string) {
	in.t.Helper()
	in.until("the page "+path+" shows "+text, func() bool {
		_, page = in.get(path)
		return strings.Contains(page, text)
	})
	return page
}

// until waits for something that is about to happen.
func (in *installation) until(what string, happened func() bool) {
	in.t.Helper()
	ctx, cancel := context.WithTimeout(in.t.Context(), time.Minute)
	defer cancel()
	for !happened() {
		if !retry.Pause(ctx, 50*time.Millisecond) {
			in.t.Fatal("it did not happen that ", what)
		}
	}
}

// events are the subjects of those that a stream has under a filter.
func (in *installation) events(stream, filter string) (subjects []string) {
	in.t.Helper()
	scan := bus.Scan{Stream: stream, Filter: filter, Page: 100}
	found, err := scan.Next(in.t.Context(), in.reader.Conn)
	if err != nil {
		in.t.Fatal(err)
	}
	for _, m := range found {
		subjects = append(subjects, m.Subject)
	}
	return subjects
}

func TestPersonalDataIsHiddenUntilItIsRevealedWhichIsAudited(t *testing.T) {
	t.Parallel()
	in := installed(t)
	in.failed("order-1")
	_, page := in.get("/requests/order-1")
	for _, secret := range []string{"ann@example.com", "900101011234", "Ann Tester", "DD001"} {
		if strings.Contains(page, secret) {
			t.Errorf("the page shows %q", secret)
		}
	}
	if !strings.Contains(page, "The payer ••• with ••• is not known.") {
		t.Errorf("the page does not have the message without its data:\n%s", page)
	}
	if status, _ := in.post("/requests/ann@example.com/reveal", url.Values{"why": {"x"}}); status != http.StatusNotFound {
		t.Errorf("of what is no id: %d, want 404, and no record", status)
	}
	if status, _ := in.post("/requests/order-1/reveal", url.Values{}); status != http.StatusBadRequest {
		t.Errorf("without a reason: %d, want 400", status)
	}
	_, page = in.post("/requests/order-1/reveal", url.Values{"why": {"the payer asks"}})
	if !strings.Contains(page, "Ann Tester") || !strings.Contains(page, "900101011234") {
		t.Errorf("revealed, the page is\n%s", page)
	}
	acts, err := act.Acts(t.Context(), in.reader.Conn, act.Query{})
	if err != nil || len(acts) != 1 || acts[0].Verb != act.Reveal || acts[0].Actor != "ann" || acts[0].Target != "order-1" ||
		acts[0].Result != act.Done {
		t.Errorf("the audit has %+v, %v", acts, err)
	}
	if page := in.shows("/audit", "the payer asks"); !strings.Contains(page, "reveal") {
		t.Errorf("the page of the audit is\n%s", page)
	}
}

func TestAGroupOfDeadLettersLeadsToItsLettersAndTheirPlan(t *testing.T) {
	t.Parallel()
	in := installed(t)
	in.failed("order-1")
	page := in.shows("/dead-letters", "?operation=mandate.enroll")
	links := regexp.MustCompile(`href="(/[a-z-]+\?operation=[^"]+)"`).FindAllStringSubmatch(page, -1)
	if len(links) != 2 {
		t.Fatalf("it links to %q, want a list and a plan", links)
	}
	for _, link := range links {
		in.shows(html.UnescapeString(link[1]), "order-1")
	}
	if _, other := in.get("/dead-letters?operation=mail.send&class=safe"); strings.Contains(other, `/requests/order-1"`) {
		t.Errorf("letters of another group:\n%s", other)
	}
}

// What went on after it ended needs nobody: it is told apart from what does, and a redrive says what became of its requests.
func TestDeadLettersBeginWithWhatNeedsSomebody(t *testing.T) {
	t.Parallel()
	in := installed(t)
	in.failed("order-1")
	in.failed("order-2")
	page := in.shows("/dead-letters", "2 requests that ended failed or uncertain need somebody")
	letter := regexp.MustCompile(`name="letter" value="(\d+)" aria-label="Select order-2"`).FindStringSubmatch(page)
	if len(letter) != 2 {
		t.Fatalf("order-2 is not listed:\n%s", page)
	}
	_, run := in.post("/redrive", url.Values{"item": {"seq:" + letter[1]}, "why": {"it is back"}})
	path := regexp.MustCompile(`/redrives/[A-Z0-9]+`).FindString(run + in.shows("/dead-letters", "1 of 1 request"))
	in.shows(path, "reopened: 1")
	in.store("mandate.enroll.succeeded.order-2", body{"request_id": "order-2"})
	in.shows(path, "succeeded: 1")
	page = in.shows("/dead-letters", "1 other needs nobody")
	if !strings.Contains(page, "/requests/order-1") || strings.Contains(page, "/requests/order-2") {
		t.Errorf("the page is\n%s", page)
	}
	in.shows("/dead-letters?all=1", "/requests/order-2")
}

func TestAQueueThatGivesOutNothingIsNotCalledOpen(t *testing.T) {
	t.Parallel()
	mail := func(faults []string, holds ...bus.Hold) []bus.ProgramStatus {
		return []bus.ProgramStatus{{Program: "mail-consumer", Faults: faults, Holds: holds}}
	}
	paused := inspect.Queue{Operation: messages.Send, PausedUntil: &messages.Time{}}
	for want, c := range map[string]struct {
		queue    inspect.Queue
		programs []bus.ProgramStatus
	}{
		"paused":     {paused, mail(nil)},
		"held":       {inspect.Queue{Operation: messages.Send}, mail(nil, bus.Hold{Operation: messages.Send, Why: "status 503"})},
		"no program": {inspect.Queue{Operation: messages.Enroll}, mail(nil)},
		"not ready":  {inspect.Queue{Operation: messages.Send}, mail([]string{"NATS check failed"})},
		"open":       {inspect.Queue{Operation: messages.Account}, mail(nil)},
	} {
		if got := (queuesPage{known: known{Status: inspect.Status{Programs: c.programs}}}).StateOf(c.queue); got.Text != want {
			t.Errorf("%+v is %q, want %q", c.queue, got.Text, want)
		}
	}
}

func TestWhoMayOnlyReadNeitherActsNorReveals(t *testing.T) {
	t.Parallel()
	in := installed(t, "read")
	in.failed("order-1")
	_, page := in.get("/requests/order-1")
	if strings.Contains(page, "Redrive") || strings.Contains(page, "personal data") {
		t.Error("the page offers what the user may not do")
	}
	for _, path := range []string{"/requests/order-1/reveal", "/requests/order-1/cancel", "/redrive", "/queues/mail.send/pause",
		"/queues/mail.send/resume", "/redrives/x/cancel"} {
		if status, _ := in.post(path, url.Values{"why": {"x"}, "operation": {"mandate.enroll"}, "for": {"1h"}}); status != http.StatusForbidden {
			t.Errorf("POST %s: %d, want 403", path, status)
		}
	}
	if acts, err := act.Acts(t.Context(), in.reader.Conn, act.Query{}); err != nil || len(acts) > 0 {
		t.Errorf("the audit has %v, %v", acts, err)
	}
}

func TestALinkToWhatWasFoundNamesNobody(t *testing.T) {
	t.Parallel()
	in := installed(t)
	in.store("mandate.enroll.succeeded.order-1", body{"request_id": "order-1", "order_number": "DD001",
		"enrollment": body{"payer_email": "ann@example.com"}})
	in.store("mandate.enroll.requested", body{"request_id": "waits", "order_number": "DD001", "payer_email": "ann@example.com"})
	in.shows("/requests", "order-1")
	for _, word := range []string{"ann@example.com", "DD001", "order-1"} {
		then, err := in.startFind(formOfWord(word), anybody)
		if err != nil || strings.Contains(then, "ann") || strings.Contains(then, "DD001") {
			t.Errorf("%s leads to %s, %v", word, then, err)
		}
		_, page := in.get(then)
		if !strings.Contains(page, `href="/requests/order-1"`) || word != "order-1" && strings.Contains(page, word+"<") {
			t.Errorf("%s finds\n%s", word, page)
		}
		if waits := strings.Contains(page, `href="/requests/waits"`); waits != (word != "order-1") {
			t.Errorf("%s finds the one that waits: %v", word, waits)
		}
	}
	in.store("mandate.deduction.failed.unmatched", body{"transaction": body{"order_number": "DD999"}})
	then, err := in.startFind(formOfWord("DD999"), anybody)
	if err != nil {
		t.Fatal(err)
	}
	in.until("a record of no request is shown", func() bool {
		_, page := in.get(then)
		return strings.Contains(page, "of no request with certainty") && strings.Contains(page, "no request, <time")
	})
	for length, want := range map[int]bool{1000: true, 1001: false} { // the longest name of a payer
		if _, err := in.startFind(formOfWord(strings.Repeat("é", length)), anybody); (err == nil) != want {
			t.Errorf("a word of %d letters: %v", length, err)
		}
	}
	if status, _ := in.get("/find/nonsense"); status != http.StatusNotFound {
		t.Errorf("a link that was not made here: %d, want 404", status)
	}
}

// What is queued has no reason, and was not there before it was published.
func TestAFilterHoldsForWhatIsQueuedToo(t *testing.T) {
	t.Parallel()
	in := installed(t)
	in.store("mail.send.requested", body{"request_id": "news"})
	for query, want := range map[string]bool{"": true, "&since=1h": true, "&reason=refused": false, "&until=1h": false,
		"&operation=mandate.enroll": false} {
		status, page := in.get("/requests?state=queued" + query)
		if got := strings.Contains(page, `href="/requests/news"`); got != want || status != http.StatusOK {
			t.Errorf("%q: %d, it is listed: %v, want %v", query, status, got, want)
		}
	}
}

func TestARowOfNoCertainRequestIsNotDenied(t *testing.T) {
	t.Parallel()
	in := installed(t)
	in.store("mail.send.requested", body{"request_id": "news", "to": "ben@example.com"})
	in.store("mail.send.failed.refused", body{"invalid": []body{{"address": "ben@example.com"}}})
	in.store("mail.send.accepted.sent", body{"invalid": []body{{"address": "ann@example.com"}}})
	in.shows("/requests", "sent")
	then, err := in.startFind(formOfWord("ann@example.com"), anybody)
	if err != nil {
		t.Fatal(err)
	}
	if _, page := in.get(then); !strings.Contains(page, `href="/requests/sent"`) || !strings.Contains(page, inspect.NoRow) {
		t.Errorf("of the mail it says\n%s", page)
	}
	if then, err = in.startFind(formOfWord("ben@example.com"), anybody); err != nil {
		t.Fatal(err)
	}
	_, page := in.get(then)
	if !strings.Contains(page, `href="/requests/news"`) || !strings.Contains(page, `href="/requests/refused"`) || strings.Contains(page, inspect.NoRow) {
		t.Errorf("of mail that was not sent it says\n%s", page)
	}
}

func TestPagesSayThatNATSIsGoneAndComeBack(t *testing.T) {
	t.Parallel()
	in := installed(t)
	in.failed("order-1")
	in.shows("/requests", "order-1")
	in.shows("/", "things are wrong.")
	in.nats.Stop()
	in.shows("/", "NATS has not answered for")
	in.shows("/", "things were wrong")
	if _, page := in.get("/requests"); !strings.Contains(page, "order-1") {
		t.Error("the list is lost with NATS")
	}
	if _, page := in.get("/requests/order-1"); !strings.Contains(page, "This is what the index knows") {
		t.Errorf("the page of a request is\n%s", page)
	}
	if err := in.nats.Restart(); err != nil {
		t.Fatal(err)
	}
	in.until("the notice goes", func() bool {
		_, page := in.get("/")
		return !strings.Contains(page, "NATS has not answered")
	})
	in.shows("/requests/order-1", "What happened")
}

var anybody = access.User{Name: "ann", Roles: []access.Role{access.Read, access.Reveal, access.Act}}

// formOfWord is the form of the page Find.
func formOfWord(word string) *http.Request { return &http.Request{Form: url.Values{"word": {word}}} }

// A redrive of many is one line of the audit, which a pause before it stays on.
func TestActsInOneGoAreOneLineOfTheAudit(t *testing.T) {
	in := installed(t)
	person, err := act.As("olga", "errand 1", in.reader.Conn, in.js)
	if err != nil {
		t.Fatal(err)
	}
	do := func(verb act.Verb, target, why string) {
		t.Helper()
		_, err := person.Do(t.Context(), act.Act{Verb: verb, Target: target, Why: why},
			func(context.Context) (string, error) { return "done", nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	do(act.Pause, "mail-send", "the bank moves")
	for n := range actsRead - 1 {
		do(act.Redrive, fmt.Sprintf("r%d", n), "the quota was raised")
	}
	page := in.shows("/audit", "the bank moves")
	if !strings.Contains(page, fmt.Sprintf("%d requests", actsRead-1)) || strings.Count(page, "the quota was raised") != 1 {
		t.Errorf("the page of the audit is\n%s", page)
	}
	do(act.Redrive, "another", "the quota was raised")
	if page = in.shows("/audit", "Older acts"); strings.Contains(page, "the bank moves") {
		t.Error("the page reads more than it should")
	}
	in.shows(fmt.Sprintf("/audit?read=%d", 10*actsRead), "the bank moves")
}

// A person who reads that something is wrong, or how many wait, gets from there to what it is.
func TestFiguresAndProblemsLeadToWhatTheyCount(t *testing.T) {
	in := installed(t)
	const waiting = 130
	for n := range waiting {
		in.store("mandate.enroll.requested", body{"request_id": fmt.Sprint("r", n)})
	}
	page := in.shows("/", fmt.Sprintf("oldest of %d", waiting))
	for _, link := range []string{`<li data-key="programno mandate-consumer answers: does one run?"><a href="/queues">Program</a>`,
		`<dd><a href="/queues">`, `<a href="/requests?state=failed&amp;since=24h">0</a>`} {
		if !strings.Contains(page, link) {
			t.Errorf("the page lacks %s:\n%s", link, page)
		}
	}
}

// The index does not learn that somebody removed a message of a stream.
func TestADeadLetterThatWasRemovedKeepsNoOtherFromARedrive(t *testing.T) {
	t.Parallel()
	in := installed(t)
	in.failed("removed")
	in.failed("kept")
	in.shows("/dead-letters", "/requests/kept")
	dead, err := in.js.Stream(t.Context(), bus.DeadLetters)
	if err == nil {
		err = dead.DeleteMsg(t.Context(), 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	if status, page := in.get("/redrive?operation=mandate.enroll"); status != http.StatusOK || !strings.Contains(page, `value="seq:2"`) ||
		strings.Contains(page, `value="seq:1"`) {
		t.Errorf("%d, the plan is\n%s", status, page)
	}
}

// What somebody has seen and leaves as it is needs nobody, until the request leaves another dead letter.
func TestADiscardedDeadLetterNeedsNobody(t *testing.T) {
	t.Parallel()
	in := installed(t)
	in.failed("order-1")
	in.failed("order-2")
	page := in.shows("/dead-letters", "2 requests that ended failed or uncertain need somebody")
	letter := regexp.MustCompile(`name="letter" value="(\d+)" aria-label="Select order-2"`).FindStringSubmatch(page)
	if len(letter) != 2 {
		t.Fatalf("order-2 is not listed:\n%s", page)
	}
	item := []string{"seq:" + letter[1]}
	if status, _ := in.post("/discard", url.Values{"item": item}); status != http.StatusBadRequest {
		t.Errorf("without a reason: %d, want 400", status)
	}
	in.post("/discard", url.Values{"item": item, "why": {"INC0012345: the payer signed on paper"}})
	page = in.shows("/dead-letters", "1 other needs nobody")
	if strings.Contains(page, "/requests/order-2") || !strings.Contains(page, "/requests/order-1") {
		t.Errorf("the page is\n%s", page)
	}
	in.shows("/dead-letters?all=1", "<small>discarded</small>")
	in.shows("/", `<a href="/dead-letters">1</a>`)
	if page := in.shows("/audit?target=order-2", "INC0012345: the payer signed on paper"); !strings.Contains(page, "discard ") {
		t.Errorf("the audit has\n%s", page)
	}
	in.failed("order-2")
	in.shows("/dead-letters", "2 requests that ended failed or uncertain need somebody")
}

// The reasons of today have the upstream's words, without what the request says of its payer.
func TestTopReasonsHaveTheUpstreamsWords(t *testing.T) {
	t.Parallel()
	in := installed(t)
	ended := in.store("mandate.enroll.failed.order-1", body{"request_id": "order-1", "reason": "refused"})
	in.store("dead.mandate.enroll.requested", body{"payer_name": "Ann Tester"}, "Errand-Request-Id", "order-1", "Errand-Reason", "refused",
		"Errand-Message", "payer_name: Ann Tester is not the holder of the account",
		"Nats-Msg-Id", bus.DeadLetterID("mandate.enroll", "order-1", ended))
	in.shows("/", "“payer_name: ••• is not the holder of the account”")
	in.store("mandate.enroll.requested", body{"request_id": "order-2", "payer_name": "Ben Waiting"})
	in.store("mandate.enroll.deferred.order-2", body{"request_id": "order-2", "reason": "busy", "http_status": 503,
		"not_before": time.Now().Add(time.Hour), "message": "not now, Ben Waiting"})
	for _, path := range []string{"/", "/queues", "/requests/order-2"} {
		if page := in.shows(path, "not now, •••"); strings.Contains(page, "Waiting,") || strings.Contains(page, "Ben") {
			t.Errorf("%s names the payer:\n%s", path, page)
		}
	}
}

// What waits for its time is counted, and is no trouble.
func TestScheduledRequestsAreCountedAndAreNoReason(t *testing.T) {
	t.Parallel()
	in := installed(t)
	later := time.Now().Add(time.Hour).UTC()
	in.store("mail.send.deferred.news", body{"request_id": "news", "reason": "scheduled", "not_before": later, "message": "not before"})
	in.store("scheduled.mail.send.at.news.0", body{"request_id": "news"}, "Nats-Schedule", "@at "+later.Format(time.RFC3339),
		"Nats-Schedule-Target", "scheduled.mail.send.due.news.0")
	in.shows("/queues", "<small>1 later</small>")
	if page := in.shows("/", "No request is waiting; 1 scheduled."); !strings.Contains(page, "and 1 scheduled") ||
		!strings.Contains(page, "Nothing failed, and nothing was deferred but for its time.") {
		t.Errorf("the page is\n%s", page)
	}
}

func TestTimesAreInTheZoneThatTheReaderChose(t *testing.T) {
	t.Parallel()
	in := installed(t)
	in.store("mandate.enroll.succeeded.order-1", body{"request_id": "order-1"})
	in.shows("/requests/order-1", "Times are in UTC")
	for _, c := range []struct{ zone, back, want string }{
		{"Asia/Kuala_Lumpur", "/requests/order-1?x=1", "/requests/order-1?x=1"},
		{"Asia/Kuala_Lumpur", "//example.com/x", "/x"},
		{"Asia/Kuala_Lumpur", "https://example.com//x", "/"},
		{"../../etc/passwd", "/", ""},
	} {
		form := url.Values{"zone": {c.zone}, "back": {c.back}}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, in.base+"/zone", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		in.setZone(w, r, anybody)
		if got := w.Result().Header.Get("Location"); got != c.want {
			t.Errorf("%s leads back to %q, want %q", c.back, got, c.want)
		}
		if c.want == "" {
			continue
		}
		r = httptest.NewRequestWithContext(t.Context(), http.MethodGet, in.base+"/requests/order-1", nil)
		r.AddCookie(w.Result().Cookies()[0])
		shown := httptest.NewRecorder()
		in.handler().ServeHTTP(shown, r)
		kualaLumpur := time.Now().In(time.FixedZone("", 8*60*60)).Format("15:04:")
		if page := shown.Body.String(); !strings.Contains(page, "Times are in Asia/Kuala_Lumpur") || !strings.Contains(page, ">"+kualaLumpur) {
			t.Errorf("at %s the page is\n%s", kualaLumpur, page)
		}
	}
}

// A queue's line of the last hour has the worst of each minute, and forgets what is older.
func TestAQueuesLastHourIsTheWorstOfEachMinute(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	var k known
	for i := range 90 * 2 {
		at := began.Add(time.Duration(i) * 30 * time.Second)
		free := messages.Time{Time: at.Add(-time.Duration(i%2) * time.Minute)}
		k.Status = inspect.Status{At: messages.Time{Time: at}, Queues: []inspect.Queue{{Operation: messages.Send,
			Untaken: uint64(100 * (1 - i%2)), Taken: i, FirstFree: &free}}}
		k.Past = pastOf(k.Past, k.Status)
	}
	past := k.Past["mail.send"]
	if len(past) != keptMinutes || past[0] != (minute{began.Add(30 * time.Minute), 160, time.Minute}) {
		t.Errorf("it keeps %d, the oldest %+v", len(past), past[0])
	}
	sparks := k.Sparks(k.Status.Queues[0])
	if sparks[0].Most != "up to 278 waiting" || sparks[1].Most != "waited up to 1m" || !strings.HasSuffix(sparks[0].Points, " 60,1.0 ") {
		t.Errorf("it is drawn as %+v", sparks)
	}
}
