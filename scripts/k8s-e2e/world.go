//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// world is the cluster with everything deployed, and the clients around it.
type world struct {
	*local
	progress
	tree string

	producer, provisioner jetstream.JetStream

	passwords map[string]string // of the NATS users of the production overlay
	kept      *batch            // was run before the backup
}

const namespace = "errand"

// consumers are the programs that process requests.
var consumers = []string{"mandate-consumer", "mail-consumer"}

// progress is printed with the time since it began.
type progress struct{ began time.Time }

func (p progress) logf(format string, args ...any) {
	fmt.Printf("%6.1fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// k is kubectl in the namespace.
func (w *world) k(ctx context.Context, args ...string) (string, error) {
	return w.kubectl(ctx, append([]string{"-n", namespace}, args...)...)
}

// apply applies an overlay and returns kubectl's output.
func (w *world) apply(ctx context.Context, overlay string) (string, error) {
	return w.kubectl(ctx, "apply", "-k", filepath.Join(w.tree, "deploy/k8s/overlays", overlay))
}

// waitSettled waits until exactly the pods that the Deployments want exist, and all are ready.
func (w *world) waitSettled(ctx context.Context, timeout time.Duration) error {
	return until(ctx, timeout, func(ctx context.Context) error {
		var list struct {
			Items []struct {
				Metadata struct{ Name string }
				Spec     struct{ Replicas int }
				Status   struct{ Replicas, ReadyReplicas, UpdatedReplicas, AvailableReplicas int }
			}
		}
		if err := w.getJSON(ctx, &list, "get", "deployments"); err != nil {
			return err
		}
		for _, d := range list.Items {
			if s := d.Status; s.Replicas != d.Spec.Replicas || s.ReadyReplicas != d.Spec.Replicas || s.UpdatedReplicas != d.Spec.Replicas ||
				s.AvailableReplicas != d.Spec.Replicas {
				return fmt.Errorf("%s: want %d pods, status %+v", d.Metadata.Name, d.Spec.Replicas, s)
			}
		}
		return w.checkNoneEnding(ctx)
	})
}

// checkNoneEnding returns an error while a pod is being stopped.
func (w *world) checkNoneEnding(ctx context.Context) error {
	ending, err := w.k(ctx, "get", "pods", "-l", "app.kubernetes.io/part-of=errand,!batch.kubernetes.io/job-name", "-o",
		"jsonpath={.items[?(@.metadata.deletionTimestamp)].metadata.name}")
	if err == nil && ending != "" {
		err = fmt.Errorf("still being stopped: %s", ending)
	}
	return err
}

// getJSON decodes kubectl's JSON output.
func (w *world) getJSON(ctx context.Context, into any, args ...string) error {
	out, err := w.k(ctx, append(args, "-o", "json")...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
