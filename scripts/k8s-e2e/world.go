//go:build linux

package main

import (
	"context"
	"crypto/tls"
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
	*cluster
	tree  string
	host  string // process id of this process outside its namespace
	began time.Time

	producer, subscriber, provisioner jetstream.JetStream
}

const (
	namespace = "errand"
	sandbox   = "http://sandbox.errand.svc.cluster.local:8085/_sandbox"
	broker    = "nats://nats.errand.svc.cluster.local:4222"
)

// consumers are the programs that process requests.
var consumers = []string{"mandate-consumer", "mail-consumer"}

// logf prints progress.
func (w *world) logf(format string, args ...any) {
	fmt.Printf("%6.1fs  %s\n", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
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
			if s := d.Status; s.Replicas != d.Spec.Replicas || s.ReadyReplicas != d.Spec.Replicas || s.UpdatedReplicas != d.Spec.Replicas || s.AvailableReplicas != d.Spec.Replicas {
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
	Status   struct {
		Conditions        []struct{ Type, Status string }
		ContainerStatuses []struct {
			ContainerID  string
			RestartCount int
		}
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

// pods returns the pods of a program, or those of all Deployments for "".
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

// proxyGet gets one of a pod's pages through the API server.
func (w *world) proxyGet(ctx context.Context, pod, path string) (status int, body string, err error) {
	cert, err := tls.LoadX509KeyPair(w.pki("admin.crt"), w.pki("admin.key"))
	if err != nil {
		return 0, "", err
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, RootCAs: w.ca.pool()}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url()+"/api/v1/namespaces/"+namespace+"/pods/"+pod+":8080/proxy"+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, strings.TrimSpace(string(text)), err
}

// replicas is how many pods a program should have.
func (w *world) replicas(ctx context.Context, program string) (n int, err error) {
	text, err := w.k(ctx, "get", "deployment", program, "-o", "jsonpath={.spec.replicas}")
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
