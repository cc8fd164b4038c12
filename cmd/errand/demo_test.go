//go:build !nodemo

package main

import (
	"context"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/sandbox"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	client "errand/pkg/errand"
	"errand/pkg/messages"
)

func TestDemoEndsAsExpected(t *testing.T) {
	t.Parallel()
	out := errand(t, "", "demo", "--store", t.TempDir())
	for _, want := range []string{
		`(?m)^an enrollment +1 +1 +1 +0 +0 +0$`, `(?m)^an enrollment: approved by its payer$`,
		`mandate\.callback\.received +enroll-`, `mandate\.application\.approved +enroll-`,
		`(?m)^one that is refused +1 +1 +0 +0 +0 +1$`,
		`(?m)^mail to 3, later +3 +1 +3 +2 +1 +0$`,
		`(?m)^mail to 2,500, bulk +2,510 +3 +2,500 +2,475 +25 +0$`, `(?m)^mail to 2,500, bulk: left out 10, invalid or twice$`,
		`(?m)^enrollment  http://127\.0\.0\.1:\d+/enroll/`, `mail        http://127`, `NATS        nats://127`,
		`mandate\.enroll\.failed .*reason=refused http=422`, `mail\.batch\.accepted `, `2,500 of 2,500`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("the demo does not show %s", want)
		}
	}
	_, table, _ := strings.Cut(out, " REQUESTED ")
	for line := range strings.Lines(table) {
		if _, _, isLink := strings.Cut(line, "://"); len(line) > 81 && !isLink {
			t.Errorf("wider than 80 columns: %q", line)
		}
	}
	if strings.Contains(out, "\x1b") || strings.Contains(out, "\r") || strings.Count(out, "\n") > 60 {
		t.Errorf("without a terminal the demo shows\n%s", out)
	}
}

func TestDemoLeavesNoRequestForOtherPrograms(t *testing.T) {
	devtest.Full(t)
	t.Parallel()
	store := t.TempDir()
	var term terminal
	if err := term.on(t.Context(), console{colour: true}, "demo", "--store", store); err != nil {
		t.Fatalf("%v\n%s", err, term.out.String())
	}
	n, err := devkit.Start(store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	nc, err := n.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, stream := range []string{"MANDATE_REQUESTS", "MAIL_REQUESTS"} {
		s, err := js.Stream(t.Context(), stream)
		if err != nil || s.CachedInfo().State.Msgs > 0 {
			t.Errorf("%s has requests, %v", stream, err)
		}
	}
}

func TestDemoReportsUnexpectedResults(t *testing.T) {
	t.Parallel()
	s := newScenario(time.Now())
	s.requests[0].note(client.Event{State: messages.Failed, Data: []byte(`{"attempt":1}`)})
	problems := strings.Join(s.check(sandbox.Oracle{}), "\n")
	for _, want := range []string{"an enrollment (" + s.requests[0].id + "): got {state:failed ",
		"mail to 2,500, bulk (" + s.requests[3].id + "): got {state: requested:2510 calls:0 accepted:0 delivered:0 ",
		"recipients written to upstream: got 0, want 2503",
		"application:approved}", "callbacks taken: got 0, want 2"} {
		if !strings.Contains(problems, want) {
			t.Errorf("no %q in\n%s", want, problems)
		}
	}
	for i, complete := range []bool{false, true, false, false} {
		if s.requests[i].complete() != complete {
			t.Errorf("%s: complete is %v before anything came of it", s.requests[i].title, !complete)
		}
	}
}

func TestDemoStaysUntilItIsEnded(t *testing.T) {
	devtest.Full(t)
	t.Parallel()
	ctx, stop := context.WithCancel(within(t, time.Minute))
	var term terminal
	ended := make(chan error, 1)
	go func() { ended <- term.errand(ctx, "", "demo", "--stay") }()
	await := func(text string) {
		t.Helper()
		for !strings.Contains(term.out.String(), text) {
			select {
			case err := <-ended:
				t.Fatalf("the demo ended: %v\n%s", err, term.out.String())
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	await("programs  ")
	url := regexp.MustCompile(`nats://\S+`).FindString(term.out.String())
	errand(t, "", "publish", "--nats-url", url, "mail.send.requested", "--wait", "-f", "from=me@example.com", "-f", "to=you@example.com",
		"-f", "subject=Hi", "-f", "content=Hello") // while it counts its own
	await("keeps running until Ctrl-C")
	if out := errand(t, "", "publish", "--nats-url", url, "mail.account.requested", "--wait"); !strings.HasPrefix(out,
		"mail.account.reported.") {
		t.Errorf("together with the demo: got %q", out)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("ended by Ctrl-C: %v", err)
	}
}

func TestSandboxPrintsHowToUseItAndStops(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(within(t, time.Minute))
	defer stop()
	var term terminal
	ended := make(chan error, 1)
	go func() { ended <- term.errand(ctx, "", "sandbox", "--addr", "127.0.0.1:0", "--mail-key", "it's") }()
	for !strings.Contains(term.out.String(), "Ctrl-C stops it.") {
		select {
		case err := <-ended:
			t.Fatalf("the sandbox ended: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	base := regexp.MustCompile(`export MAIL_API_URL='([^']+)'`).FindStringSubmatch(term.out.String())
	if base == nil || !strings.Contains(term.out.String(), `export MAIL_API_KEY='it'\''s'`) ||
		!strings.Contains(term.out.String(), "export MANDATE_PORTAL_KEY=") {
		t.Fatalf("got %s", term.out.String())
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base[1]+"/mail", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("its mail page: %v, %v", response, err)
	}
	_ = response.Body.Close()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("ended by Ctrl-C: %v", err)
	}
}

func TestSandboxOnAUsedAddressIsAConfigurationError(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	misconfigured(t, "SANDBOX_ADDR", "sandbox", "--addr", l.Addr().String())
	misconfigured(t, "SANDBOX_PUBLIC_URL", "sandbox", "--public-url", "example.com")
}
