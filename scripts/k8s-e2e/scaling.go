//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// deployKEDA applies the overlay in which KEDA scales, and waits until it is idle.
func (w *world) deployKEDA(ctx context.Context) error {
	get(w.apply(ctx, "sandbox-keda"))
	get(w.k(ctx, "wait", "--for=condition=Ready", "scaledobject", "--all", "--timeout=60s"))
	return w.waitReplicas(ctx, 1, 3*time.Minute)
}

// waitReplicas waits until the mandate consumer has this many ready pods.
func (w *world) waitReplicas(ctx context.Context, want int, timeout time.Duration) error {
	err := until(ctx, timeout, func(ctx context.Context) error {
		n, err := w.replicas(ctx)
		if err == nil && n != want {
			err = fmt.Errorf("%d replicas, want %d", n, want)
		}
		return err
	})
	if err != nil {
		return err
	}
	return w.waitSettled(ctx, timeout)
}

func checkScale(ctx context.Context, w *world) error {
	must(w.deployKEDA(ctx))
	maxPods := get(w.number(ctx, "scaledobject", "mandate-consumer", "{.spec.maxReplicaCount}"))
	must(w.latency(ctx, 2*time.Second))
	began, b := time.Now(), &batch{name: "scale"}
	for range 1000 {
		must(w.enroll(ctx, b))
	}
	must(w.waitReplicas(ctx, maxPods, 3*time.Minute))
	w.logf("%d pods %.0f s after a backlog of %d", maxPods, time.Since(began).Seconds(), b.enrolls)
	must(w.latency(ctx, 0))
	must(w.succeed(ctx, b, 3*time.Minute))
	worked := time.Now()
	must(w.waitReplicas(ctx, 1, 5*time.Minute))
	w.logf("1 pod %.0f s after the backlog was processed", time.Since(worked).Seconds())
	return nil
}

// stayAtOne checks for a while that the mandate consumer keeps its one pod.
func (w *world) stayAtOne(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); {
		n, err := w.replicas(ctx)
		if err == nil && n != 1 {
			err = fmt.Errorf("it was scaled to %d", n)
		}
		must(errors.Join(err, pause(ctx, time.Second)))
	}
	q, err := w.queue(ctx, "mandate-enroll")
	w.logf("still 1 pod after %v with %d requests waiting and %d deferred", d, q.waiting, q.ackPending)
	return err
}

func checkHeld(ctx context.Context, w *world) error {
	must(w.deployKEDA(ctx))
	clear := get(w.fault(ctx, `{"operation":"enroll","kind":"status","status":503}`))
	defer func() { _ = clear(context.WithoutCancel(ctx)) }() // again, in case of an error below
	b := &batch{name: "held"}
	must(errors.Join(w.enroll(ctx, b), w.enroll(ctx, b), w.enroll(ctx, b)))
	p := get(w.waitUnready(ctx, "mandate-consumer", "mandate service", "503"))
	for range 1000 {
		must(w.enroll(ctx, b))
	}
	must(w.stayAtOne(ctx, 20*time.Second))
	must(clear(ctx))
	must(w.waitRecovered(ctx, "mandate-consumer", p, time.Minute))
	must(w.succeed(ctx, b, 4*time.Minute))
	return w.waitReplicas(ctx, 1, 5*time.Minute)
}
