package e2e

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/sandbox"
)

// Node and the nats tool are not part of Go: `.ci/run examples` installs them.
var examples = flag.String("examples", "go,shell", "run these examples: go, shell, node, nats")

// exampleCommands builds what the examples need and gives the command of each.
func exampleCommands(t *testing.T, in *installation) map[string][]string {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{{"-C", "../../examples/go", "build", "-o", filepath.Join(dir, "invoice"), "."},
		{"build", "-o", dir + string(filepath.Separator), "errand/cmd/errand"}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	in.env = []string{"PATH=" + dir + string(filepath.ListSeparator) + os.Getenv("PATH"), "HOME=" + dir,
		"NATS_URL=" + in.nats.URL, "NATS_USER=service", "NATS_PASSWORD=" + password("service")}
	return map[string][]string{"go": {filepath.Join(dir, "invoice")}, "shell": {"sh", "../../examples/shell/invoice.sh"},
		"node": {"node", "../../examples/node/invoice.js"}, "nats": {"sh", "../../examples/shell/nats.sh"}}
}

// run runs a command with in.env and gives all that it says and its exit status.
func (in *installation) run(command ...string) (said string, status int) {
	in.t.Helper()
	ctx, cancel := context.WithTimeout(in.t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = in.env
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status = exit.ExitCode()
	} else if err != nil {
		in.t.Fatalf("%v: %v", cmd, err)
	}
	return string(out), status
}

// The examples tell every outcome, as a service with no more rights than the shipped ones.
func TestTheExamplesTellEveryOutcome(t *testing.T) {
	in := install(t)
	in.fault(sandbox.Fault{Operation: "send", Kind: sandbox.AcceptCut, Match: "nobody-knows@"})
	in.start("mail-consumer")
	pnc, _ := connectAs(t, in.nats.URL, "provisioner")
	in.reader(pnc, "service")
	commands := exampleCommands(t, in)
	for language := range strings.SplitSeq(*examples, ",") {
		command, known := commands[language]
		if !known {
			t.Fatalf("there is no example %q", language)
		}
		if language == "nats" { // it does not wait
			in.until("the nats tool to show the outcome", time.Minute, func() bool {
				said, status := in.run(command...)
				return status == 0 && strings.Contains(said, "mail.send.accepted.send-greeting-1")
			})
			continue
		}
		one := language + "-invoice-1"
		for _, c := range []struct {
			args   []string
			want   string
			status int
		}{
			{[]string{one, "ann@example.com"}, "sent", 0},
			{[]string{one, "ann@example.com"}, "duplicate", 0},
			{[]string{one, "ann@example.com", "Other contents"}, "conflict", 1},
			{[]string{language + "-invoice-2", "nobody"}, "invalid_request", 1},
			{[]string{language + "-invoice-2", "bob@example.com"}, "sent", 0}, // corrected
			{[]string{language + "-invoice-3", "nobody-knows@example.com"}, "uncertain", 3},
			{[]string{language + " is no id", "ann@example.com"}, "request_id", map[string]int{"shell": 2}[language]},
		} {
			if strings.Contains(c.args[0], " ") && c.status == 0 {
				c.status = 1
			}
			if said, status := in.run(append(slices.Clip(command), c.args...)...); status != c.status || !strings.Contains(said, c.want) {
				t.Errorf("%s %q: status %d, want %d, with %q in\n%s", language, c.args, status, c.status, c.want, said)
			}
		}
	}
}
