//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The modules with the definitions of the kinds that are not Kubernetes' own: ScaledObject; PodMonitor and PrometheusRule; HTTPRoute.
const (
	keda     = "github.com/kedacore/keda/v2@v2.21.0"
	operator = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
	gateway  = "sigs.k8s.io/gateway-api@v1.4.0"
)

// validate is the command that only asks an API server.
type validate struct{ place }

// validation is an API server that is asked.
type validation struct {
	*local
	progress
	tree string
}

// Run checks that every overlay and component is accepted without a warning, and that wrong ones are refused.
func (v *validate) Run(ctx context.Context) error {
	if err := installed("etcd"); err != nil {
		return err
	}
	bin, err := v.binaries(ctx, toValidate)
	if err != nil {
		return err
	}
	root, err := tree()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "errand-validate-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	w := &validation{progress: progress{time.Now()}, tree: root}
	if w.local, err = newLocal(ctx, dir, bin, "127.0.0.1"); err != nil {
		return err
	}
	defer w.kill()
	w.logf("API server ready")
	if err := w.define(ctx); err != nil {
		return err
	}
	w.logf("kinds of KEDA, Prometheus and the Gateway API defined")
	all, err := w.renderings(ctx)
	if err != nil {
		return err
	}
	var failed error
	for _, r := range all {
		if err := w.dryRun(ctx, r.yaml); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", r.name, err))
			w.logf("%-24s REFUSED", r.name)
			continue
		}
		w.logf("%-24s accepted, %d objects", r.name, strings.Count(r.yaml, "\nkind: "))
	}
	for _, broken := range negativeControls {
		text := broken.spoil(all[0].yaml)
		if text == all[0].yaml {
			return fmt.Errorf("%s: changes nothing in %s; fix the control", broken.name, all[0].name)
		}
		err := w.dryRun(ctx, text)
		if err == nil || !strings.Contains(err.Error(), broken.says) {
			failed = errors.Join(failed, fmt.Errorf("control: %s was not refused as expected (%q)", broken.name, broken.says), err)
			continue
		}
		w.logf("%-24s refused, as expected", broken.name)
	}
	return failed
}

// define creates the namespace and the kinds that do not belong to Kubernetes.
func (w *validation) define(ctx context.Context) error {
	scaling, noKEDA := module(ctx, keda)
	monitoring, noOperator := module(ctx, operator)
	routes, noGateway := module(ctx, gateway)
	if err := errors.Join(noKEDA, noOperator, noGateway); err != nil {
		return err
	}
	definitions := filepath.Join(monitoring, "example/prometheus-operator-crd")
	const namespace = `{apiVersion: v1, kind: Namespace, metadata: {name: errand, labels: {pod-security.kubernetes.io/warn: restricted}}}`
	if _, err := w.kubectlWith(ctx, namespace, "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"apply", "--server-side", "-k", filepath.Join(scaling, "config/crd")},
		{"apply", "--server-side", "-f", filepath.Join(definitions, "monitoring.coreos.com_podmonitors.yaml"),
			"-f", filepath.Join(definitions, "monitoring.coreos.com_prometheusrules.yaml"),
			"-f", filepath.Join(routes, "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml")},
		{"wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"},
	} {
		if _, err := w.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// rendering is kustomize's output for an overlay, or for the base with one component and those that go before it.
type rendering struct{ name, yaml string }

func (w *validation) renderings(ctx context.Context) (out []rendering, err error) {
	manifests := filepath.Join(w.tree, "deploy/k8s")
	overlays, err := filepath.Glob(filepath.Join(manifests, "overlays/*/kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	components, err := filepath.Glob(filepath.Join(manifests, "components/*/kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	if len(overlays) == 0 {
		return nil, errors.New("no overlay in " + manifests)
	}
	for _, file := range append(overlays, components...) {
		dir := filepath.Dir(file)
		name, err := filepath.Rel(manifests, dir)
		if err != nil {
			return nil, err
		}
		if filepath.Base(filepath.Dir(dir)) == "components" {
			if dir, err = w.withComponent(dir, components); err != nil {
				return nil, err
			}
		}
		yaml, err := w.kubectl(ctx, "kustomize", dir)
		if err != nil {
			return nil, err
		}
		out = append(out, rendering{name: name, yaml: "\n" + yaml})
	}
	return out, nil
}

// withComponent creates a kustomization of the base with a component, and returns its directory. A component goes after
// those whose names its own begins with.
func (w *validation) withComponent(component string, all []string) (string, error) {
	dir := w.path("with-" + filepath.Base(component))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	base, err := filepath.Rel(dir, filepath.Join(w.tree, "deploy/k8s/base"))
	if err != nil {
		return "", err
	}
	var components []string
	for _, file := range all {
		if other := filepath.Dir(file); other == component || strings.HasPrefix(component, other+"-") {
			path, err := filepath.Rel(dir, other)
			if err != nil {
				return "", err
			}
			components = append(components, path)
		}
	}
	return dir, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), fmt.Appendf(nil,
		"namespace: errand\nresources: [%s]\ncomponents: [%s]\n", base, strings.Join(components, ", ")), 0o600)
}

// dryRun asks the API server whether it would accept these objects.
func (w *validation) dryRun(ctx context.Context, yaml string) error {
	_, err := w.kubectlWith(ctx, yaml, "apply", "--server-side", "--dry-run=server", "--warnings-as-errors", "-f", "-")
	return err
}

// negativeControls are changes that a server must refuse, and the expected error.
var negativeControls = []struct {
	name, says string
	spoil      func(yaml string) string
}{
	{"a pod that may be root", "would violate PodSecurity", func(yaml string) string {
		return strings.Replace(yaml, "runAsNonRoot: true", "runAsNonRoot: false", 1)
	}},
	{"a budget of two kinds", "minAvailable and maxUnavailable cannot be both set", func(yaml string) string {
		return strings.Replace(yaml, "\n  maxUnavailable: 1\n", "\n  maxUnavailable: 1\n  minAvailable: 1\n", 1)
	}},
	{"an unknown field", "field not declared in schema", func(yaml string) string {
		return strings.Replace(yaml, "terminationGracePeriodSeconds:", "terminationGraceSeconds:", 1)
	}},
}
