//go:build linux

package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

var kindOf = regexp.MustCompile(`(?m)^kind: (\S+)$`)

// documents returns the documents of a YAML stream with a wanted kind.
func documents(yaml string, wanted func(kind string) bool) string {
	var kept []string
	for one := range strings.SplitSeq(yaml, "\n---\n") {
		if kind := kindOf.FindStringSubmatch(one); kind != nil && wanted(kind[1]) {
			kept = append(kept, one)
		}
	}
	return strings.Join(kept, "\n---\n")
}

// startKEDA starts KEDA's operator and metrics adapter as processes. They use the service account that they would have in a
// pod, and so have the permissions of KEDA's own RBAC rules.
func (c *local) startKEDA(ctx context.Context) error {
	module, err := module(ctx, "github.com/kedacore/keda/v2")
	if err != nil {
		return err
	}
	all, err := c.kubectl(ctx, "kustomize", filepath.Join(module, "config/default"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(c.pki("ca.crt"))
	if err != nil {
		return err
	}
	// The API server reaches the adapter on this machine.
	objects := documents(all, func(kind string) bool {
		return kind != "Deployment" && kind != "Service" && kind != "APIService" && kind != "ValidatingWebhookConfiguration"
	}) + fmt.Sprintf(`
---
apiVersion: v1
kind: Service
metadata: {name: keda-metrics-apiserver, namespace: keda}
spec: {type: ExternalName, externalName: localhost, ports: [{port: 6443}]}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.external.metrics.k8s.io}
spec:
  service: {name: keda-metrics-apiserver, namespace: keda, port: 6443}
  group: external.metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  caBundle: %s
`, base64.StdEncoding.EncodeToString(ca))
	if _, err := c.kubectlWith(ctx, objects, "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	token, err := c.kubectl(ctx, "create", "token", "keda-operator", "-n", "keda", "--duration", "24h")
	if err != nil {
		return err
	}
	if err := c.ca.kubeconfig(c.config("keda"), c.url(), "token: "+token); err != nil {
		return err
	}
	for from, to := range map[string]string{"ca.crt": "ca.crt", "keda.crt": "tls.crt", "keda.key": "tls.key"} {
		text, err := os.ReadFile(c.pki(from))
		if err != nil {
			return err
		}
		if err := errors.Join(os.MkdirAll(c.path("keda"), 0o700), os.WriteFile(c.path("keda", to), text, 0o600)); err != nil {
			return err
		}
	}
	config, certs := c.config("keda"), c.path("keda")
	env := []string{"KUBECONFIG=" + config, "WATCH_NAMESPACE=", "POD_NAMESPACE=keda", "POD_NAME=keda-operator-0",
		"KEDA_CLUSTER_OBJECT_NAMESPACE=keda"}
	err = errors.Join(
		c.start("keda-operator", env, filepath.Join(c.bin, "keda-operator"), "--kubeconfig="+config, "--cert-dir="+certs,
			"--metrics-bind-address=127.0.0.1:18090", "--health-probe-bind-address=127.0.0.1:18091",
			"--metrics-service-bind-address=127.0.0.1:9666"),
		c.start("keda-adapter", env, filepath.Join(c.bin, "keda-adapter"), "--kubeconfig="+config, "--lister-kubeconfig="+config,
			"--authentication-kubeconfig="+config, "--authorization-kubeconfig="+config, "--bind-address=127.0.0.1",
			"--secure-port=6443", "--port=18092",
			"--cert-dir="+certs, "--tls-cert-file="+filepath.Join(certs, "tls.crt"), "--tls-private-key-file="+filepath.Join(certs, "tls.key"),
			"--client-ca-file="+filepath.Join(certs, "ca.crt"), "--metrics-service-address=localhost:9666"))
	if err != nil {
		return err
	}
	return c.waitFor(ctx, "KEDA's metrics API", 2*time.Minute, func(ctx context.Context) error {
		said, err := c.kubectl(ctx, "get", "apiservice", "v1beta1.external.metrics.k8s.io", "-o",
			`jsonpath={.status.conditions[?(@.type=="Available")]}`)
		if err == nil && !strings.Contains(said, `"status":"True"`) {
			err = errors.New(said)
		}
		return err
	})
}
