package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/sandbox/devkit"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

// shipped is a server under the shipped configuration, where every password is secret, with
// the streams.
func shipped(t *testing.T) *devkit.NATS {
	t.Helper()
	n := secured(t)
	errand(t, "", as(n, "provisioner", "provision")...)
	return n
}

// as is a command line of a user.
func as(n *devkit.NATS, user, command string, args ...string) []string {
	return append([]string{command, "--nats-url", n.URL, "--nats-user", user, "--nats-password", "secret"}, args...)
}

// secretOf is the secret of recipients' keys, as a program reads it.
func secretOf(t *testing.T, js jetstream.JetStream) *mailkey.Secret {
	t.Helper()
	secret, err := bus.RecipientSecret(t.Context(), js.Conn())
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// program is a connection of a program's user, which answers how it is.
func program(t *testing.T, n *devkit.NATS, status bus.ProgramStatus) jetstream.JetStream {
	t.Helper()
	name := status.Program
	nc, err := nats.Connect(n.URL, nats.UserInfo(name, "secret"), nats.CustomInboxPrefix("_INBOX_"+name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if err := bus.AnswerStatus(nc, name, func() bus.ProgramStatus { return status }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Ann has in the shipped configuration what every command needs, and tries nothing that she
// may not.
func TestWhoIsOnCallHasAnAnswerToEveryQuestion(t *testing.T) {
	t.Parallel()
	n := shipped(t)
	now := messages.Time{Time: time.Now()}
	mandates := program(t, n, bus.ProgramStatus{Program: "mandate-consumer", Host: "one", Version: "1.4.0", Started: now,
		Holds: []bus.Hold{{Operation: messages.Enroll, Why: "mandate service (enroll) answers 503", Since: now}}})
	mails := program(t, n, bus.ProgramStatus{Program: "mail-consumer", Host: "two", Version: "1.4.0", Started: now})
	poller := program(t, n, bus.ProgramStatus{Program: "log-poller", Host: "three", Version: "1.4.0", Started: now, ReadThrough: &now})
	answer(t, mandates, "mandate.enroll.started.signup-1", `{"request_id":"signup-1","order_number":"DD001"}`)
	answer(t, mandates, "mandate.enroll.failed.signup-1",
		`{"request_id":"signup-1","order_number":"DD001","reason":"refused","http_status":422,"message":"no"}`)
	if _, err := mandates.PublishMsg(t.Context(), &nats.Msg{Subject: "dead.mandate.enroll.requested", Data: []byte(`{"order_number":"DD001"}`),
		Header: nats.Header{nats.MsgIdHdr: {"dead.mandate.enroll.signup-1.2"}, "Errand-Request-Id": {"signup-1"},
			"Errand-Reason": {"refused"}}}); err != nil {
		t.Fatal(err)
	}
	started, err := json.Marshal(messages.SendStarted{Common: messages.Common{RequestID: "invoice-1"}, Batches: 1, BatchSize: 1000,
		Secret: history.KeysOf(secretOf(t, mails), "", []string{"ann@example.com"})})
	if err != nil {
		t.Fatal(err)
	}
	answer(t, mails, "mail.send.started.invoice-1", string(started))
	answer(t, mails, "mail.send.accepted.invoice-1", `{"request_id":"invoice-1"}`)
	answer(t, poller, "mail.delivery.delivered.invoice-1", `{"entry":{"to":"ann@example.com"},"smtp":{"code":250,"enhanced":"2.0.0"}}`)
	answer(t, poller, "mail.log.watermark", `{"complete_through":"2026-01-31T00:00:00Z"}`)
	for i := range 3 {
		errand(t, "", as(n, "ann", "publish", "--send-anyway", "mandate.enroll.requested", "-f", fmt.Sprintf("request_id=waits-%d", i), "-f",
			"order_number=DD007")...)
	}

	var term terminal
	if err := term.errand(t.Context(), "", as(n, "ann", "status")...); err == nil || err.Error() != "1 problem" {
		t.Errorf("status ends with %v, want 1 problem", err)
	}
	if out := term.out.String(); !strings.Contains(out, "! upstream: mandate.enroll is held for ") ||
		!strings.Contains(out, "log-poller        three") {
		t.Errorf("status shows\n%s", out)
	}
	for _, c := range []struct{ command, want string }{
		{"status -o json", `"problems"`},
		{"stuck --older 1ns", "held: mandate service (enroll) answers 503"},
		{"stuck --older 1ns -o name", "waits-0\nwaits-1\nwaits-2\n"},
		{"show waits-1", "queued, place 2: held: mandate service (enroll) answers 503"},
		{"show signup-1", "Dead letters"},
		{"show signup-1", "failed: refused 422, no"},
		{"show invoice-1", "Sending log: 1 delivered"},
		{"show invoice-1 -o json", `"state": "accepted"`},
		{"find DD001", "signup-1"},
		{"find DD007", "waits-2"},
		{"find ann@example.com", "delivered 250 2.0.0"},
		{"find ann@example.com --since 2020-01-31 -o name", "invoice-1\n"},
		{"list --state failed --since 1h --by-reason", "1      enroll     failed  refused"},
		{"list --op enroll --state queued,failed -o name", "waits-2\nwaits-1\nwaits-0\nsignup-1\n"},
		{"list --op enroll --state queued,failed --limit 2", "The newest 2; --limit 0 shows all."},
		{"dead list", "refused"},
		{"dead show signup-1", `"order_number": "DD001"`},
		{"dead show seq:1", `Errand-Reason: refused`},
		{"watch --since 3d --exit invoice-1", "mail.delivery.delivered"},
	} {
		words := strings.Fields(c.command)
		var term terminal
		err := term.errand(t.Context(), "", append(words, "--nats-url", n.URL, "--nats-user", "ann", "--nats-password", "secret")...)
		if out := term.out.String(); err != nil && words[0] != "status" || !strings.Contains(out, c.want) {
			t.Errorf("errand %s: %v\n%s\nwant it to contain %q", c.command, err, out, c.want)
		}
	}
	for _, command := range []string{"status", "stuck", "list"} { // a service has copies of the events alone, and here none yet
		refused(t, "is NATS_USER in errand's account", as(n, "service", command)...)
	}
	refused(t, "never seen: nobody", as(n, "ann", "show", "nobody")...)
	refused(t, "not found", as(n, "ann", "find", "nobody@example.com")...)
	refused(t, "no such dead letter", "dead", "show", "99", "--nats-url", n.URL, "--nats-user", "ann", "--nats-password", "secret")
	misconfigured(t, "must be a request id", as(n, "ann", "show", "a.b")...)
	misconfigured(t, "must be one of", as(n, "ann", "list", "--state", "done")...)
	misconfigured(t, "must be one of", as(n, "ann", "list", "--reason", "bad")...)
	misconfigured(t, "must be one of", as(n, "ann", "list", "--op", "enrol")...)
	misconfigured(t, "--limit: must be positive", as(n, "ann", "stuck", "--limit", "0")...)
	if got := n.Violations(); len(got) > 0 {
		t.Errorf("a command tried what its user may not do: %q", got)
	}
}

// Olga may act, and is recorded as who she is, whatever she says; Ann may only look.
func TestWhoMayActPausesAndIsRecorded(t *testing.T) {
	t.Parallel()
	n := shipped(t)
	misconfigured(t, "--why: is required", as(n, "olga", "pause", "enroll", "--for", "30m")...)
	misconfigured(t, "--why: is required", as(n, "olga", "resume", "enroll", "--why", " ")...)
	misconfigured(t, "must be at most 7d", as(n, "olga", "pause", "enroll", "--for", "8d", "--why", "x")...)
	misconfigured(t, "and more than 0", as(n, "olga", "pause", "enroll", "--for", "off", "--why", "x")...)
	misconfigured(t, "must be one of", as(n, "olga", "pause", "enrol", "--for", "1h", "--why", "x")...)
	misconfigured(t, "must be one of", as(n, "olga", "audit", "--verb", "delete")...)
	if out := errand(t, "", as(n, "olga", "pause", "enroll", "send", "--for", "30m", "--why", "INC-4711")...); !strings.HasPrefix(out,
		"mandate.enroll is paused until ") || !strings.Contains(out, "\nmail.send is paused until ") {
		t.Errorf("pause shows %q", out)
	}
	if out := errand(t, "", as(n, "olga", "resume", "send", "--why", "only enrollments were meant")...); out != "mail.send is resumed\n" {
		t.Errorf("resume shows %q", out)
	}
	refused(t, "mail.send is not paused", as(n, "olga", "resume", "send", "--why", "again")...)
	var term terminal
	if err := term.errand(t.Context(), "", as(n, "ann", "status")...); err == nil ||
		!strings.Contains(term.out.String(), " by olga: INC-4711") {
		t.Errorf("status ends with %v and shows\n%s", err, term.out.String())
	}
	for _, c := range []struct{ command, want string }{
		{"audit", "only enrollments were meant"},
		{"audit mandate-enroll -o jsonl", `"result":"done"`},
		{"audit --verb pause --actor olga --since 1h", "INC-4711"},
	} {
		if out := errand(t, "", as(n, "ann", "audit", strings.Fields(c.command)[1:]...)...); !strings.Contains(out, c.want) {
			t.Errorf("%s shows\n%s\nwant it to contain %q", c.command, out, c.want)
		}
	}
	if out := errand(t, "", as(n, "ann", "audit", "mail-account")...); out != "none\n" {
		t.Errorf("of what nobody did anything to, it shows %q", out)
	}
	if got := n.Violations(); len(got) > 0 {
		t.Errorf("a command tried what its user may not do: %q", got)
	}
	for what, args := range map[string][]string{ // each waits for an answer that does not come
		"nothing was done, since it could not be recorded": as(n, "ann", "pause", "enroll", "--for", "1h", "--why", "x"),
		"audit.pause.ann.mandate-enroll":                   as(n, "olga", "pause", "enroll", "--for", "1h", "--why", "x", "--as", "ann"),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			refused(t, what, args...)
		})
	}
}

// A person connects to NATS as the nats tool does.
func TestAContextOfTheNATSToolIsUsed(t *testing.T) {
	n := shipped(t)
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, "nats", "context"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "nats", "context", name+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("prod", fmt.Sprintf(`{"description":"","url":%q,"user":"ann","password":"secret","creds":"","color_scheme":"","tls_first":false}`,
		n.URL))
	write("other", fmt.Sprintf(`{"url":%q,"user":"ann","password":"secret","jetstream_event_prefix":"leaf"}`, n.URL))
	write("twice", `{"jetstream_domain":"leaf","jetstream_api_prefix":"JS.leaf.API"}`)
	write("broken", `{`)
	if out := errand(t, "", "list", "--context", "prod"); out != "none\n" {
		t.Errorf("with a context: %q", out)
	}
	failing(t, "does not authorize", "list", "--context", "prod", "--nats-user", "ann", "--nats-password", "wrong")
	misconfigured(t, `no context "prd"`, "list", "--context", "prd")
	misconfigured(t, "there are: broken, other, prod, twice", "list", "--context", "prd")
	misconfigured(t, "has jetstream_event_prefix, which errand does not know", "list", "--context", "other")
	misconfigured(t, "NATS_JS_DOMAIN and NATS_JS_PREFIX: give one of them", "list", "--context", "twice")
	misconfigured(t, "cannot be read", "list", "--context", "broken")
	misconfigured(t, "is not a valid name", "list", "--context", "../prod")
}

func TestEveryCommandThatReachesNATSTakesAContext(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(new(cli), kong.Name("errand"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, command := range parser.Model.Leaves(false) {
		has := map[string]bool{}
		for _, flag := range command.Flags {
			has[flag.Name] = true
		}
		if has["nats-creds"] {
			found++
			if !has["context"] {
				t.Errorf("%s takes no --context", command.FullPath())
			}
		}
	}
	if found < 10 {
		t.Errorf("%d commands reach NATS, want 10 or more", found)
	}
}

// The eraser removes what is stored of somebody, and says what it leaves; nobody else may.
func TestSomebodyIsErased(t *testing.T) {
	t.Parallel()
	n := shipped(t)
	mandates := program(t, n, bus.ProgramStatus{Program: "mandate-consumer"})
	mails := program(t, n, bus.ProgramStatus{Program: "mail-consumer"})
	answer(t, mandates, "mandate.enroll.started.signup-1", `{"request_id":"signup-1","order_number":"DD001"}`)
	answer(t, mandates, "mandate.enroll.succeeded.signup-1",
		`{"request_id":"signup-1","order_number":"DD001","enrollment":{"payer_email":"ann@example.com"}}`)
	answer(t, mandates, "mandate.transactions.page.list-1", `{"request_id":"list-1","records":[{"payer_email":"ann@example.com"}]}`)
	answer(t, mandates, "mandate.transactions.listed.list-1", `{"request_id":"list-1"}`)
	started, err := json.Marshal(messages.SendStarted{Common: messages.Common{RequestID: "invoice-1"}, Batches: 1, BatchSize: 1000,
		Secret: history.KeysOf(secretOf(t, mails), "", []string{"ann@example.com"})})
	if err != nil {
		t.Fatal(err)
	}
	answer(t, mails, "mail.send.started.invoice-1", string(started))
	answer(t, mails, "mail.send.accepted.invoice-1", `{"request_id":"invoice-1","recipients":1,"accepted":1}`)

	misconfigured(t, "must be given, or --of", as(n, "eraser", "erase")...)
	misconfigured(t, "--why: is required", as(n, "eraser", "erase", "signup-1", "--yes")...)
	misconfigured(t, "--why: must not name", as(n, "eraser", "erase", "--of", "ann@example.com", "--yes", "--why", "Ann@Example.com asks")...)
	refused(t, "it has no stored event", as(n, "eraser", "erase", "nobody")...)
	out := errand(t, "", as(n, "eraser", "erase", "--of", "Ann@example.com")...)
	for _, want := range []string{"enroll        signup-1   payer      succeeded  2", "send          invoice-1  recipient  accepted   2",
		"transactions  list-1     payer      listed     2", "rows of the sending log may arrive until", "other people's records"} {
		if !strings.Contains(out, want) {
			t.Errorf("it shows\n%s\nwant it to contain %q", out, want)
		}
	}
	if out := errand(t, "", as(n, "ann", "show", "signup-1")...); !strings.Contains(out, "succeeded") {
		t.Errorf("without --yes it is gone: %s", out)
	}
	refused(t, "nothing was erased", as(n, "eraser", "erase", "invoice-1", "--yes", "--why", "asked for", "--as", "olga")...)
	// What is refused by plan is said, and no fault.
	errand(t, "", as(n, "eraser", "erase", "--of", "ann@example.com", "--yes", "--why", "asked for", "--as", "olga")...)
	refused(t, "nothing was erased", as(n, "eraser", "erase", "--of", "ann@example.com", "--yes", "--why", "asked for", "--as", "olga")...)
	errand(t, "", as(n, "eraser", "erase", "--of", "ann@example.com", "--yes", "--why", "asked for", "--as", "olga", "--now")...)
	refused(t, "nothing is stored", as(n, "eraser", "erase", "--of", "ann@example.com")...)
	for _, id := range []string{"signup-1", "invoice-1"} {
		if out := errand(t, "", as(n, "ann", "show", id)...); !strings.Contains(out, "erased: it was ") || strings.Contains(out, "ann@") {
			t.Errorf("%s is shown as\n%s", id, out)
		}
	}
	ids := strings.Fields(errand(t, "", as(n, "ann", "list", "--state", "erased", "-o", "name")...))
	if slices.Sort(ids); !slices.Equal(ids, []string{"invoice-1", "list-1", "signup-1"}) {
		t.Errorf("listed as erased: %q", ids)
	}
	if out := errand(t, "", as(n, "ann", "audit", "--verb", "erase", "--actor", "olga", "signup-1")...); strings.Count(out, "asked for") != 1 {
		t.Errorf("audit shows\n%s", out)
	}
	if got := n.Violations(); len(got) > 0 {
		t.Errorf("a command tried what its user may not do: %q", got)
	}
}

// A lane has a queue of its own: people publish to it, see what waits there, and pause it or all lanes.
func TestLanesArePublishedToShownAndPaused(t *testing.T) {
	t.Parallel()
	n := shipped(t)
	letter := []string{"-f", "to=a@example.com", "-f", "from=shop@example.com", "-f", "subject=x", "-f", "content=x", "-f", "request_id=m1"}
	misconfigured(t, "must be one of", as(n, "ann", "publish", append([]string{"mail.account.requested.lane.bulk"}, letter...)...)...)
	if out := errand(t, "", as(n, "provisioner", "provision", "--missing", "--yes", "--lanes", "default=4,bulk=1")...); !strings.Contains(out,
		"consumer mail-send-bulk") || !strings.Contains(out, "stream MAIL_REQUESTS") {
		t.Errorf("provision shows\n%s", out)
	}
	if out := errand(t, "", as(n, "provisioner", "provision", "--yes")...); strings.Contains(out, "bulk") {
		t.Errorf("without the lane, provision removes it:\n%s", out)
	}
	errand(t, "", as(n, "ann", "publish", append([]string{"mail.send.requested.lane.bulk"}, letter...)...)...)
	shows := func(want, command string, args ...string) {
		t.Helper()
		var term terminal
		_ = term.errand(t.Context(), "", as(n, "ann", command, args...)...) // something is wrong: no program runs
		if !strings.Contains(term.out.String(), want) {
			t.Errorf("%s shows\n%s\nwant it to contain %q", command, term.out.String(), want)
		}
	}
	shows("queued, place 1", "show", "m1")
	shows("m1", "find", "m1")
	shows("m1", "list", "--state", "queued")
	shows("m1", "stuck", "--older", "0s")
	shows("mail.send, lane bulk       1", "status")
	misconfigured(t, `send has no lane "bul"`, as(n, "olga", "pause", "send/bul", "--for", "1h", "--why", "x")...)
	if out := errand(t, "", as(n, "olga", "pause", "send/bulk", "--for", "1h", "--why", "x")...); strings.Count(out, "\n") != 1 {
		t.Errorf("pausing a lane shows %q", out)
	}
	shows("m1", "list", "--state", "queued")
	errand(t, "", as(n, "olga", "resume", "send/bulk", "--why", "x")...) // no other lane is resumed
	errand(t, "", as(n, "olga", "pause", "send/bulk", "--for", "1h", "--why", "x")...)
	if out := errand(t, "", as(n, "olga", "pause", "send", "--for", "2h", "--why", "x")...); strings.Count(out, "\n") != 2 {
		t.Errorf("pausing all lanes shows %q", out)
	}
	errand(t, "", as(n, "olga", "resume", "send/default", "--why", "x")...)
	shows("mail.send, lane bulk is paused", "status")
	if out := errand(t, "", as(n, "olga", "resume", "send", "--why", "x")...); out != "mail.send, lane bulk is resumed\n" {
		t.Errorf("resuming the others shows %q", out)
	}
}
