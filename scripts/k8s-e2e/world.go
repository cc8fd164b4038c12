//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// world is the cluster with everything deployed, and the clients around it; for validate it is an API server alone.
type world struct {
	*local
	progress
	tree string

	producer, provisioner jetstream.JetStream
}

const namespace = "errand"

// progress is printed with the time since it began.
type progress struct{ began time.Time }

func (p progress) logf(format string, args ...any) {
	fmt.Printf("%6.1fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// k is kubectl in the namespace.
func (w *world) k(ctx context.Context, args ...string) (string, error) {
	return w.kubectl(ctx, append([]string{"-n", namespace}, args...)...)
}

// waitSettled waits until exactly the pods that the Deployments want exist, and all are ready.
func (w *world) waitSettled(ctx context.Context) {
	must(until(ctx, 4*time.Minute, func(ctx context.Context) error {
		var list struct {
			Items []struct {
				Metadata struct{ Name string }
				Spec     struct{ Replicas int }
				Status   struct{ Replicas, ReadyReplicas, UpdatedReplicas, AvailableReplicas int }
			}
		}
		out, err := w.k(ctx, "get", "deployments", "-o", "json")
		if err != nil {
			return err
		}
		must(json.Unmarshal([]byte(out), &list))
		for _, d := range list.Items {
			if s := d.Status; s.Replicas != d.Spec.Replicas || s.ReadyReplicas != d.Spec.Replicas || s.UpdatedReplicas != d.Spec.Replicas ||
				s.AvailableReplicas != d.Spec.Replicas {
				return fmt.Errorf("%s: want %d pods, status %+v", d.Metadata.Name, d.Spec.Replicas, s)
			}
		}
		ending, err := w.k(ctx, "get", "pods", "-l", "app.kubernetes.io/part-of=errand,!batch.kubernetes.io/job-name", "-o",
			"jsonpath={.items[?(@.metadata.deletionTimestamp)].metadata.name}")
		if err == nil && ending != "" {
			err = fmt.Errorf("still being stopped: %s", ending)
		}
		return err
	}))
}
