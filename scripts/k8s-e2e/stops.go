//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// scale sets the number of each consumer's pods and waits for them.
func (w *world) scale(ctx context.Context, n int) error {
	for _, program := range consumers {
		if _, err := w.k(ctx, "scale", "deployment", program, "--replicas", strconv.Itoa(n)); err != nil {
			return err
		}
	}
	return w.waitSettled(ctx, 3*time.Minute)
}

// underLoad runs act while requests are published and every upstream call takes this long. It returns what was published.
func (w *world) underLoad(ctx context.Context, name string, calls time.Duration, act func(context.Context) error) (*batch, error) {
	if err := w.latency(ctx, calls); err != nil {
		return nil, err
	}
	b, loaded := &batch{name: name}, make(chan error, 1)
	on, stop := context.WithCancel(ctx)
	defer stop()
	go func() { loaded <- w.load(on, b) }() // ends with stop, below
	err := errors.Join(pause(ctx, 3*time.Second), act(ctx), pause(ctx, time.Second))
	stop()
	if err := errors.Join(err, <-loaded); err != nil {
		return nil, err
	}
	w.logf("%d enrollments and %d mails were published meanwhile", b.enrolls, b.mails)
	return b, w.latency(ctx, 0)
}

// noneRepeated runs act under load: every request must succeed, and be delivered once.
func (w *world) noneRepeated(ctx context.Context, name string, calls time.Duration, act func(context.Context) error) error {
	before := get(w.repeated(ctx))
	b := get(w.underLoad(ctx, name, calls, act))
	must(w.succeed(ctx, b, 3*time.Minute))
	after := get(w.repeated(ctx))
	w.logf("consumer_seq is %d ahead of stream_seq; before it was %d", after, before)
	if after != before {
		return fmt.Errorf("%d requests were delivered again", after-before)
	}
	return nil
}

func checkRollout(ctx context.Context, w *world) error {
	must(w.scale(ctx, 2))
	return w.noneRepeated(ctx, "rollout", time.Second, func(ctx context.Context) error {
		if _, err := w.k(ctx, "rollout", "restart", "deployment/mandate-consumer", "deployment/mail-consumer"); err != nil {
			return err
		}
		return w.waitSettled(ctx, 4*time.Minute)
	})
}

func checkScaleDown(ctx context.Context, w *world) error {
	must(w.scale(ctx, 4))
	return w.noneRepeated(ctx, "shrink", 2*time.Second, func(ctx context.Context) error { return w.scale(ctx, 1) })
}

func checkKill(ctx context.Context, w *world) error {
	must(w.scale(ctx, 2))
	b, err := w.underLoad(ctx, "kill", 2*time.Second, func(ctx context.Context) error {
		for _, program := range consumers {
			p, err := w.busiest(ctx, program)
			if err != nil {
				return err
			}
			if err := errors.Join(w.kill(ctx, p), w.waitRestarted(ctx, p)); err != nil {
				return err
			}
		}
		return pause(ctx, 5*time.Second)
	})
	must(err)
	// Another worker continues with a killed program's request only after its lease and its call's deadline.
	outcomes := get(w.outcomes(ctx, b, 4*time.Minute))
	w.logf("outcomes: %v", outcomes)
	// A call of the killed program is uncertain: a mail may have been sent, an enrollment is listed but its link is lost.
	if outcomes["succeeded"]+outcomes["accepted"]+outcomes["uncertain"] != b.enrolls+b.mails {
		return fmt.Errorf("of %d enrollments and %d mails: %v", b.enrolls, b.mails, outcomes)
	}
	if outcomes["succeeded"] == b.enrolls || outcomes["accepted"] == b.mails {
		return errors.New("no call was under way when a program was killed: nothing is proven")
	}
	_, err = w.oracle(ctx)
	return err
}

// busiest returns the pod of a program with the most calls under way. The other one may be idle: NATS gives a request to
// whichever worker has waited longest, and those that were started together wait in a row.
func (w *world) busiest(ctx context.Context, program string) (found pod, err error) {
	err = until(ctx, 20*time.Second, func(ctx context.Context) error {
		all, err := w.pods(ctx, program)
		if err != nil {
			return err
		}
		most := 0.0
		for _, p := range all {
			_, text, err := w.page(ctx, p.Metadata.Name, "/metrics")
			if err != nil {
				return err
			}
			_, text, _ = strings.Cut(text, "\nerrand_busy_ratio ")
			text, _, _ = strings.Cut(text, "\n")
			busy, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return fmt.Errorf("errand_busy_ratio of %s: %w", p.Metadata.Name, err)
			}
			if busy > most {
				found, most = p, busy
			}
		}
		if most == 0 {
			return fmt.Errorf("no %s has a call under way", program)
		}
		return nil
	})
	return found, err
}

// kill kills the program of a pod, as the kernel does when memory is exhausted.
func (w *world) kill(ctx context.Context, p pod) error {
	err := w.kill9(ctx, p)
	if err == nil {
		w.logf("killed %s", p.Metadata.Name)
	}
	return err
}

// waitRestarted waits until a pod's program was restarted.
func (w *world) waitRestarted(ctx context.Context, was pod) error {
	return until(ctx, time.Minute, func(ctx context.Context) error {
		var now pod
		err := w.getJSON(ctx, &now, "get", "pod", was.Metadata.Name)
		if err == nil && now.Status.ContainerStatuses[0].RestartCount == was.Status.ContainerStatuses[0].RestartCount {
			err = errors.New("it was not restarted")
		}
		return err
	})
}

func checkDrain(ctx context.Context, w *world) error {
	must(w.scale(ctx, 2))
	// All nodes, or what is evicted from one would be started on another.
	nodes := strings.Fields(get(w.kubectl(ctx, "get", "nodes", "--field-selector=spec.unschedulable=false", "-o",
		"jsonpath={.items[*].metadata.name}")))
	uncordon := append([]string{"uncordon"}, nodes...)
	_, err := w.kubectl(ctx, append([]string{"drain", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=20s",
		"--pod-selector=app.kubernetes.io/name in (mandate-consumer, mail-consumer, log-poller)"}, nodes...)...)
	defer func() { _, _ = w.kubectl(context.WithoutCancel(ctx), uncordon...) }() // again, in case of an error above
	if err == nil || !strings.Contains(err.Error(), "disruption budget") {
		return errors.Join(errors.New("the drain was not stopped by a budget"), err)
	}
	for _, program := range append([]string{"log-poller"}, consumers...) {
		ready := 0
		for _, p := range get(w.pods(ctx, program)) {
			if p.hasCondition("Ready") && p.Metadata.DeletionTimestamp == "" {
				ready++
			}
		}
		if ready != 1 {
			return fmt.Errorf("%s has %d ready pods of 2, want 1", program, ready)
		}
	}
	get(w.kubectl(ctx, uncordon...))
	return w.waitSettled(ctx, 2*time.Minute)
}

// checkPollers kills one poller after the other while deliveries are published. Both sweep the log; either may become the
// active publisher.
func checkPollers(ctx context.Context, w *world) error {
	const many = 200
	b := &batch{name: "pollers"}
	for n := range 4 {
		all := get(w.pods(ctx, "log-poller"))
		if len(all) != 2 {
			return fmt.Errorf("%d pollers, want 2", len(all))
		}
		must(errors.Join(w.mail(ctx, b, many), w.kill(ctx, all[n%2])))
		began := time.Now()
		must(w.waitDelivered(ctx, fmt.Sprintf("pollers-m%d", n+1), many, time.Minute))
		w.logf("published %.0f s after it was killed", time.Since(began).Seconds())
		must(w.waitRestarted(ctx, all[n%2]))
	}
	must(w.waitSettled(ctx, 2*time.Minute))
	for n := range 4 { // nothing was published twice since
		must(w.waitDelivered(ctx, fmt.Sprintf("pollers-m%d", n+1), many, time.Second))
	}
	return nil
}
