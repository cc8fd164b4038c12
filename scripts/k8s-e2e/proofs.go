//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// assertions are what is proven, in an order in which each finds what it needs: first on the overlay whose numbers of
// pods are set by hand, then on the one that KEDA scales.
var assertions = []assertion{
	{name: "deploy", says: "one apply brings everything up under the restricted policy; another changes nothing", run: deployed, always: true},
	{name: "work", says: "an enrollment, and a message to 2,500, end well; each delivery is told", run: worked},
	{name: "rollout", says: "a rolling restart under load repeats nothing", run: rolled},
	{name: "scale-down", says: "going from 4 pods to 1 under load cuts no call", run: shrunk},
	{name: "kill", says: "a program killed with SIGKILL under load loses nothing and does nothing twice", run: killed},
	{name: "drain", says: "draining the node stops at the disruption budget", run: drained},
	{name: "pollers", says: "of two pollers one goes on when the other is killed; each delivery is told once", run: pollersKilled},
	{name: "token", says: "a wrong token: not ready, says so; a right one heals it without a restart", run: wrongToken},
	{name: "password", says: "a wrong NATS password: not ready, says so; a right one heals it without a restart", run: wrongPassword},
	{name: "scale", says: "KEDA scales with a backlog and back to 1", run: scaled},
	{name: "held", says: "upstream down: not ready, says why, no pod is added; it comes back by itself", run: held},
	{name: "deferred", says: "requests that the upstream puts off add no pod", run: deferred},
}

const notProven = `that NetworkPolicies are enforced (this node's network has none), volumes and
more than one NATS server, more than one node, ingress of alerts, KEDA's admission webhook and certificates.`

// deployed applies the sandbox overlay until everything is ready.
func deployed(ctx context.Context, w *world) error {
	if _, err := w.apply(ctx, "sandbox"); err != nil {
		return err
	}
	if _, err := w.k(ctx, "wait", "--for=condition=complete", "job/errand-provision", "--timeout=180s"); err != nil {
		return err
	}
	if err := w.settled(ctx, 3*time.Minute); err != nil {
		return err
	}
	w.say("everything is ready, streams are provisioned")
	// A control: the policy is enforced.
	_, err := w.k(ctx, "run", "careless", "--image=localhost/pause:1", "--dry-run=server")
	if err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
		return errors.Join(errors.New("a pod that may be root was not refused"), err)
	}
	// What kubectl calls "configured" need not be a change; a generation counts them, and new pods have new ids.
	const versions = `jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation} {.metadata.uid}{"\n"}{end}`
	var seen [2]string
	for n := range seen {
		if seen[n], err = w.k(ctx, "get", "deployments,jobs,services,configmaps,secrets,networkpolicies,poddisruptionbudgets,pods", "-o", versions); err != nil {
			return err
		}
		if _, err := w.apply(ctx, "sandbox"); err != nil {
			return fmt.Errorf("a second time: %w", err)
		}
	}
	if seen[0] != seen[1] {
		return fmt.Errorf("applying it again changed:\n%s\nto:\n%s", seen[0], seen[1])
	}
	return w.connect(ctx)
}

// worked has the two kinds of work done.
func worked(ctx context.Context, w *world) error {
	const many = 2500
	b := &batch{name: "work"}
	if err := errors.Join(w.enroll(ctx, b), w.mail(ctx, b, many)); err != nil {
		return err
	}
	if err := w.allWell(ctx, b, time.Minute); err != nil {
		return err
	}
	did, err := oracle(ctx)
	if err != nil {
		return err
	}
	if did.Mail.Recipients != many || did.Mail.Largest > 1000 {
		return fmt.Errorf("the sandbox mailed %d people, at most %d at once; want %d and 1000", did.Mail.Recipients, did.Mail.Largest, many)
	}
	return w.delivered(ctx, "work-m1", many, time.Minute)
}

// delivered waits until so many deliveries of a message are told.
func (w *world) delivered(ctx context.Context, id string, want uint64, patience time.Duration) error {
	return until(ctx, patience, func(ctx context.Context) error {
		subject := "mail.delivery.delivered." + id
		events, err := w.events(ctx, "MAIL_DELIVERIES", subject)
		switch got := events[subject]; {
		case err != nil:
			return err
		case got > want:
			return final{fmt.Errorf("%d deliveries of %s were told, want %d", got, id, want)}
		case got < want:
			return fmt.Errorf("%d deliveries of %s were told, want %d", got, id, want)
		}
		return nil
	})
}
