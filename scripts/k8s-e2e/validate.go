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
type validate struct {
	place
	Check bool `help:"Only fail if anything would have to be built or installed first."`
}

// Run checks that every overlay and component is accepted without a warning, and that wrong ones are refused.
func (v *validate) Run(ctx context.Context) (err error) {
	defer failed(&err)
	needs("etcd")
	if v.Check {
		for _, c := range commands[:toValidate] {
			if missing(v.binaryDir(), c.name) {
				return fmt.Errorf("not built yet: %s; `go run -C scripts/k8s-e2e . validate` does", c.name)
			}
		}
		return nil
	}
	bin := v.binaries(ctx, toValidate)
	dir := get(os.MkdirTemp("", "errand-validate-"))
	defer func() { _ = os.RemoveAll(dir) }()
	w := &world{tree: tree(), progress: progress{time.Now()}}
	w.local = newLocal(ctx, dir, bin, "127.0.0.1")
	defer w.kill()
	w.logf("API server ready")
	w.define(ctx)
	w.logf("kinds of KEDA, Prometheus and the Gateway API defined")
	all := w.renderings(ctx)
	for _, r := range all {
		if refused := w.dryRun(ctx, r.yaml); refused != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", r.name, refused))
			continue
		}
		w.logf("%-24s accepted, %d objects", r.name, strings.Count(r.yaml, "\nkind: "))
	}
	for _, broken := range negativeControls {
		refused := w.dryRun(ctx, strings.Replace(all[0].yaml, broken.right, broken.wrong, 1))
		if refused == nil || !strings.Contains(refused.Error(), broken.says) {
			err = errors.Join(err, fmt.Errorf("control: %q was not refused as expected (%q)", broken.wrong, broken.says), refused)
			continue
		}
		w.logf("%q is refused, as expected", broken.wrong)
	}
	return err
}

// define creates the namespace and the kinds that do not belong to Kubernetes.
func (w *world) define(ctx context.Context) {
	definitions := filepath.Join(module(ctx, operator), "example/prometheus-operator-crd")
	const namespace = `{apiVersion: v1, kind: Namespace, metadata: {name: errand, labels: {pod-security.kubernetes.io/warn: restricted}}}`
	get(w.kubectlWith(ctx, namespace, "apply", "--server-side", "-f", "-"))
	get(w.kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(module(ctx, keda), "config/crd")))
	get(w.kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(definitions, "monitoring.coreos.com_podmonitors.yaml"),
		"-f", filepath.Join(definitions, "monitoring.coreos.com_prometheusrules.yaml"),
		"-f", filepath.Join(module(ctx, gateway), "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml")))
	get(w.kubectl(ctx, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"))
}

// rendering is kustomize's output for an overlay, or for the base with one component and those that go before it.
type rendering struct{ name, yaml string }

func (w *world) renderings(ctx context.Context) (out []rendering) {
	manifests := filepath.Join(w.tree, "deploy/k8s")
	overlays := get(filepath.Glob(filepath.Join(manifests, "overlays/*/kustomization.yaml")))
	components := get(filepath.Glob(filepath.Join(manifests, "components/*/kustomization.yaml")))
	if len(overlays) == 0 || len(components) == 0 {
		must(errors.New("no overlay or no component in " + manifests))
	}
	for _, file := range append(overlays, components...) {
		dir := filepath.Dir(file)
		name := get(filepath.Rel(manifests, dir))
		if filepath.Dir(name) == "components" {
			dir = w.withComponent(dir, components)
		}
		out = append(out, rendering{name, "\n" + get(w.kubectl(ctx, "kustomize", dir))})
	}
	return out
}

// withComponent creates a kustomization of the base with a component, and returns its directory. A component goes after
// those whose names its own begins with.
func (w *world) withComponent(component string, all []string) string {
	dir := w.path("with-" + filepath.Base(component))
	must(os.MkdirAll(dir, 0o750))
	var components []string
	for _, file := range all {
		if other := filepath.Dir(file); other == component || strings.HasPrefix(component, other+"-") {
			components = append(components, get(filepath.Rel(dir, other)))
		}
	}
	must(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), fmt.Appendf(nil, "namespace: errand\nresources: [%s]\ncomponents: [%s]\n",
		get(filepath.Rel(dir, filepath.Join(w.tree, "deploy/k8s/base"))), strings.Join(components, ", ")), 0o600))
	return dir
}

// dryRun asks the API server whether it would accept these objects.
func (w *world) dryRun(ctx context.Context, yaml string) error {
	_, err := w.kubectlWith(ctx, yaml, "apply", "--server-side", "--dry-run=server", "--warnings-as-errors", "-f", "-")
	return err
}

// negativeControls are changes that a server must refuse, and the expected error.
var negativeControls = []struct{ right, wrong, says string }{
	{"runAsNonRoot: true", "runAsNonRoot: false", "would violate PodSecurity"},
	{"\n  maxUnavailable: 1\n", "\n  maxUnavailable: 1\n  minAvailable: 1\n", "minAvailable and maxUnavailable cannot be both set"},
	{"terminationGracePeriodSeconds:", "terminationGraceSeconds:", "field not declared in schema"},
}
