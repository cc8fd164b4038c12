//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// unready waits until a pod is not ready and says all of the words at /readyz and in its log.
func (w *world) unready(ctx context.Context, program string, words ...string) (p pod, err error) {
	err = until(ctx, 90*time.Second, func(ctx context.Context) error {
		if p, err = w.one(ctx, program); err != nil {
			return err
		}
		status, body, err := w.page(ctx, p.Metadata.Name, "/readyz")
		if err != nil {
			return err
		}
		for _, word := range words {
			if status != 503 || !strings.Contains(body, word) {
				return fmt.Errorf("/readyz is %d %q, want 503 and %q", status, body, word)
			}
		}
		if p.is("Ready") {
			return errors.New("ready in the eyes of Kubernetes")
		}
		log, err := w.k(ctx, "logs", p.Metadata.Name)
		if err != nil {
			return err
		}
		for _, word := range words {
			if !strings.Contains(log, word) {
				return fmt.Errorf("the log does not say %q", word)
			}
		}
		w.say("/readyz: %s", body)
		return nil
	})
	return p, err
}

// healed waits until the very same process is ready.
func (w *world) healed(ctx context.Context, program string, was pod, patience time.Duration) error {
	return until(ctx, patience, func(ctx context.Context) error {
		now, err := w.one(ctx, program)
		switch {
		case err != nil:
			return err
		case now.Metadata.UID != was.Metadata.UID || now.Status.ContainerStatuses[0].RestartCount != was.Status.ContainerStatuses[0].RestartCount:
			return final{errors.New("it was started again")}
		case !now.is("Ready"):
			_, body, err := w.page(ctx, now.Metadata.Name, "/readyz")
			return errors.Join(fmt.Errorf("not ready: %s", body), err)
		}
		return nil
	})
}

// misled gives the mandate consumer a wrong value in its Secret from its start on, waits until it says the words, and
// gives it the right one again.
func (w *world) misled(ctx context.Context, key string, work func(context.Context) error, words ...string) error {
	if err := w.scale(ctx, 1); err != nil {
		return err
	}
	right, err := w.k(ctx, "get", "secret", "mandate-consumer", "-o", "jsonpath={.data."+key+"}")
	if err != nil {
		return err
	}
	set := func(ctx context.Context, value string) error {
		_, err := w.k(ctx, "patch", "secret", "mandate-consumer", "-p", fmt.Sprintf(`{"data":{%q:%q}}`, key, value))
		return err
	}
	defer func() { _ = set(context.WithoutCancel(ctx), right) }() // once more where it went wrong below
	if err := set(ctx, "d3Jvbmc="); err != nil {
		return err
	}
	if _, err := w.k(ctx, "delete", "pod", "-l", "app.kubernetes.io/name=mandate-consumer", "--wait"); err != nil {
		return err
	}
	if err := work(ctx); err != nil {
		return err
	}
	p, err := w.unready(ctx, "mandate-consumer", words...)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := set(ctx, right); err != nil {
		return err
	}
	if err := w.healed(ctx, "mandate-consumer", p, 3*time.Minute); err != nil {
		return err
	}
	w.say("ready %.0f s after the Secret was mended", time.Since(began).Seconds())
	return nil
}

func wrongToken(ctx context.Context, w *world) error {
	b := &batch{name: "token"}
	err := w.misled(ctx, "api-token", func(ctx context.Context) error { return w.enroll(ctx, b) }, "mandate service", "401")
	if err != nil {
		return err
	}
	return w.allWell(ctx, b, 2*time.Minute)
}

func wrongPassword(ctx context.Context, w *world) error {
	err := w.misled(ctx, "nats-password", func(context.Context) error { return nil }, "uthorization")
	if err != nil {
		return err
	}
	b := &batch{name: "password"}
	return errors.Join(w.enroll(ctx, b), w.allWell(ctx, b, time.Minute))
}
