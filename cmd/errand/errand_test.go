package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/programs"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
)

// terminal is what a command printed.
type terminal struct{ out, errs text }

// text is a buffer that may be read while a command writes.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// errand runs a command line as the program does, with a console of the test.
func (t *terminal) errand(ctx context.Context, stdin string, args ...string) error {
	return t.on(ctx, console{in: strings.NewReader(stdin), piped: true, width: 80}, args...)
}

func (t *terminal) on(ctx context.Context, c console, args ...string) error {
	parser, err := kong.New(new(cli), kong.Name("errand"), kong.Exit(func(int) {}), kong.Writers(io.Discard, io.Discard),
		kong.BindTo(ctx, (*context.Context)(nil)))
	if err != nil {
		return err
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return err
	}
	c.out, c.errs = &t.out, &t.errs
	parsed.Bind(c)
	return parsed.Run()
}

// errand runs a command that has to succeed, and returns its output.
func errand(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	var term terminal
	if err := term.errand(t.Context(), stdin, args...); err != nil {
		t.Fatalf("errand %s: %v\n%s%s", strings.Join(args, " "), err, term.out.String(), term.errs.String())
	}
	return term.out.String()
}

// refused runs a command that has to fail while it runs, with an error that contains what.
func refused(t *testing.T, what string, args ...string) {
	t.Helper()
	if err := failing(t, what, args...); isInvalid(err) {
		t.Errorf("errand %s: got a configuration error: %v", strings.Join(args, " "), err)
	}
}

// misconfigured runs a command that has to fail with a configuration error.
func misconfigured(t *testing.T, what string, args ...string) {
	t.Helper()
	if err := failing(t, what, args...); !isInvalid(err) {
		t.Errorf("errand %s: got %v, want a configuration error", strings.Join(args, " "), err)
	}
}

func failing(t *testing.T, what string, args ...string) error {
	t.Helper()
	var term terminal
	err := term.errand(t.Context(), "", args...)
	if err == nil || !strings.Contains(err.Error(), what) {
		t.Errorf("errand %s: got error %v, want one that contains %q\n%s", strings.Join(args, " "), err, what, term.out.String())
	}
	return err
}

// provisioned is a server with all streams.
func provisioned(t *testing.T) (*devkit.NATS, jetstream.JetStream) {
	t.Helper()
	n, nc := devtest.Provisioned(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return n, js
}

func isInvalid(err error) bool {
	var invalid *programs.Invalid
	return errors.As(err, &invalid)
}

func TestHelpOfEachCommandHasExamples(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(new(cli), kong.Name("errand"))
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range parser.Model.Leaves(false) {
		name := command.Name
		for up := command.Parent; up.Parent != nil; up = up.Parent {
			name = up.Name + " " + name
		}
		if want := "    errand " + name; !strings.Contains(command.Detail, want) {
			t.Errorf("errand %s --help has no example: want %q in %q", name, want, command.Detail)
		}
	}
}

func TestUnansweringServerIsNamedWithoutItsPassword(t *testing.T) {
	t.Parallel()
	err := failing(t, "no NATS server at nats://127.0.0.1:1 ", "watch", "--nats-url", "nats://user:secret@127.0.0.1:1")
	if err != nil && strings.Contains(err.Error(), "secret") {
		t.Errorf("the error contains the password: %v", err)
	}
}

func TestAPasswordInAFileIsUsedAndAWrongOneIsReported(t *testing.T) {
	t.Parallel()
	n, err := devkit.Configured(t.TempDir(), `authorization { user: me, password: "right hush" }`)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	file := filepath.Join(t.TempDir(), "password")
	args := []string{"provision", "--nats-url", n.URL, "--nats-user", "me", "--nats-password-file", file}
	misconfigured(t, "NATS_PASSWORD_FILE: "+file+": no such file", args...)
	for _, c := range []struct{ holds, wrong string }{{"wrong hush\n", "does not authorize this user"}, {"right hush\n", ""}} {
		if err := os.WriteFile(file, []byte(c.holds), 0o600); err != nil {
			t.Fatal(err)
		}
		if c.wrong == "" {
			errand(t, "", args...)
		} else if err := failing(t, c.wrong, args...); strings.Contains(fmt.Sprint(err), "hush") {
			t.Errorf("the error contains the password: %v", err)
		}
	}
}

// A password that begins with ; is configuration to nats-server, and can be empty.
func TestProvisionRefusesToGoOnWhenAUserNeedsNoPassword(t *testing.T) {
	t.Setenv("NEW_PASSWORD", ";b__<&+b0Ya)_}&_(Y:1c~9b")
	n := devtest.Configured(t, `authorization { users: [ { user: provisioner, password: secret }, { user: new, password: $NEW_PASSWORD } ] }`)
	args := []string{"provision", "--nats-url", n.URL, "--nats-user", "provisioner", "--nats-password", "secret"}
	_ = failing(t, "NATS user new: the server let it in with an empty password", append(args, "--users", "new")...)
	if out := errand(t, "", args...); !strings.Contains(out, "created stream MAIL_REQUESTS") {
		t.Errorf("after a failure, and without that user: %s", out)
	}
}

func TestProvisionChangesNothingTheSecondTime(t *testing.T) {
	t.Parallel()
	n := devtest.Server(t)
	if out := errand(t, "", "provision", "--nats-url", n.URL, "--dry-run"); !strings.Contains(out, "+ stream MAIL_REQUESTS") ||
		!strings.Contains(out, "nothing was changed") {
		t.Errorf("dry run shows %q", out)
	}
	if out := errand(t, "", "provision", "--nats-url", n.URL); !strings.Contains(out, "created stream MAIL_REQUESTS") ||
		!strings.Contains(out, "created consumer mail-send") {
		t.Errorf("after a dry run, the first time shows %q", out)
	}
	if out := errand(t, "", "provision", "--nats-url", n.URL); out != "nothing to change\n" {
		t.Errorf("the second time shows %q", out)
	}
}

func TestProvisionDropsNothingUnlessForced(t *testing.T) {
	t.Parallel()
	n, _ := provisioned(t)
	shorter := []string{"provision", "--nats-url", n.URL, "--max-age", "24h"}
	refused(t, "--force", shorter...)
	if out := errand(t, "", append(shorter, "--dry-run")...); !strings.Contains(out, "the changes need --force") {
		t.Errorf("after a refusal, the dry run shows %q", out)
	}
	if out := errand(t, "", append(shorter, "--force")...); !strings.Contains(out, "updated stream MAIL_EVENTS") {
		t.Errorf("forced, it shows %q", out)
	}
	if out := errand(t, "", shorter...); out != "nothing to change\n" {
		t.Errorf("after that, it shows %q", out)
	}
}

// What the programs advise makes what is gone and leaves alone what somebody chose.
func TestProvisionOfWhatIsMissingChangesNothingElse(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	errand(t, "", "provision", "--nats-url", n.URL, "--max-age", "2160h", "--max-bytes", "1G", "--ack-wait", "45s")
	if err := js.DeleteStream(t.Context(), bus.MailRequests); err != nil {
		t.Fatal(err)
	}
	out := errand(t, "", "provision", "--nats-url", n.URL, "--missing", "--max-age", "48h")
	want := "\ncreated stream MAIL_REQUESTS\ncreated consumer mail-send\ncreated consumer mail-account\n"
	if !strings.HasSuffix(out, want) || strings.Contains(out, "updated") || strings.Contains(out, "~") {
		t.Errorf("it shows %q, want it to end with %q and to change nothing", out, want)
	}
	if !strings.Contains(out, "left unchanged though they differ: stream MANDATE_EVENTS, ") {
		t.Errorf("it shows %q, and not what differs", out)
	}
	if out := errand(t, "", "provision", "--nats-url", n.URL); out != "nothing to change\n" {
		t.Errorf("after that it shows %q", out)
	}
}

// A server can put a queue ahead of what it never delivered.
func TestProvisionHasQueuesDeliverWhatTheyHaveForgotten(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	for range 5 {
		if _, err := js.Publish(t.Context(), "mandate.enroll.requested", []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	q := bus.EnrollQueue
	if _, err := js.ResetConsumerToSequence(t.Context(), q.Stream, q.Name, 6); err != nil {
		t.Fatal(err)
	}
	repair := []string{"provision", "--nats-url", n.URL, "--missing", "--repair"}
	want := "~ consumer mandate-enroll\n    Forgotten: 5 -> 0\n\nupdated consumer mandate-enroll\n"
	for _, want := range []string{want, "nothing to change\n"} {
		if out := errand(t, "", repair...); out != want {
			t.Errorf("it says %q, want %q", out, want)
		}
	}
	if c, err := js.Consumer(t.Context(), q.Stream, q.Name); err != nil || c.CachedInfo().NumPending != 5 {
		t.Errorf("it will deliver %+v, %v, want 5", c, err)
	}
	// A history that was made since does not know which of them were run.
	if err := js.DeleteStream(t.Context(), bus.MandateEvents); err != nil {
		t.Fatal(err)
	}
	errand(t, "", "provision", "--nats-url", n.URL)
	if _, err := js.ResetConsumerToSequence(t.Context(), q.Stream, q.Name, 6); err != nil {
		t.Fatal(err)
	}
	refused(t, "run requests again; nothing was changed: use --force", repair...)
	if c, err := js.Consumer(t.Context(), q.Stream, q.Name); err != nil || c.CachedInfo().NumPending != 0 {
		t.Errorf("it will deliver %+v, %v, want nothing without --force", c, err)
	}
}

// A history that is made again knows nothing of what was run before: provision says so.
func TestProvisionSaysWhenAHistoryIsMadeAgain(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	if err := js.DeleteStream(t.Context(), bus.MandateEvents); err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{"--dry-run", "--missing"} {
		if out := errand(t, "", "provision", "--nats-url", n.URL, more); !strings.HasPrefix(out, "MANDATE_EVENTS is created again") {
			t.Errorf("%s: it shows %q", more, out)
		}
	}
	if out := errand(t, "", "provision", "--nats-url", devtest.Server(t).URL); strings.Contains(out, "made again") {
		t.Errorf("at a new server it shows %q", out)
	}
}

func TestStreamsMayHaveSizesOfTheirOwn(t *testing.T) {
	t.Parallel()
	n := devtest.Server(t)
	out := errand(t, "", "provision", "--nats-url", n.URL, "--max-bytes", "64M,MANDATE_EVENTS=1G", "--max-bytes", "DEAD_LETTERS=none")
	for _, want := range []string{"+ stream MAIL_EVENTS", "    MaxBytes: 67108864", "    MaxBytes: 1073741824", "    MaxBytes: -1"} {
		if !strings.Contains(out, want) {
			t.Errorf("it shows %q, want %q in it", out, want)
		}
	}
	for text, want := range map[string]string{"1G,2G": "must not have two sizes", "MAIL_EVENTS=1G,MAIL_EVENTS=1G": "must not have two sizes",
		"OBJ_lists=1G": "must name a stream of errand", "MAIL_EVENTS=": "must be 1M or more", "1G,": "must be 1M or more"} {
		failing(t, want, "provision", "--max-bytes", text)
	}
	failing(t, "must not have two sizes", "provision", "--max-bytes", "1G", "--max-bytes", "2G")
}

// Every command says that the address is wrong before it does anything, as the programs do.
func TestAnAddressThatIsNoneIsAConfigurationError(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "nats://", "ftp://127.0.0.1:4222", "nats://127.0.0.1:99999", "127.0.0.1:port"} {
		for _, command := range [][]string{{"provision"}, {"watch"}, {"publish", "mail.account.requested", "--file", os.DevNull}} {
			err := failing(t, "NATS_URL: must be a list of server addresses", append(slices.Clip(command), "--nats-url="+address)...)
			if _, parse := errors.AsType[*kong.ParseError](err); !parse { // it ends the program like any configuration error
				t.Errorf("%v at %q: got %v, want an error of the command line", command, address, err)
			}
		}
	}
}

func TestProvisionAsksOnATerminal(t *testing.T) {
	t.Parallel()
	n := devtest.Server(t)
	for _, c := range []struct{ answer, want string }{{"n\n", "nothing was changed"}, {"", "nothing was changed"},
		{"y\n", "created stream MAIL_REQUESTS"}} {
		var term terminal
		err := term.on(t.Context(), console{in: strings.NewReader(c.answer), interactive: true}, "provision", "--nats-url", n.URL)
		if err != nil || !strings.Contains(term.out.String(), c.want) {
			t.Errorf("answered %q: got %v, %q, want %q", c.answer, err, term.out.String(), c.want)
		}
	}
}

func TestProvisionRefusesLimitsThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--replicas=2", "--replicas=0", "--max-age=1s", "--max-age=0s", "--ack-wait=1ms"} {
		name, _, _ := strings.Cut(flag, "=")
		misconfigured(t, name, "provision", flag)
	}
}
