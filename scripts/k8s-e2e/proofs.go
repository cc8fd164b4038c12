//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// assertions are what is proven, in an order in which each has what it needs: first with the sandbox overlay, then with production's.
var assertions = []assertion{
	{name: "deploy", text: "one apply starts everything under the restricted policy; another changes nothing", run: checkDeploy, always: true},
	{name: "work", text: "an enrollment and a message to 2,500 succeed; each delivery is published", run: checkWork},
	{name: "rollout", text: "a rolling restart under load repeats nothing", run: checkRollout},
	{name: "production", text: "the production overlay, three NATS servers with TLS and disks: an enrollment and a message succeed",
		run: checkProduction},
	{name: "backup", text: "every disk of NATS is lost; restored from the backup, nothing that was run is run again", run: checkBackup},
	{name: "upgrade", text: "NATS " + older + " to " + newer + " and new programs, one by one, under load: nothing is repeated or lost",
		run: checkUpgrade},
}

// notProven is what no assertion shows on this cluster.
const notProven = `that NetworkPolicies are enforced (this node's network has none), the chart of NATS (a
StatefulSet stands in for it), KEDA, more than one node, ingress of alerts.`

// checkDeploy applies the sandbox overlay and waits until everything is ready.
func checkDeploy(ctx context.Context, w *world) error {
	get(w.apply(ctx, "sandbox"))
	must(w.waitComplete(ctx, "errand-provision"))
	must(w.waitSettled(ctx, 3*time.Minute))
	w.logf("everything is ready, streams are provisioned")
	// A negative control: the policy is enforced.
	_, err := w.k(ctx, "run", "careless", "--image=localhost/pause:1", "--dry-run=server")
	if err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
		return errors.Join(errors.New("a pod that may be root was not refused"), err)
	}
	// What kubectl calls "configured" may not be a change; the generation counts real ones, and new pods have new ids.
	const versions = `jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation} {.metadata.uid}{"\n"}{end}`
	var seen [2]string
	for n := range seen {
		seen[n] = get(w.k(ctx, "get", "deployments,jobs,services,configmaps,secrets,networkpolicies,poddisruptionbudgets,pods", "-o", versions))
		if _, err := w.apply(ctx, "sandbox"); err != nil {
			return fmt.Errorf("a second time: %w", err)
		}
	}
	if seen[0] != seen[1] {
		return fmt.Errorf("applying it again changed:\n%s\nto:\n%s", seen[0], seen[1])
	}
	return w.connect(ctx)
}

// checkWork runs one enrollment and one message.
func checkWork(ctx context.Context, w *world) error {
	const many = 2500
	b := &batch{name: "work"}
	must(errors.Join(w.enroll(ctx, b), w.mail(ctx, b, many)))
	must(w.succeed(ctx, b, time.Minute))
	did := get(w.oracle(ctx))
	if did.Mail.Recipients != many || did.Mail.Largest > 1000 {
		return fmt.Errorf("the sandbox mailed %d people, at most %d at once; want %d and 1000", did.Mail.Recipients, did.Mail.Largest, many)
	}
	return w.waitDelivered(ctx, "work-m1", many, time.Minute)
}

// waitDelivered waits until this many deliveries of a message are published.
func (w *world) waitDelivered(ctx context.Context, id string, want uint64, timeout time.Duration) error {
	return until(ctx, timeout, func(ctx context.Context) error {
		subject := "mail.delivery.delivered." + id
		events, err := w.events(ctx, "MAIL_DELIVERIES", subject)
		switch got := events[subject]; {
		case err != nil:
			return err
		case got > want:
			return permanent{fmt.Errorf("%d deliveries of %s were published, want %d", got, id, want)}
		case got < want:
			return fmt.Errorf("%d deliveries of %s were published, want %d", got, id, want)
		}
		return nil
	})
}
