//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// world is the cluster with everything deployed, and the clients around it.
type world struct {
	*local
	progress
	tree string

	sandbox               string // URL
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
	all, err := w.pods(ctx, "")
	for _, p := range all {
		if err == nil && p.Metadata.DeletionTimestamp != "" {
			err = fmt.Errorf("%s is still being stopped", p.Metadata.Name)
		}
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

// pod has the needed fields of a pod.
type pod struct {
	Metadata struct{ Name, UID, DeletionTimestamp string }
	Spec     struct{ NodeName string }
	Status   struct {
		Conditions        []struct{ Type, Status string }
		ContainerStatuses []struct{ RestartCount int }
	}
}

// hasCondition reports whether a condition is true.
func (p pod) hasCondition(condition string) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == condition {
			return c.Status == "True"
		}
	}
	return false
}

// pods returns the pods of a program, or for "" the pods of all Deployments.
func (w *world) pods(ctx context.Context, program string) ([]pod, error) {
	selector := "app.kubernetes.io/part-of=errand,!batch.kubernetes.io/job-name"
	if program != "" {
		selector += ",app.kubernetes.io/name=" + program
	}
	var list struct{ Items []pod }
	err := w.getJSON(ctx, &list, "get", "pods", "-l", selector)
	return list.Items, err
}

// onlyPod returns the only pod of a program.
func (w *world) onlyPod(ctx context.Context, program string) (pod, error) {
	all, err := w.pods(ctx, program)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%s has %d pods, want 1", program, len(all))
	}
	if err != nil {
		return pod{}, err
	}
	return all[0], nil
}

// page gets one of a pod's pages.
func (w *world) page(ctx context.Context, pod, path string) (status int, body string, err error) {
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	address, err := w.reach(ctx, "pod/"+pod, 8080)
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, strings.TrimSpace(string(text)), err
}

// replicas is how many pods the mandate consumer should have.
func (w *world) replicas(ctx context.Context) (int, error) {
	return w.number(ctx, "deployment", "mandate-consumer", "{.spec.replicas}")
}

// number is a field of an object.
func (w *world) number(ctx context.Context, kind, name, path string) (n int, err error) {
	text, err := w.k(ctx, "get", kind, name, "-o", "jsonpath="+path)
	if err == nil {
		_, err = fmt.Sscan(text, &n)
	}
	return n, err
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
