package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/programs"
	"errand/internal/sandbox/devkit"
	"errand/internal/style"
)

func TestWatchRefusesWhatItCannotShow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what string
		args []string
	}{
		{"matches no event", []string{"mail..x"}}, {"matches no event", []string{"mail.>.x"}}, {"matches no event", []string{""}},
		{"are not shown", []string{"mandate.enroll.requested"}}, {"matches no event", []string{"mail.send.succeeded.*"}},
		{"did you mean mandate.enroll.failed", []string{"mandate.enrol.failed.*"}}, {"matches no event", []string{"mail.send"}},
		{"matches no event", []string{"mail.send.failed.a.1"}}, {"matches no event", []string{"other.>"}},
		{"--exit", []string{"--exit"}},
	} {
		misconfigured(t, c.what, append([]string{"watch"}, c.args...)...)
	}
	if why := badPattern("mandate.deduction.bounced_twice.*"); why != "" {
		t.Errorf("a status that only the service knows: %s", why)
	}
	for _, since := range []string{"-1h", "0s", "3x", "yesterday", "2026-13-01", "-1d"} { // as for all errors of flags, the exit status is 2
		failing(t, "must be a period such as 90m", "watch", "--since="+since)
	}
}

func TestWatchWithoutStreamsSaysWhatToRun(t *testing.T) {
	t.Parallel()
	empty, err := devkit.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(empty.Close)
	refused(t, "errand provision", "watch", "--nats-url", empty.URL)
}

// storeEvents stores n events, alternating between two streams, and returns their subjects.
func storeEvents(t *testing.T, js jetstream.JetStream, n int) (subjects []string) {
	t.Helper()
	for i := range n {
		subject := fmt.Sprintf("mail.send.accepted.id%02d", i)
		if i%3 == 0 {
			subject = fmt.Sprintf("mandate.enroll.failed.id%02d", i)
		}
		answer(t, js, subject, fmt.Sprintf(`{"request_id":"id%02d"}`, i))
		subjects = append(subjects, subject)
	}
	return subjects
}

// subjects returns the subjects in lines of JSON.
func subjects(t *testing.T, lines string) (list []string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		var e struct{ Subject string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, e.Subject)
	}
	return list
}

func TestWatchReplaysAllStreamsInTheOrderOfTime(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	all := storeEvents(t, js, 20)
	past := func(args ...string) []string {
		return subjects(t, errand(t, "", append([]string{"watch", "--nats-url", n.URL, "--json", "--exit"}, args...)...))
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--since", "1h"}, all},
		{[]string{"--since", "1h", "mail.send.*.id04"}, all[4:5]},
		{[]string{"--since", "1h", "mail.delivery.>"}, nil},
		{[]string{"--since", "1h", "dead.>"}, nil},
		{[]string{"--since", "1h", "mail.send.*.id04", "mail.*.accepted.*"},
			slices.DeleteFunc(slices.Clone(all), func(s string) bool { return strings.HasPrefix(s, "mandate") })},
	} {
		if diff := cmp.Diff(c.want, past(c.args...)); diff != "" {
			t.Errorf("%q: %s", c.args, diff)
		}
	}
}

// What is purged while it is read is not waited for.
func TestWatchEndsItsReplayWhenOldEventsAreRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	for i := range pageSize + 10 {
		answer(t, js, fmt.Sprintf("mail.send.accepted.id%d", i), `{}`)
	}
	ctx := within(t, time.Minute)
	b, err := connect(ctx, bus.Connection{URL: n.URL}, "watch", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Conn.Close)
	f, err := follow(ctx, b, []string{"mail.send.>"}, time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	show := func(bus.Message) {
		if shown++; shown > 1 {
			return
		}
		s, err := js.Stream(ctx, bus.MailEvents)
		if err == nil {
			err = s.Purge(ctx)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if err := f.news(ctx, show); err != nil || shown != pageSize {
		t.Errorf("it shows %d events, want the %d that it had read: %v", shown, pageSize, err)
	}
}

// watching runs errand watch in the background: waitFor waits for a text in its output, end
// stops it and returns the output.
func watching(t *testing.T, url string, args ...string) (waitFor func(want string), end func() string) {
	t.Helper()
	ctx, stop := context.WithCancel(within(t, time.Minute))
	var term terminal
	ended := make(chan error, 1)
	go func() { ended <- term.errand(ctx, "", append([]string{"watch", "--nats-url", url}, args...)...) }()
	waitFor = func(want string) {
		t.Helper()
		for !strings.Contains(term.out.String(), want) {
			select {
			case err := <-ended:
				t.Fatalf("watch ended: %v\n%s", err, term.out.String())
			case <-ctx.Done():
				t.Fatalf("never seen: %s\n%s", want, term.out.String())
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	return waitFor, func() string {
		t.Helper()
		stop()
		if err := <-ended; err != nil {
			t.Errorf("watch: %v", err)
		}
		return term.out.String()
	}
}

func TestWatchShowsStoredEventsThenNewOnes(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	storeEvents(t, js, 3)
	waitFor, end := watching(t, n.URL, "--since", "1h")
	waitFor("id02")
	answer(t, js, "mandate.enroll.succeeded.new", `{"order_number":"DD1","enrollment":{"url":"http://x.test/enroll/1"}}`)
	waitFor("mandate.enroll.succeeded    new           order_number=DD1 url=http://x.test/enroll/1\n")
	if out := end(); strings.Count(out, "\n") != 4 || strings.Contains(out, "\x1b") {
		t.Errorf("got %q, want four lines without colour", out)
	}
}

// An event whose fence does not hold is published but never stored.
func TestWatchShowsNothingThatTheServerRefused(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	waitFor, end := watching(t, n.URL, "--since", "1h", "mail.>")
	answer(t, js, "mail.send.started.a", `{}`)
	waitFor("mail.send.started ")
	_, err := js.Publish(t.Context(), "mail.send.accepted.a", []byte(`{}`), jetstream.WithExpectLastSequenceForSubject(99, "mail.send.*.a"))
	if err == nil {
		t.Fatal("the fence did not hold")
	}
	answer(t, js, "mail.send.failed.a", `{}`)
	waitFor("mail.send.failed ")
	if out := end(); strings.Contains(out, "accepted") {
		t.Errorf("got %q, with an event that is not stored", out)
	}
}

// hostile has what a terminal takes for commands, or for an order to show text backwards: an
// escape, its single-character form, raw and as bytes that are not UTF-8, and bidi characters.
const hostile = "\x1b[2J\u009b31m\u202eevil\u2066\u200f\U000e0001\x7f\x9b"

// controls reports whether a terminal would do something else than show a text.
func controls(text string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
}

func TestNothingThatIsShownControlsTheTerminal(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	body := "{\"request_id\":\"a\",\"reason\":\"refused\",\"message\":\"" + hostile[5:] + "\\u001b\",\"" + hostile[5:] +
		"\":1,\"fields\":{\"" + hostile[5:] + "\":[]}}"
	for subject, data := range map[string]string{"mail.send.failed.a": body, "mail.send.failed.b": hostile,
		"mail.send.failed.x\u202e\u009b": body} {
		m := &nats.Msg{Subject: subject, Header: nats.Header{"ce-id": {hostile}}, Data: []byte(data)}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"watch", "--exit", "--since", "1h"}, {"watch", "--json", "--exit", "--since", "1h"}} {
		out := errand(t, "", append(args, "--nats-url", n.URL)...)
		if controls(out) || strings.Count(out, "\n") != 3 {
			t.Errorf("%q shows %q", args, out)
		}
	}
	var term terminal
	err := term.errand(t.Context(), "", "publish", "--nats-url", n.URL, "mail.send.requested", "--wait", "-f", "request_id=a")
	if err == nil || controls(term.out.String()) || controls(term.errs.String()) || controls(err.Error()) {
		t.Errorf("the outcome is shown as %q and %q: %v", term.out.String(), term.errs.String(), err)
	}
}

// What is escaped says the same.
func TestEscapedJSONReadsAsBefore(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"plain", "\u202e\u009b\U000e0001", "é 日本 \U0001f600", hostile[:len(hostile)-1]} {
		data, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if err := json.Unmarshal([]byte(style.Escape(string(data))), &got); err != nil || got != text {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
}

func TestWatchAsJSONHasSubjectHeadersAndBody(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	m := &nats.Msg{Subject: "mail.send.failed.a", Header: nats.Header{"ce-id": {"1"}}, Data: []byte("{\n\"message\":\"<a>\"}")}
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	answer(t, js, "mail.send.failed.b", "no json")
	var got []map[string]any
	for line := range strings.Lines(errand(t, "", "watch", "--nats-url", n.URL, "--json", "--exit", "--since", "1h")) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if _, err := time.Parse(time.RFC3339, fmt.Sprint(e["time"])); err != nil {
			t.Error(err)
		}
		delete(e, "time")
		got = append(got, e)
	}
	want := []map[string]any{
		{"subject": "mail.send.failed.a", "headers": map[string]any{"ce-id": "1"}, "sequence": 1.0, "body": map[string]any{"message": "<a>"}},
		{"subject": "mail.send.failed.b", "sequence": 2.0, "body": "no json"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLinesShowTheMainFields(t *testing.T) {
	t.Parallel()
	l := newLines(console{})
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.Local)
	for _, c := range []struct{ subject, body, want string }{
		{"mail.batch.accepted.news.2", `{"batch":2,"first":1000,"count":1000,"accepted":1000,"attempt":2}`,
			"03:04:05.006  mail.batch.accepted         news.2        batch=2 count=1000 accepted=1000 attempt=2"},
		{"mandate.enroll.failed.a", `{"reason":"refused","http_status":422,"message":"no such bank","fields":{"b":["x"],"a":["y"]},"attempt":1}`,
			`03:04:05.006  mandate.enroll.failed       a             reason=refused http=422 message="no such bank" fields=a,b`},
		{"mail.delivery.bounced.unmatched", `{"entry":{"to":"a@x.test"},"smtp":{"code":550,"enhanced":"5.1.1"}}`,
			"03:04:05.006  mail.delivery.bounced       unmatched     to=a@x.test smtp=550 enhanced=5.1.1"},
		{"mail.delivery.delivered.unmatched", `{"entry":{"to":"a@x.test"},"match":{"confidence":"ambiguous","candidates":["a","b"]}}`,
			"03:04:05.006  mail.delivery.delivered     unmatched     to=a@x.test match=ambiguous candidates=a,b"},
		{"mail.delivery.delivered.a", `{"entry":{"to":"a@x.test"},"match":{"confidence":"exact"}}`,
			"03:04:05.006  mail.delivery.delivered     a             to=a@x.test"},
		{"mail.delivery.summary.a", `{"recipients":3,"accepted":3,"delivered":0,"deferred":0,"bounced":1,"unknown":0,"queued":2,"final":false}`,
			"03:04:05.006  mail.delivery.summary       a             accepted=3 recipients=3 delivered=0 bounced=1 queued=2"},
		{"mail.delivery.summary.a", `{"recipients":1,"accepted":1,"delivered":1,"deferred":0,"bounced":0,"unknown":0,"queued":0,"final":true}`,
			"03:04:05.006  mail.delivery.summary       a             accepted=1 recipients=1 delivered=1 final=true"},
		{"mail.send.failed.\x1b[2J", `{"message":"\u001b[31mred"}`,
			"03:04:05.006  mail.send.failed            \uFFFD[2J          message=\" [31mred\""},
		{"mail.send.failed.b", `no json`, "03:04:05.006  mail.send.failed            b             7 bytes"},
	} {
		if got := l.line(bus.Message{Time: at, Subject: c.subject, Data: []byte(c.body)}, at); got != c.want {
			t.Errorf("%s %s:\ngot  %s\nwant %s", c.subject, c.body, got, c.want)
		}
	}
	if got, want := l.line(bus.Message{Time: at, Subject: "mail.send.failed.a"}, at.AddDate(0, 0, 2)),
		"01-02 03:04:05.006  mail.send.failed            a             0 bytes"; got != want {
		t.Errorf("of another day: got %s, want %s", got, want)
	}
	dead := bus.Message{Time: at, Subject: "dead.mail.send.requested",
		Header: nats.Header{"Errand-Reason": {"refused"}, "Errand-Message": {"no"}, "Errand-Request-Id": {"a"}}}
	if got, want := l.line(dead, at), "03:04:05.006  dead.mail.send.requested    a             reason=refused message=no"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestColourIsForTerminalsOnly(t *testing.T) {
	t.Parallel()
	e := bus.Message{Subject: "mail.send.failed.a", Data: []byte(`{}`)}
	if got := newLines(console{colour: true}).line(e, time.Now()); !strings.Contains(got, "\x1b[31m") {
		t.Errorf("with colour: %q has no red", got)
	}
	if got := newLines(console{}).line(e, time.Now()); strings.Contains(got, "\x1b") {
		t.Errorf("without colour: %q has some", got)
	}
}

// The users of the shipped configuration have the permissions for every command.
func TestTheToolWorksWithTheShippedUsers(t *testing.T) {
	t.Parallel()
	n := secured(t)
	as := func(user, command string, args ...string) string {
		t.Helper()
		return errand(t, "", append([]string{command, "--nats-url", n.URL, "--nats-user", user, "--nats-password", "secret"}, args...)...)
	}
	as("provisioner", "provision", "--reader", "service")
	if out := as("provisioner", "provision", "--reader", "service"); out != "nothing to change\n" {
		t.Errorf("a second time: %q", out)
	}
	refusedAs := func(user, what, command string, args ...string) {
		t.Helper()
		refused(t, what, append([]string{command, "--nats-url", n.URL, "--nats-user", user, "--nats-password", "secret"}, args...)...)
	}
	refusedAs("subscriber", "provision --reader subscriber", "mirror", "subscriber")
	refusedAs("provisioner", "is not a copy", "mirror", "service")
	refusedAs("ann", "may not do that", "provision")
	refusedAs("producer", "has no JetStream", "mirror", "service")
	misconfigured(t, "READER", "mirror", "a.b")
	misconfigured(t, "--reader", "provision", "--reader", "a.b")
	as("producer", "publish", "mail.account.requested", "-f", "request_id=of-a-producer")

	js := userOf(t, n, "mail-consumer")
	answer(t, js, "mail.account.reported.mine", `{"request_id":"mine"}`)
	answer(t, js, "dead.mail.account.requested", `{}`)
	if out := as("ann", "publish", "mail.account.requested", "--wait", "-f", "request_id=mine"); !strings.HasPrefix(out,
		"mail.account.reported.mine") {
		t.Errorf("she sees %q", out)
	}
	want := []string{"mail.account.reported.mine", "dead.mail.account.requested"}
	if got := subjects(t, as("ann", "watch", "--since", "1h", "--exit", "--json", "mandate.>", "mail.>", "dead.>")); !slices.Equal(got, want) {
		t.Errorf("she sees %q, want %q", got, want)
	}
	for _, user := range []string{"ann", "service", "producer"} {
		var term terminal
		err := term.errand(t.Context(), "", "publish", "mail.account.requested", "--wait", "--timeout", "200ms", "-f", "request_id=of-"+user,
			"--nats-url", n.URL, "--nats-user", user, "--nats-password", "secret")
		exit, ok := errors.AsType[*programs.Exit](err)
		if !ok || exit.Status != exitNotDone || user == "ann" != strings.Contains(err.Error(), ": no mail-consumer answers") {
			t.Errorf("%s: %v", user, err)
		}
		if strings.Contains(term.errs.String(), "iolation") {
			t.Errorf("%s sees %s", user, term.errs.String())
		}
	}
	// A service has its own copies, from the first event on.
	if out := as("service", "mirror", "service", "MAIL_EVENTS"); !strings.Contains(out, "created stream MAIL_EVENTS") {
		t.Errorf("the service sees %q", out)
	}
	refusedAs("service", "is a reader's copy", "provision")
	if out := as("service", "mirror", "service", "MAIL_EVENTS"); out != "nothing to change\n" {
		t.Errorf("a second time: %q", out)
	}
	if out := as("service", "publish", "mail.account.requested", "--wait", "-f", "request_id=mine"); !strings.HasPrefix(out,
		"mail.account.reported.mine") {
		t.Errorf("the service sees %q", out)
	}
	for command, want := range map[string]string{"show mine": "reported, ", "find mine": "request id", "list": "reported"} {
		words := strings.Fields(command)
		if out := as("service", words[0], words[1:]...); !strings.Contains(out, want) {
			t.Errorf("the service's %s shows %q, want %q", command, out, want)
		}
	}
	refusedAs("service", "never seen", "show", "nobody")
	refusedAs("service", "no such stream", "list", "--op", "enroll")                                      // nor of these
	refusedAs("service", "stream MAIL_DELIVERIES: there is no such stream", "find", "nobody@example.com") // it has no copy of that
	if got := subjects(t, as("service", "watch", "--since", "1h", "--exit", "--json", "mail.>", "dead.>")); !slices.Equal(got, want[:1]) {
		t.Errorf("the service sees %q, want %q", got, want[:1])
	}
}
