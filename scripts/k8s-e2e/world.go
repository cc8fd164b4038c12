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

// world is the cluster with everything deployed, and those around it: who publishes, who reads, the sandbox.
type world struct {
	*cluster
	tree  string
	host  string // this process, as the machine knows it
	began time.Time

	producer, subscriber, provisioner jetstream.JetStream
}

const (
	namespace = "errand"
	sandbox   = "http://sandbox.errand.svc.cluster.local:8085/_sandbox"
	broker    = "nats://nats.errand.svc.cluster.local:4222"
)

// consumers are the programs that take requests.
var consumers = []string{"mandate-consumer", "mail-consumer"}

// say prints what has come so far.
func (w *world) say(format string, args ...any) {
	fmt.Printf("%6.1fs  %s\n", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// k is kubectl in the namespace.
func (w *world) k(ctx context.Context, args ...string) (string, error) {
	return w.kubectl(ctx, append([]string{"-n", namespace}, args...)...)
}

// apply applies an overlay and gives what was done with each object.
func (w *world) apply(ctx context.Context, overlay string) (string, error) {
	return w.kubectl(ctx, "apply", "-k", filepath.Join(w.tree, "deploy/k8s/overlays", overlay))
}

// settled waits until every pod that a Deployment wants is there and ready, and no other.
func (w *world) settled(ctx context.Context, patience time.Duration) error {
	return until(ctx, patience, func(ctx context.Context) error {
		var list struct {
			Items []struct {
				Metadata struct{ Name string }
				Spec     struct{ Replicas int }
				Status   struct{ Replicas, ReadyReplicas, UpdatedReplicas, AvailableReplicas int }
			}
		}
		if err := w.read(ctx, &list, "get", "deployments"); err != nil {
			return err
		}
		for _, d := range list.Items {
			if s := d.Status; s.Replicas != d.Spec.Replicas || s.ReadyReplicas != d.Spec.Replicas || s.UpdatedReplicas != d.Spec.Replicas || s.AvailableReplicas != d.Spec.Replicas {
				return fmt.Errorf("%s: want %d pods, status %+v", d.Metadata.Name, d.Spec.Replicas, s)
			}
		}
		return w.gone(ctx)
	})
}

// gone is an error while a pod is on its way out.
func (w *world) gone(ctx context.Context) error {
	all, err := w.pods(ctx, "")
	for _, p := range all {
		if err == nil && p.Metadata.DeletionTimestamp != "" {
			err = fmt.Errorf("%s is still ending", p.Metadata.Name)
		}
	}
	return err
}

// read gives what kubectl shows as JSON.
func (w *world) read(ctx context.Context, into any, args ...string) error {
	out, err := w.k(ctx, append(args, "-o", "json")...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

// pod is what is asked of one.
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

// is tells whether a condition holds.
func (p pod) is(condition string) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == condition {
			return c.Status == "True"
		}
	}
	return false
}

// pods are those of a program; of all Deployments with "".
func (w *world) pods(ctx context.Context, program string) ([]pod, error) {
	selector := "app.kubernetes.io/part-of=errand,!batch.kubernetes.io/job-name"
	if program != "" {
		selector += ",app.kubernetes.io/name=" + program
	}
	var list struct{ Items []pod }
	err := w.read(ctx, &list, "get", "pods", "-l", selector)
	return list.Items, err
}

// one is the only pod of a program.
func (w *world) one(ctx context.Context, program string) (pod, error) {
	all, err := w.pods(ctx, program)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%s has %d pods, want 1", program, len(all))
	}
	if err != nil {
		return pod{}, err
	}
	return all[0], nil
}

// page is one of a pod's pages, asked by way of the API server as somebody on call would.
func (w *world) page(ctx context.Context, pod, path string) (status int, body string, err error) {
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

// replicas is how many pods a program is to have.
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
