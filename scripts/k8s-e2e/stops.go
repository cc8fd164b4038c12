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
