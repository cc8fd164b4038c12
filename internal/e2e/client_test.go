package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/errand"
	"errand/pkg/messages"
)

// typed is a body of message or enrollment as a request of pkg/messages.
func typed[R messages.Request](t *testing.T, body map[string]any) (r R) {
	t.Helper()
	must(t, json.Unmarshal(encode(t, body), &r))
	return r
}

// ask publishes a request and waits for its outcome.
func ask(t *testing.T, c *errand.Client, r messages.Request) (errand.Receipt, errand.Outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	receipt, err := c.Publish(ctx, r)
	fatalIf(t, err != nil, "%s: %v", r.Operation(), err)
	outcome, err := c.Wait(ctx, receipt)
	must(t, err)
	return receipt, outcome
}

// Services, producers, readers and people publish and read by the client, each with no more rights than the shipped configuration grants.
func TestTheClientNeedsOnlyTheShippedRights(t *testing.T) {
	in := install(t, "MAIL_BATCH_SIZE=2")
	in.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 422, Match: "story refused"})
	in.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 422, Match: "half-2@"})
	in.fault(sandbox.Fault{Operation: "send", Kind: sandbox.AcceptCut, Match: "story doubtful"})
	in.start("mail-consumer")
	in.start("mandate-consumer")
	pnc, _ := connectAs(t, in.nats.URL, "provisioner")
	serviceJS, readerJS := in.reader(pnc, "service"), in.reader(pnc, "subscriber")
	_, annJS := connectAs(t, in.nats.URL, "ann")
	service, reader, ann, producer := errand.New(serviceJS), errand.New(readerJS), errand.New(annJS), errand.New(in.producer)
	outcomes, err := reader.Outcomes(t.Context(), "archive", messages.Send, time.Time{})
	must(t, err)

	// Each outcome once.
	for id, want := range map[string]string{"fine": "errand.Succeeded", "refused": "errand.Failed", "half": "errand.Partial",
		"doubtful": "errand.Uncertain"} {
		_, o := ask(t, service, typed[messages.SendRequest](t, message(id, 4)))
		errorIf(t, fmt.Sprintf("%T", o) != want, "%s: got %+v, want %s", id, o, want)
	}
	fine := typed[messages.SendRequest](t, message("fine", 4))
	if receipt, o := ask(t, service, fine); !receipt.Duplicate || o.About().Subject != "mail.send.accepted.fine" {
		t.Errorf("the same again: %+v %+v", receipt, o)
	}
	fine.Subject = "something else"
	if receipt, o := ask(t, service, fine); o.About().RequestID != receipt.Position() || o.(errand.Failed).ConflictsWith != "fine" {
		t.Errorf("other contents under the same id: %+v %+v", receipt, o)
	}
	corrected := typed[messages.SendRequest](t, message("refused", 4))
	corrected.Subject = "corrected"
	_, o := ask(t, service, corrected)
	s, ok := o.(errand.Succeeded)
	errorIf(t, !ok || s.Subject != "mail.send.accepted.refused", "a correction: %+v", o)
	_, o = ask(t, service, typed[messages.EnrollRequest](t, enrollment("signup")))
	var enrolled messages.EnrollSucceeded
	if err := o.About().Decode(&enrolled); err != nil || !strings.Contains(string(enrolled.Enrollment), `"url"`) {
		t.Errorf("an enrollment: %+v, %v", o, err)
	}
	for _, r := range []messages.Request{messages.TransactionsRequest{OrderNumber: "order-signup"}, messages.AccountRequest{}} {
		receipt, o := ask(t, service, r)
		errorIf(t, o.About().State.Final(r.Operation()) && receipt.RequestID == receipt.Position(), "%s: %+v", r.Operation(), o)
	}

	// A producer only publishes; a reader with the receipt learns the rest, and so does a person.
	receipt, err := producer.Publish(t.Context(), typed[messages.SendRequest](t, message("produced", 3)))
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := producer.Wait(ctx, receipt); !errors.Is(err, errand.ErrNoEvents) {
		t.Errorf("a producer reads: %v", err)
	}
	for who, c := range map[string]*errand.Client{"reader": reader, "ann": ann} {
		o, err := c.Wait(ctx, receipt)
		errorIf(t, err != nil || o.About().Subject != "mail.send.accepted.produced", "%s: %v, %v", who, o, err)
	}
	if _, err := reader.Publish(t.Context(), messages.AccountRequest{}); !errors.Is(err, errand.ErrNotTaken) {
		t.Errorf("a reader publishes: %v", err)
	}
	var seen []string
	for e, err := range reader.Follow(ctx, receipt) {
		must(t, err)
		if seen = append(seen, e.Operation.Subject(e.State, "")); e.Final() {
			break
		}
	}
	errorIf(t, len(seen) < 6 || seen[0] != "mail.send.started" || !slices.Contains(seen, "mail.batch.accepted"),
		"the events of two batches are %q", seen)
	if _, o := ask(t, ann, messages.AccountRequest{}); o.About().State != messages.Reported {
		t.Errorf("ann: %+v", o)
	}

	var all []string
	err = outcomes.Run(ctx, func(_ context.Context, o errand.Outcome) error {
		if all = append(all, fmt.Sprintf("%T", o)); len(all) == 7 {
			cancel()
		}
		return nil
	})
	slices.Sort(all)
	want := []string{"errand.Failed", "errand.Failed", "errand.Partial", "errand.Succeeded", "errand.Succeeded", "errand.Succeeded",
		"errand.Uncertain"}
	errorIf(t, err != nil || !slices.Equal(all, want), "the outcomes are %q, %v, want %q", all, err, want)
}

// Node, nats-py and the nats tool are not part of Go: `.ci/run examples` installs them.
var examples = flag.String("examples", "go,shell", "run these examples: go, shell, node, python, nats")

// exampleCommands builds what the examples need and returns the command of each.
func exampleCommands(t *testing.T, in *installation) map[string][]string {
	dir := t.TempDir()
	for _, args := range [][]string{{"-C", "../../examples/go", "build", "-o", filepath.Join(dir, "invoice"), "."},
		{"build", "-o", dir + string(filepath.Separator), "errand/cmd/errand"}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -trimpath", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		fatalIf(t, err != nil, "%v: %v\n%s", cmd, err, out)
	}
	in.env = []string{"PATH=" + dir + string(filepath.ListSeparator) + os.Getenv("PATH"), "HOME=" + dir,
		"PYTHONPATH=" + os.Getenv("PYTHONPATH"), "NATS_URL=" + in.nats.URL, "NATS_USER=service", "NATS_PASSWORD=" + password("service")}
	return map[string][]string{"go": {filepath.Join(dir, "invoice")}, "shell": {"sh", "../../examples/shell/invoice.sh"},
		"node": {"node", "../../examples/node/invoice.js"}, "python": {"python3", "../../examples/python/invoice.py"},
		"nats": {"sh", "../../examples/shell/nats.sh"}}
}

// run runs a command with in.env and returns its output and its exit status.
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

// runs returns a function that runs a command of the runbooks as a user whom they name, where -examples has the nats tool.
func (in *installation) runs(dir string) (as func(user, command string)) {
	own := in.env
	return func(user, command string) {
		in.t.Helper()
		defer func() { in.env = own }()
		in.env = []string{"PATH=" + in.programs + string(filepath.ListSeparator) + os.Getenv("PATH"), "HOME=" + dir,
			"NATS_URL=" + strings.Join(in.js.Conn().Servers(), ","), "NATS_USER=" + user, "NATS_PASSWORD=" + password(user)}
		said, status := in.run("sh", "-c", command)
		errorIf(in.t, status != 0, "as %s, %s: status %d\n%s", user, command, status, said)
	}
}

// Every command of the nats tool in docs/on-call, docs/run and deploy/nats works as the user whom they name, and so do those of
// errand beside them. Without the tool (see examples) it is not run.
func TestTheRunbooksCommandsWorkAsTheUsersThatTheyName(t *testing.T) {
	if !slices.Contains(strings.Split(*examples, ","), "nats") {
		return
	}
	in := installWith(t, toolBuild)
	admin, js := connectAs(t, in.nats.URL, "admin")
	_, err := js.Publish(t.Context(), "mail.send.started.r1", nil)
	must(t, err)
	dir := t.TempDir()
	as := in.runs(dir)
	as("provisioner", "errand provision --reader service")
	as("service", "errand mirror service")
	as("provisioner", "nats object add lists --max-bucket-size 4G --ttl 960h --inbox-prefix _INBOX_provisioner")
	as("admin", "nats account backup "+dir+"/all --force")
	as("admin", "nats stream backup MANDATE_REQUESTS "+dir+"/requests")
	for _, stream := range []string{"MANDATE_REQUESTS", "MAIL_REQUESTS", "RATE_LEASES"} {
		as("admin", "nats stream rm "+stream+" --force")
	}
	for _, stream := range []string{"MANDATE_EVENTS", "MAIL_EVENTS", "MAIL_DELIVERIES", "DEAD_LETTERS", "AUDIT"} {
		as("admin", "nats stream rm "+stream+" --force")
		as("admin", "nats stream restore "+dir+"/all/"+stream)
	}
	as("provisioner", "errand provision --dry-run; errand provision")
	_, there, err := bus.Last(t.Context(), admin, bus.MailEvents, "mail.send.*.r1")
	must(t, err)
	errorIf(t, !there, "the event before the backup is not there after the restore")
	in.start("mandate-consumer")
	in.publish("mandate.enroll.requested", enrollment("r2", "payer_email", "ann@example.com"))
	in.waitOutcomes("mandate.enroll.*.*", 1, time.Minute)
	as("ann", "errand publish mandate.transactions.requested --wait -o json | jq -r '.records[].order_number' | sort -u > "+dir+"/enrolled")
	as("ann", "errand find ann@example.com; errand status || test $? = 1") // mail-consumer and log-poller do not run
	as("olga", "errand pause enroll --for 30m --why 'INC-4711'; errand resume enroll --why 'INC-4711 is over'")
	as("eraser", "errand erase --of ann@example.com; errand erase --of ann@example.com --yes --why 'letter 17' --as olga")
	for _, options := range []string{"--max-bytes MANDATE_REQUESTS=4G", "--max-bytes 2G,MANDATE_EVENTS=10G", "--max-age 336h --force",
		"--missing --repair"} {
		as("provisioner", "errand provision "+options)
	}
	as("admin", "nats stream purge MANDATE_REQUESTS --force")
	as("service", "nats stream purge MAIL_EVENTS --subject 'mail.*.*.r1' --force")
	as("admin", "nats stream edit MANDATE_EVENTS --compression s2 --force")
	as("admin", "nats consumer rm MAIL_EVENTS service --force")
	as("service", "nats stream rm MAIL_EVENTS --force")
	as("admin", "echo ann@example.com >"+dir+"/list; nats object put lists "+dir+"/list --name l --force")
	as("admin", "nats object rm lists l --force")
	as("system", "nats server list; nats server report jetstream")
}

// The same, of a cluster: one copy of each stream becomes three, and a server that does not come back is removed.
func TestTheRunbooksCommandsWorkInACluster(t *testing.T) {
	if !slices.Contains(strings.Split(*examples, ","), "nats") {
		return
	}
	dir := toolBuild.programs(t)
	parallel(t)
	servers := brokers(t, 3, "")
	in := installAt(t, dir, urls(servers), 1)
	as := in.runs(t.TempDir())
	as("provisioner", "errand provision --replicas 3")
	as("provisioner", "nats object add lists --replicas 3 --max-bucket-size 1G --ttl 960h --inbox-prefix _INBOX_provisioner")
	as("system", "nats server report jetstream")
	servers[2].kill()
	as("system", "until nats server cluster peer-remove n2 --force; do sleep 1; done")
	as("provisioner", "errand provision --replicas 1 --force")
	as("provisioner", "errand provision")
}

// The examples report every outcome, with no more rights than the shipped service has.
func TestTheExamplesReportEveryOutcome(t *testing.T) {
	in := install(t)
	in.fault(sandbox.Fault{Operation: "send", Kind: sandbox.AcceptCut, Match: "nobody-knows@"})
	in.start("mail-consumer")
	pnc, _ := connectAs(t, in.nats.URL, "provisioner")
	in.reader(pnc, "service")
	commands := exampleCommands(t, in)
	for language := range strings.SplitSeq(*examples, ",") {
		command, known := commands[language]
		fatalIf(t, !known, "there is no example %q", language)
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
			{[]string{language + " is not an id", "ann@example.com"}, "request_id", map[string]int{"shell": 2}[language]},
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
