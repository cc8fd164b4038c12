//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

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

// checkRollout restarts the consumers under load: every request must succeed, and be delivered once.
func checkRollout(ctx context.Context, w *world) error {
	for _, program := range consumers {
		get(w.k(ctx, "scale", "deployment", program, "--replicas=2"))
	}
	must(w.waitSettled(ctx, 3*time.Minute))
	before := get(w.repeated(ctx))
	b := get(w.underLoad(ctx, "rollout", time.Second, func(ctx context.Context) error {
		if _, err := w.k(ctx, "rollout", "restart", "deployment/mandate-consumer", "deployment/mail-consumer"); err != nil {
			return err
		}
		return w.waitSettled(ctx, 4*time.Minute)
	}))
	must(w.succeed(ctx, b, 3*time.Minute))
	after := get(w.repeated(ctx))
	w.logf("consumer_seq is %d ahead of stream_seq; before it was %d", after, before)
	if after != before {
		return fmt.Errorf("%d requests were delivered again", after-before)
	}
	return nil
}
