package e2e

import (
	"slices"
	"testing"
	"time"

	"errand/internal/sandbox/devkit/devtest"
)

// Bad configuration is reported with the name of the variable and status 2, missing streams with what to run and status 1;
// neither shows a secret. All that is refused is in internal/programs, bus and telemetry.
func TestExitStatusSaysWhatIsWrong(t *testing.T) {
	dir := releaseBuild.programs(t)
	n := devtest.Server(t)
	mandate := []string{"NATS_URL=" + n.URL, "ADMIN_ADDR=127.0.0.1:0", "MANDATE_API_URL=https://127.0.0.1:1",
		"MANDATE_API_TOKEN=" + mandateToken, "MANDATE_PORTAL_KEY=" + portalKey, "MANDATE_CHECKSUM_SECRET=" + checksumSecret}
	mail := []string{"NATS_URL=" + n.URL, "ADMIN_ADDR=127.0.0.1:0", "MAIL_API_URL=https://127.0.0.1:1", "MAIL_API_KEY=" + mailKey}
	empty := secretFile(t, "empty", " \n")
	with := func(env []string, more ...string) []string { return append(slices.Clip(env), more...) }
	for _, c := range []struct {
		program string
		env     []string
		status  int
		says    []string // in one line
	}{
		{"mandate-consumer", with(mandate, "MANDATE_API_URL="), 2, []string{"MANDATE_API_URL: is not set"}},
		{"mandate-consumer", with(mandate, "MANDATE_API_URL=http://mandates.example.com"), 2, []string{"MANDATE_API_URL", "plain http://",
			"ALLOW_PLAIN_HTTP=true"}},
		{"mandate-consumer", with(mandate, "MANDATE_API_URL=https://me:"+mandateToken+"@mandates.example.com"), 2,
			[]string{"MANDATE_API_URL", "user"}},
		{"mandate-consumer", with(mandate, "MANDATE_API_TOKEN="+mandateToken+"\x01"), 2, []string{"MANDATE_API_TOKEN"}},
		{"mandate-consumer", with(mandate, "MANDATE_API_TOKEN_FILE=also"), 2, []string{"MANDATE_API_TOKEN: "}},
		{"mandate-consumer", with(mandate, "CONCURENCY=8", "CONCURRENCY=0"), 2, []string{"CONCURENCY: no setting has this name", "CONCURRENCY"}},
		{"mandate-consumer", with(mandate, "CONCURENCY=8"), 1, []string{`"warn"`, `"CONCURENCY"`, `"meant":"CONCURRENCY"`}},
		{"mandate-consumer", with(mandate, "CONCURRENCY=many"), 2, []string{"CONCURRENCY"}},
		{"mandate-consumer", with(mandate, "RATE=-1"), 2, []string{"RATE: must be"}},
		{"mandate-consumer", with(mandate, "FLEET_RATE=NaN"), 2, []string{"FLEET_RATE: must be"}},
		{"mandate-consumer", with(mandate, "NATS_USER=me", "NATS_PASSWORD_FILE=/nowhere/"), 2,
			[]string{"NATS_PASSWORD_FILE: /nowhere/: no such file"}},
		{"mandate-consumer", with(mandate, "NATS_USER=me", "NATS_PASSWORD_FILE="+empty), 2, []string{"NATS_PASSWORD_FILE: the file is empty"}},
		{"mandate-consumer", with(mandate, "NATS_USER=me", "NATS_PASSWORD_FILE="+empty, "NATS_PASSWORD="+mailKey), 2,
			[]string{"NATS_PASSWORD and NATS_PASSWORD_FILE: give one"}},
		{"mandate-consumer", with(mandate, "NATS_PASSWORD_FILE="+empty), 2, []string{"NATS_PASSWORD_FILE: give NATS_USER too"}},
		{"mandate-consumer", mandate, 1, []string{"run `errand provision --missing`"}},
		{"mail-consumer", with(mail, "RECIPIENT_KEY=guessable"), 2, []string{"RECIPIENT_KEY: ", "fewer than 32 characters"}},
		{"mail-consumer", mail, 1, []string{"run `errand provision --missing`"}},
	} {
		p, err := launch(t, dir, c.program, c.env)
		must(t, err)
		t.Cleanup(p.kill)
		p.wantStatus(c.status, 10*time.Second)
		errorIf(t, !p.logged(c.says...), "%s with %q does not say %q:\n%s", c.program, c.env, c.says, p.lastOutput())
		p.wantNoLeaks()
	}
	for program, env := range map[string][]string{"mandate-consumer": mandate, "mail-consumer": mail} {
		p, err := launch(t, dir, program, env, "--help")
		must(t, err)
		t.Cleanup(p.kill)
		p.wantStatus(0, 10*time.Second)
		p.wantNoLeaks()
	}
}
