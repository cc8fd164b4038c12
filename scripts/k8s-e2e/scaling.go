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
	if _, err := w.apply(ctx, "sandbox-keda"); err != nil {
		return err
	}
	if _, err := w.k(ctx, "wait", "--for=condition=Ready", "scaledobject", "--all", "--timeout=60s"); err != nil {
		return err
	}
	return w.waitReplicas(ctx, 1, 3*time.Minute)
}

// waitReplicas waits until the mandate consumer has this many ready pods.
func (w *world) waitReplicas(ctx context.Context, want int, timeout time.Duration) error {
	err := until(ctx, timeout, func(ctx context.Context) error {
		n, err := w.replicas(ctx, "mandate-consumer")
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

// maxReplicas is the maximum number of pods in the overlay.
func (w *world) maxReplicas(ctx context.Context) (n int, err error) {
	text, err := w.k(ctx, "get", "scaledobject", "mandate-consumer", "-o", "jsonpath={.spec.maxReplicaCount}")
	if err == nil {
		_, err = fmt.Sscan(text, &n)
	}
	return n, err
}

func checkScale(ctx context.Context, w *world) error {
	if err := w.deployKEDA(ctx); err != nil {
		return err
	}
	maxPods, err := w.maxReplicas(ctx)
	if err != nil {
		return err
	}
	if err := w.latency(ctx, 2*time.Second); err != nil {
		return err
	}
	began, b := time.Now(), &batch{name: "scale"}
	for range 1000 {
		if err := w.enroll(ctx, b); err != nil {
			return err
		}
	}
	if err := w.waitReplicas(ctx, maxPods, 3*time.Minute); err != nil {
		return err
	}
	w.logf("%d pods %.0f s after a backlog of %d", maxPods, time.Since(began).Seconds(), b.enrolls)
	if err := w.latency(ctx, 0); err != nil {
		return err
	}
	if err := w.succeed(ctx, b, 3*time.Minute); err != nil {
		return err
	}
	worked := time.Now()
	if err := w.waitReplicas(ctx, 1, 5*time.Minute); err != nil {
		return err
	}
	w.logf("1 pod %.0f s after the backlog was processed", time.Since(worked).Seconds())
	return nil
}

// stayAtOne checks for a while that the mandate consumer keeps its one pod.
func (w *world) stayAtOne(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); {
		n, err := w.replicas(ctx, "mandate-consumer")
		if err == nil && n != 1 {
			err = fmt.Errorf("it was scaled to %d", n)
		}
		if err := errors.Join(err, pause(ctx, time.Second)); err != nil {
			return err
		}
	}
	q, err := w.queue(ctx, "mandate-enroll")
	w.logf("still 1 pod after %v with %d requests waiting and %d deferred", d, q.waiting, q.ackPending)
	return err
}

func checkHeld(ctx context.Context, w *world) error {
	if err := w.deployKEDA(ctx); err != nil {
		return err
	}
	clear, err := w.fault(ctx, `{"operation":"enroll","kind":"status","status":503}`)
	if err != nil {
		return err
	}
	defer func() { _ = clear(context.WithoutCancel(ctx)) }() // again, in case of an error below
	b := &batch{name: "held"}
	for range 3 {
		if err := w.enroll(ctx, b); err != nil {
			return err
		}
	}
	p, err := w.waitUnready(ctx, "mandate-consumer", "mandate service", "503")
	if err != nil {
		return err
	}
	for range 1000 {
		if err := w.enroll(ctx, b); err != nil {
			return err
		}
	}
	if err := w.stayAtOne(ctx, 20*time.Second); err != nil {
		return err
	}
	if err := clear(ctx); err != nil {
		return err
	}
	if err := w.waitRecovered(ctx, "mandate-consumer", p, time.Minute); err != nil {
		return err
	}
	if err := w.succeed(ctx, b, 4*time.Minute); err != nil {
		return err
	}
	return w.waitReplicas(ctx, 1, 5*time.Minute)
}

func checkDeferred(ctx context.Context, w *world) error {
	if err := w.deployKEDA(ctx); err != nil {
		return err
	}
	// Only these requests: if none succeeded, the program would be held.
	clear, err := w.fault(ctx, `{"operation":"enroll","kind":"status","status":429,"headers":{"Retry-After":"90"},"match":"later-e"}`)
	if err != nil {
		return err
	}
	defer func() { _ = clear(context.WithoutCancel(ctx)) }() // again, in case of an error below
	later, now := &batch{name: "later"}, &batch{name: "now"}
	for range 100 {
		if err := errors.Join(w.enroll(ctx, now), w.enroll(ctx, later), w.enroll(ctx, now), pause(ctx, 50*time.Millisecond)); err != nil {
			return err
		}
	}
	if err := w.succeed(ctx, now, time.Minute); err != nil {
		return err
	}
	switch q, err := w.queue(ctx, "mandate-enroll"); {
	case err != nil:
		return err
	case q.ackPending < 90:
		return fmt.Errorf("%d requests are deferred, want 100", q.ackPending)
	}
	if err := w.stayAtOne(ctx, 20*time.Second); err != nil {
		return err
	}
	if err := clear(ctx); err != nil {
		return err
	}
	return w.succeed(ctx, later, 4*time.Minute)
}
