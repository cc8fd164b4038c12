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

	"errand/pkg/messages"
)

func TestDemoComesOutAsItMust(t *testing.T) {
	t.Parallel()
	out := errand(t, "", "demo", "--store", t.TempDir())
	for _, want := range []string{
		`(?m)^an enrollment +1 +1 +1 +- +- +0$`,
		`(?m)^one that is refused +1 +1 +0 +- +- +1$`,
		`(?m)^a message to 3 +3 +1 +3 +2 +1 +0$`,
		`(?m)^a message to 2,500 +2,510 +3 +2,500 +2,475 +25 +0 `,
		`(?m)^enrollment  http://127\.0\.0\.1:\d+/enroll/`, `mail        http://127`, `NATS        nats://127`,
		`mandate\.enroll\.failed .*reason=refused http=422`, `mail\.batch\.accepted `, `2,500 of 2,500`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("the demo does not show %s", want)
		}
	}
	if strings.Contains(out, "\x1b") || strings.Contains(out, "\r") || strings.Count(out, "\n") > 60 {
		t.Errorf("without a terminal the demo shows\n%s", out)
	}
}

func TestDemoOnATerminalDrawsABar(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	var term terminal
	if err := term.on(t.Context(), console{live: true, colour: true, width: 200}, "demo", "--nats-url", n.URL); err != nil {
		t.Fatalf("%v\n%s", err, term.out.String())
	}
	if out := term.out.String(); !strings.Contains(out, "████████████████████ 2,500/2,500, bounced 25") {
		t.Errorf("no full bar in %q", out)
	}
	// What it asked for is done; nothing of it is left for others.
	for _, stream := range []string{"MANDATE_REQUESTS", "MAIL_REQUESTS"} {
		s, err := js.Stream(t.Context(), stream)
		if err != nil || s.CachedInfo().State.Msgs > 0 {
			t.Errorf("%s holds requests, %v", stream, err)
		}
	}
}

func TestDemoLeavesAServerAloneWhereRequestsWait(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	answer(t, js, "mail.send.requested", `{}`)
	misconfigured(t, "in use", "demo", "--nats-url", n.URL)
}

func TestDemoTellsWhatDidNotComeOut(t *testing.T) {
	t.Parallel()
	s := newStory(time.Now())
	s.tell(event{subject: "mandate.enroll.failed." + s.asked[0].id, data: []byte(`{"attempt":1}`)})
	problems := strings.Join(s.check(truth{}, nil), "\n")
	for _, want := range []string{"an enrollment (" + s.asked[0].id + "), outcome: got failed, want succeeded",
		"a message to 2,500 (" + s.asked[3].id + "), delivered: got 0, want 2475", "recipients written to upstream: got 0, want 2503"} {
		if !strings.Contains(problems, want) {
			t.Errorf("not told: %s, in\n%s", want, problems)
		}
	}
	if s.complete() {
		t.Error("the story is complete without its outcomes")
	}
}

func TestDemoCountsARecipientOnceWhateverIsTold(t *testing.T) {
	t.Parallel()
	s := newStory(time.Now())
	tell := func(state messages.State) {
		s.tell(event{subject: messages.Delivery.Subject(state, "unmatched"), data: []byte(`{"entry":{"to":"cho.defers@` + s.domain + `"}}`)})
	}
	for _, state := range []messages.State{messages.Deferred, messages.Delivered, messages.Delivered} {
		tell(state)
	}
	if got := s.asked[2].got; got.delivered != 1 || got.bounced != 0 {
		t.Errorf("deferred, delivered, delivered: got %+v", got)
	}
	if tell(messages.Bounced); s.asked[2].got.delivered != 0 || s.asked[2].got.bounced != 1 {
		t.Errorf("then bounced: got %+v", s.asked[2].got)
	}
}

func TestDemoStaysUntilItIsEnded(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(within(t, 60*time.Second))
	var term terminal
	ended := make(chan error, 1)
	go func() { ended <- term.errand(ctx, "", "demo", "--stay") }()
	for !strings.Contains(term.out.String(), "runs on until Ctrl-C") {
		select {
		case err := <-ended:
			t.Fatalf("the demo ended: %v\n%s", err, term.out.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	url := regexp.MustCompile(`nats://\S+`).FindString(term.out.String())
	if out := errand(t, "", "publish", "--nats-url", url, "mail.account.requested", "--wait"); !strings.HasPrefix(out, "mail.account.reported.") {
		t.Errorf("beside the demo: got %q", out)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("ended by Ctrl-C: %v", err)
	}
}

func TestSandboxPrintsWhatToUseAndEndsInOrder(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(within(t, 20*time.Second))
	defer stop()
	var term terminal
	ended := make(chan error, 1)
	go func() { ended <- term.errand(ctx, "", "sandbox", "--addr", "127.0.0.1:0", "--mail-key", "it's") }()
	for !strings.Contains(term.out.String(), "Ctrl-C ends it.") {
		select {
		case err := <-ended:
			t.Fatalf("the sandbox ended: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	base := regexp.MustCompile(`export MAIL_API_URL=(\S+)`).FindStringSubmatch(term.out.String())
	if base == nil || !strings.Contains(term.out.String(), `export MAIL_API_KEY='it'\''s'`) || !strings.Contains(term.out.String(), "export MANDATE_PORTAL_KEY=") {
		t.Fatalf("got %s", term.out.String())
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base[1]+"/mail", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("its page of mail: %v, %v", response, err)
	}
	_ = response.Body.Close()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("ended by Ctrl-C: %v", err)
	}
}

func TestSandboxOnAnUsedAddressIsAConfigurationError(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	misconfigured(t, "SANDBOX_ADDR", "sandbox", "--addr", l.Addr().String())
	misconfigured(t, "SANDBOX_PUBLIC_URL", "sandbox", "--public-url", "example.com")
}
