package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/internal/sandbox/devkit"
	"errand/pkg/messages"
)

func itemsOf() []act.Item {
	item := func(sequence uint64, op messages.Operation, id string, reason messages.Reason, class inspect.Class, says string) act.Item {
		return act.Item{Sequence: sequence, Operation: op, RequestID: id, Reason: reason, Class: class, Says: says}
	}
	return []act.Item{
		item(17, messages.Send, "send-invoice-17", messages.ReasonRefused, inspect.Safe, "2 batches not accepted; the others are not sent again"),
		item(16, messages.Enroll, "enroll-signup-4711", messages.ReasonNoAnswer, inspect.Twice,
			"a call of unknown fate is behind it; its order number is looked up before the call"),
		item(14, messages.Enroll, "enroll-signup-4709", messages.ReasonLinkLost, inspect.WasDone,
			"its order number is listed: the payer is enrolled, or is about to be"),
		item(12, messages.Enroll, "enroll-signup-4702", messages.ReasonUnavailable, inspect.Underway,
			"it is reopened already, and waits in its queue"),
	}
}

const contents = `{"request_id":"%s","payer_name":"Payer","payer_email":"payer@example.test","payer_id_type":1,` +
	`"payer_id":"900101015555","payer_telephone_number":"60190000000","order_number":"DD1","amount":"100",` +
	`"application_reason":"Rent","frequency_mode":"MT"}`

// failed stores how a request failed, and its dead letter.
func failed(t *testing.T, js jetstream.JetStream, id, reason string) {
	t.Helper()
	body := fmt.Sprintf(contents, id)
	meta, err := messages.Check(messages.Enroll, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	ended, err := js.Publish(t.Context(), "mandate.enroll.failed."+id, fmt.Appendf(nil, `{"request_id":%q,"reason":%q,"fingerprint":%q}`, id,
		reason, meta.Fingerprint))
	if err != nil {
		t.Fatal(err)
	}
	_, err = js.PublishMsg(t.Context(), &nats.Msg{Subject: "dead.mandate.enroll.requested", Data: []byte(body), Header: nats.Header{
		nats.MsgIdHdr: {bus.DeadLetterID(messages.Enroll, id, ended.Sequence)}, "Errand-Request-Id": {id}, "Errand-Reason": {reason}}})
	if err != nil {
		t.Fatal(err)
	}
}

// toDead are the arguments of a command of errand dead.
func toDead(n *devkit.NATS, user string, args ...string) []string {
	return append(append([]string{"dead"}, args...), "--nats-url", n.URL, "--nats-user", user, "--nats-password", "secret")
}

// Olga sees first what would be done, and does it; Ann may look at the plan.
func TestRedriveShowsItsPlanAndDoesItWhenItIsTold(t *testing.T) {
	t.Parallel()
	n := shipped(t)
	mandates := program(t, n, bus.ProgramStatus{Program: "mandate-consumer"})
	failed(t, mandates, "signup-1", "refused")
	failed(t, mandates, "signup-2", "cancelled")
	for _, user := range []string{"olga", "ann"} {
		out := errand(t, "", toDead(n, user, "redrive", "--since", "1h")...)
		if !strings.Contains(out, "1 safe, 1 cancelled. Nothing was done: --yes --plan 1-2-") ||
			!strings.Contains(out, "enroll     safe       refused    signup-1") {
			t.Errorf("%s is shown\n%s", user, out)
		}
	}
	misconfigured(t, "must be request ids or sequences", toDead(n, "olga", "redrive", "--yes", "--why", "x")...)
	misconfigured(t, "must not be used together with", toDead(n, "olga", "redrive", "signup-1", "--since", "1h")...)
	misconfigured(t, "--why: is required", toDead(n, "olga", "redrive", "signup-1", "--yes", "--plan", "1-1-")...)
	for _, plan := range []string{"", "2"} {
		misconfigured(t, "--plan: must be what the plan ends with",
			toDead(n, "olga", "redrive", "signup-1", "--yes", "--why", "x", "--plan", plan)...)
	}
	refused(t, "no such dead letter", toDead(n, "olga", "redrive", "signup-3")...)

	if out := errand(t, "", toDead(n, "olga", "redrive", "signup-2")...); !strings.Contains(out, "1 cancelled. Nothing was done: --yes") ||
		!strings.HasSuffix(out, " --why REASON runs with --force seq:N what was done, withdrawn or not valid.\n") {
		t.Errorf("of what nothing is safe:\n%s", out)
	}

	plan := planned(t, toDead(n, "olga", "redrive", "--reason", "refused,cancelled")...)
	failed(t, mandates, "signup-4", "refused") // since the plan
	var term terminal
	err := term.errand(t.Context(), "",
		toDead(n, "olga", "redrive", "--reason", "refused,cancelled", "--yes", "--why", "INC-17", "--plan", plan)...)
	if out := term.out.String(); err == nil || err.Error() != "1 not run again: see what is said of each" ||
		!strings.Contains(out, "done      signup-1  reopened and published") ||
		!strings.Contains(out, "not_done  signup-2  nothing was done: a person withdrew it") || strings.Contains(out, "signup-4") ||
		!strings.Contains(term.errs.String(), "1 more came since the plan") {
		t.Errorf("%v\n%s\n%s", err, out, term.errs.String())
	}
	if out := errand(t, "", as(n, "olga", "show", "signup-1")...); !strings.Contains(out, "queued, place 1") &&
		!strings.Contains(out, "reopened") || !strings.Contains(out, `by=olga was=failed why=INC-17`) {
		t.Errorf("show\n%s", out)
	}
	plan = planned(t, toDead(n, "olga", "redrive", "seq:1", "signup-2")...)
	refused(t, `"all" is not a sequence of the plan`, toDead(n, "olga", "redrive", "seq:1", "signup-2", "--force", "all", "--yes", "--plan",
		plan, "--why", "INC-17")...)
	again := toDead(n, "olga", "redrive", "seq:1", "signup-2", "--force", "seq:2", "--yes", "--plan", plan, "--why", "INC-17", "-o", "name")
	if out := errand(t, "", again...); out != "signup-2\n" {
		t.Errorf("by sequence and by name: %q", out)
	}
	if out := errand(t, "", as(n, "olga", "audit", "--verb", "redrive")...); strings.Count(out, "signup-") != 2 ||
		!strings.Contains(out, "INC-17") {
		t.Errorf("audit\n%s", out)
	}
	if got := n.Violations(); len(got) > 0 {
		t.Errorf("a command tried what its user may not do: %q", got)
	}
}

// Two read the same plan; one redrives, and it ends uncertain once more. What the other one agreed to is not that.
func TestConsentIsToTheDeadLetterThatWasRead(t *testing.T) {
	t.Parallel()
	n := shipped(t)
	mandates := program(t, n, bus.ProgramStatus{Program: "mandate-consumer"})
	failed(t, mandates, "signup-1", "no_answer")
	bySelection := planned(t, toDead(n, "olga", "redrive", "--since", "1h")...)
	byName := planned(t, toDead(n, "olga", "redrive", "signup-1")...)
	failed(t, mandates, "signup-1", "no_answer")
	accepted := func(plan string, choice ...string) []string {
		return toDead(n, "olga", append([]string{"redrive", "--yes", "--why", "x", "--accept-twice", "seq:1", "--plan", plan}, choice...)...)
	}
	refused(t, "no longer the dead letters of plan", accepted(byName, "signup-1")...)
	var term terminal
	err := term.errand(t.Context(), "", accepted(bySelection, "--since", "1h")...)
	if out := term.out.String(); err != nil || !strings.Contains(out, "not_done  signup-1  nothing was done: it ended again since") ||
		!strings.Contains(term.errs.String(), "1 more came since the plan") {
		t.Errorf("%v\n%s\n%s", err, out, term.errs.String())
	}
}

// planned returns the plan that a redrive shows without --yes.
func planned(t *testing.T, args ...string) string {
	t.Helper()
	_, rest, _ := strings.Cut(errand(t, "", args...), "--plan ")
	plan, _, _ := strings.Cut(rest, " ")
	return plan
}

func TestCancelEndsWhatIsQueued(t *testing.T) {
	t.Parallel()
	n := shipped(t)
	errand(t, "", as(n, "olga", "publish", "--send-anyway", "mandate.enroll.requested", "-f", "request_id=signup-1", "-f",
		"order_number=DD1")...)
	misconfigured(t, "--why: is required", as(n, "olga", "cancel", "signup-1")...)
	refused(t, "was never seen", as(n, "olga", "cancel", "signup-2", "--why", "withdrawn")...)
	if out := errand(t, "", as(n, "olga", "cancel", "signup-1", "--why", "withdrawn")...); out != "mandate.enroll  signup-1 is cancelled\n" {
		t.Errorf("%q", out)
	}
	refused(t, "has its outcome already: failed", as(n, "olga", "cancel", "signup-1", "--op", "enroll", "--why", "withdrawn")...)
	if out := errand(t, "", as(n, "olga", "show", "signup-1")...); !strings.Contains(out, "\ncancelled by olga: withdrawn, ") {
		t.Errorf("show\n%s", out)
	}
	if got := n.Violations(); len(got) > 0 {
		t.Errorf("a command tried what its user may not do: %q", got)
	}
}
