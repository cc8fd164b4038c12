package main

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
)

// The log poller stores a bounce, people who may act add and remove addresses, and whoever may not is refused.
func TestAddressesAreSuppressedAndWrittenToAgain(t *testing.T) {
	t.Parallel()
	n := shipped(t)
	poller := program(t, n, bus.ProgramStatus{Program: "log-poller"})
	key := secretOf(t, poller).KeyOf("ann@example.com").String()
	if _, err := poller.PublishMsg(t.Context(), &nats.Msg{Subject: "suppression.bounced." + key,
		Data: []byte(`{"at":"2026-01-02T03:04:05.000Z","request_id":"invoice-1","code":550,"enhanced":"5.1.1"}`)}); err != nil {
		t.Fatal(err)
	}
	of := func(user, command string, args ...string) []string {
		return append([]string{"suppressions"}, as(n, user, command, args...)...)
	}
	inForce := "Whether messages leave out suppressed addresses is not known: no mail-consumer answers.\n"
	says := func(out string) string {
		t.Helper()
		list, ends := strings.CutSuffix(out, inForce)
		if !ends {
			t.Errorf("it shows\n%s\nwant at its end %q", out, inForce)
		}
		return list
	}
	shows := func(wants ...string) {
		t.Helper()
		out := says(errand(t, "", of("olga", "list", "Ann <ann@Example.com>")...))
		lines := strings.Split(strings.TrimSpace(out), "\n")[1:]
		for i, want := range wants {
			if len(lines) != len(wants) || !strings.Contains(lines[i], want) || !strings.Contains(lines[i], key) || strings.Contains(out, "ann@") {
				t.Errorf("it shows\n%s\nwant %q", out, wants)
				return
			}
		}
	}
	shows("bounced: 550 5.1.1")
	misconfigured(t, "--why: is required", of("olga", "remove", "ann@example.com")...)
	misconfigured(t, "is not an email address", of("olga", "add", "ann", "--why", "x")...)
	program(t, n, bus.ProgramStatus{Program: "mail-consumer", SuppressFor: 30 * 24 * 3600})
	inForce = "SUPPRESS_BOUNCED of mail-consumer is 30d: messages leave an address out for so long.\n"
	says(errand(t, "", of("olga", "remove", "ann@example.com", "--why", "it is there again")...))
	shows("removed by olga: it is there again", "bounced: 550 5.1.1")
	refused(t, "it is not suppressed", of("olga", "remove", "ann@example.com", "--why", "twice")...)
	errand(t, "", of("olga", "add", "ann@example.com", "--why", "asked by telephone")...)
	program(t, n, bus.ProgramStatus{Program: "mail-consumer", Host: "z"})
	inForce = "SUPPRESS_BOUNCED of mail-consumer is off: messages go to suppressed addresses, too.\n" // of one replica
	says(errand(t, "", of("olga", "add", "ann@example.com", "--why", "the first has expired")...))
	shows("added by olga: the first has expired", "bounced: 550 5.1.1")
	out := says(errand(t, "", of("ann", "list", "--limit", "1")...))
	if strings.Count(out, "\n") != 2 || !strings.Contains(out, "has expired") {
		t.Errorf("the last one is\n%s", out)
	}
	if out := errand(t, "", as(n, "ann", "audit", "--verb", "unsuppress")...); !strings.Contains(out, key) || strings.Contains(out, "ann@") {
		t.Errorf("audit shows\n%s", out)
	}
	errand(t, "", as(n, "eraser", "erase", "--of", "ann@example.com", "--yes", "--why", "asked for", "--as", "olga")...)
	if out := errand(t, "", of("olga", "list")...); says(out) != "none\n" {
		t.Errorf("of one who was erased it shows\n%s", out)
	}
	if got := n.Violations(); len(got) > 0 {
		t.Errorf("a command tried what its user may not do: %q", got)
	}
	refused(t, "may not read the secret of recipients' keys", of("ann", "list", "ann@example.com")...)
}
