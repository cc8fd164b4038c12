//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// byKEDA brings up the overlay in which KEDA scales, with nothing to do.
func (w *world) byKEDA(ctx context.Context) error {
	if _, err := w.apply(ctx, "sandbox-keda"); err != nil {
		return err
	}
	if _, err := w.k(ctx, "wait", "--for=condition=Ready", "scaledobject", "--all", "--timeout=60s"); err != nil {
		return err
	}
	return w.reach(ctx, 1, 3*time.Minute)
}

// reach waits until the mandate consumer has so many pods that are ready.
func (w *world) reach(ctx context.Context, want int, patience time.Duration) error {
	err := until(ctx, patience, func(ctx context.Context) error {
		n, err := w.replicas(ctx, "mandate-consumer")
		if err == nil && n != want {
			err = fmt.Errorf("%d replicas, want %d", n, want)
		}
		return err
	})
	if err != nil {
		return err
	}
	return w.settled(ctx, patience)
}

// ceiling is what the overlay allows.
func (w *world) ceiling(ctx context.Context) (n int, err error) {
	text, err := w.k(ctx, "get", "scaledobject", "mandate-consumer", "-o", "jsonpath={.spec.maxReplicaCount}")
	if err == nil {
		_, err = fmt.Sscan(text, &n)
	}
	return n, err
}

func scaled(ctx context.Context, w *world) error {
	if err := w.byKEDA(ctx); err != nil {
		return err
	}
	most, err := w.ceiling(ctx)
	if err != nil {
		return err
	}
	if err := latency(ctx, 2*time.Second); err != nil {
		return err
	}
	began, b := time.Now(), &batch{name: "scale"}
	for range 1000 {
		if err := w.enroll(ctx, b); err != nil {
			return err
		}
	}
	if err := w.reach(ctx, most, 3*time.Minute); err != nil {
		return err
	}
	w.say("%d pods %.0f s after a backlog of %d", most, time.Since(began).Seconds(), b.enrolls)
	if err := latency(ctx, 0); err != nil {
		return err
	}
	if err := w.allWell(ctx, b, 3*time.Minute); err != nil {
		return err
	}
	worked := time.Now()
	if err := w.reach(ctx, 1, 5*time.Minute); err != nil {
		return err
	}
	w.say("1 pod %.0f s after the last of it was worked off", time.Since(worked).Seconds())
	return nil
}

// steady watches for a while that the mandate consumer keeps its one pod.
func (w *world) steady(ctx context.Context, d time.Duration) error {
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
	w.say("still 1 pod after %v with %d requests waiting and %d put off", d, q.waiting, q.taken)
	return err
}

func held(ctx context.Context, w *world) error {
	if err := w.byKEDA(ctx); err != nil {
		return err
	}
	clear, err := fault(ctx, `{"operation":"enroll","kind":"status","status":503}`)
	if err != nil {
		return err
	}
	defer func() { _ = clear(context.WithoutCancel(ctx)) }() // once more where it went wrong below
	b := &batch{name: "held"}
	for range 3 {
		if err := w.enroll(ctx, b); err != nil {
			return err
		}
	}
	p, err := w.unready(ctx, "mandate-consumer", "mandate service", "503")
	if err != nil {
		return err
	}
	for range 1000 {
		if err := w.enroll(ctx, b); err != nil {
			return err
		}
	}
	if err := w.steady(ctx, 20*time.Second); err != nil {
		return err
	}
	if err := clear(ctx); err != nil {
		return err
	}
	if err := w.healed(ctx, "mandate-consumer", p, time.Minute); err != nil {
		return err
	}
	if err := w.allWell(ctx, b, 4*time.Minute); err != nil {
		return err
	}
	return w.reach(ctx, 1, 5*time.Minute)
}

func deferred(ctx context.Context, w *world) error {
	if err := w.byKEDA(ctx); err != nil {
		return err
	}
	// Only these requests: if none went well the program would be held.
	clear, err := fault(ctx, `{"operation":"enroll","kind":"status","status":429,"headers":{"Retry-After":"90"},"match":"later-e"}`)
	if err != nil {
		return err
	}
	defer func() { _ = clear(context.WithoutCancel(ctx)) }() // once more where it went wrong below
	later, now := &batch{name: "later"}, &batch{name: "now"}
	for range 100 {
		if err := errors.Join(w.enroll(ctx, now), w.enroll(ctx, later), w.enroll(ctx, now), pause(ctx, 50*time.Millisecond)); err != nil {
			return err
		}
	}
	if err := w.allWell(ctx, now, time.Minute); err != nil {
		return err
	}
	switch q, err := w.queue(ctx, "mandate-enroll"); {
	case err != nil:
		return err
	case q.taken < 90:
		return fmt.Errorf("%d requests are put off, want 100", q.taken)
	}
	if err := w.steady(ctx, 20*time.Second); err != nil {
		return err
	}
	if err := clear(ctx); err != nil {
		return err
	}
	return w.allWell(ctx, later, 4*time.Minute)
}
