//go:build linux

package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
)

// waitUnready waits until a pod is not ready and has all of the words at /readyz and in its log.
func (w *world) waitUnready(ctx context.Context, program string, words ...string) (p pod, err error) {
	err = until(ctx, 90*time.Second, func(ctx context.Context) error {
		if p, err = w.onlyPod(ctx, program); err != nil {
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
		if p.hasCondition("Ready") {
			return errors.New("still ready for Kubernetes")
		}
		log, err := w.k(ctx, "logs", p.Metadata.Name)
		if err != nil {
			return err
		}
		for _, word := range words {
			if !strings.Contains(log, word) {
				return fmt.Errorf("the log does not contain %q", word)
			}
		}
		w.logf("/readyz: %s", body)
		return nil
	})
	return p, err
}

// waitRecovered waits until the same process is ready, without a restart.
func (w *world) waitRecovered(ctx context.Context, program string, was pod, timeout time.Duration) error {
	return until(ctx, timeout, func(ctx context.Context) error {
		now, err := w.onlyPod(ctx, program)
		switch {
		case err != nil:
			return err
		case now.Metadata.UID != was.Metadata.UID || now.Status.ContainerStatuses[0].RestartCount != was.Status.ContainerStatuses[0].RestartCount:
			return permanent{errors.New("it was restarted")}
		case !now.hasCondition("Ready"):
			_, body, err := w.page(ctx, now.Metadata.Name, "/readyz")
			return errors.Join(fmt.Errorf("not ready: %s", body), err)
		}
		return nil
	})
}

// checkWrongToken starts the mandate consumer with a wrong token in its Secret, waits until it says so, and restores the right one.
func checkWrongToken(ctx context.Context, w *world) error {
	must(w.scale(ctx, 1))
	right := get(w.k(ctx, "get", "secret", "mandate-consumer", "-o", "jsonpath={.data.api-token}"))
	set := func(ctx context.Context, value string) error {
		_, err := w.k(ctx, "patch", "secret", "mandate-consumer", "-p", fmt.Sprintf(`{"data":{"api-token":%q}}`, value))
		return err
	}
	defer func() { _ = set(context.WithoutCancel(ctx), right) }() // again, in case of an error below
	// Long enough to be a secret: a program with a shorter one does not start.
	must(set(ctx, base64.StdEncoding.EncodeToString([]byte("wrong-secret"))))
	get(w.k(ctx, "delete", "pod", "-l", "app.kubernetes.io/name=mandate-consumer", "--wait"))
	b := &batch{name: "token"}
	// Two: one request that is refused alone may itself be what is wrong.
	must(errors.Join(w.enroll(ctx, b), w.enroll(ctx, b)))
	p := get(w.waitUnready(ctx, "mandate-consumer", "mandate service", "401"))
	began := time.Now()
	must(set(ctx, right))
	must(w.waitRecovered(ctx, "mandate-consumer", p, 3*time.Minute))
	w.logf("ready %.0f s after the Secret was corrected", time.Since(began).Seconds())
	return w.succeed(ctx, b, 2*time.Minute)
}
