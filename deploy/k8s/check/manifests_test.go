package check

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"sigs.k8s.io/yaml"
)

// complain takes what is wrong, as a sentence that names the object.
type complain func(format string, args ...any)

// checks are all rules; breakages_test.go has at least one manifest that breaks each.
var checks = []func(*set, complain){schema, namespace, labelled,
	security, identity, images, resources, probes, stops, replicas, provisioning,
	references, secretFiles, selectors, network, knownSettings}

func (s *set) complaints() (list []string) {
	for _, check := range checks {
		check(s, func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) })
	}
	return list
}

func TestEveryOverlayAndComponentHolds(t *testing.T) {
	for name, s := range everything(t) {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "production") {
				s = forSite(t, s)
			}
			for _, complaint := range s.complaints() {
				t.Error(complaint)
			}
		})
	}
}

// TestASecondInstallationIsItsOwn: in another namespace everything holds too, and nothing leads to the first one.
func TestASecondInstallationIsItsOwn(t *testing.T) {
	for name, s := range elsewhere(t) {
		t.Run(name, func(t *testing.T) {
			for _, o := range s.raw {
				text, err := yaml.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				if found := regexp.MustCompile(`.*(\berrand\.svc|NAMESPACE|namespace: errand$).*`).Find(text); found != nil {
					t.Errorf("%s leads to the namespace errand: %s", named(o), found)
				}
			}
			if strings.Contains(name, "production") {
				s = forSite(t, s)
			}
			for _, complaint := range s.complaints() {
				t.Error(complaint)
			}
		})
	}
}

// programs take requests or read the log; everything else is around them. optional are the programs of components.
var (
	programs = []string{"mandate-consumer", "mail-consumer", "log-poller"}
	optional = []string{"transaction-poller"}
)

func isProgram(p pod) bool {
	return slices.Contains(programs, p.name) || slices.Contains(optional, p.name)
}

// namespace: it comes first, since things are applied in order, holds all, and is restricted.
func namespace(s *set, say complain) {
	if s.raw[0]["kind"] != "Namespace" || len(s.namespaces) != 1 {
		say("the Namespace is not the first object, or not the only one")
		return
	}
	ns := s.namespaces[0]
	for _, mode := range []string{"enforce", "audit", "warn"} {
		if ns.Labels["pod-security.kubernetes.io/"+mode] != "restricted" {
			say("Namespace %s: does not %s restricted", ns.Name, mode)
		}
	}
	for _, o := range s.raw[1:] {
		if o["kind"] == "PriorityClass" { // of the cluster
			continue
		}
		if meta := o["metadata"].(map[string]any); meta["namespace"] != ns.Name {
			say("%s: is in namespace %v, not in %s", named(o), meta["namespace"], ns.Name)
		}
	}
}

// labelled: what the Kubernetes documentation recommends of each program, none of it but the name in a selector, which cannot change.
func labelled(s *set, say complain) {
	for _, d := range s.deployments {
		for _, label := range []string{"name", "component", "part-of", "version", "managed-by"} {
			of := "app.kubernetes.io/" + label
			if isErrands := d.Labels["app.kubernetes.io/component"] != ""; isErrands && d.Spec.Template.Labels[of] == "" {
				say("Deployment %s: its pods have no label %s", d.Name, of)
			}
		}
		if len(d.Spec.Selector.MatchLabels) != 1 {
			say("Deployment %s: it selects by more than its name", d.Name)
		}
	}
}

var image = regexp.MustCompile(`^((localhost|REGISTRY)/errand/` +
	`(mandate-consumer|mail-consumer|log-poller|transaction-poller|callback-receiver|console|errand)|` +
	`nats|natsio/nats-box|oauth2-proxy):[A-Za-z0-9._-]+$`)

// images: ours, nats and oauth2-proxy, with a tag that stays, and no registry's name.
func images(s *set, say complain) {
	for _, p := range s.pods() {
		for _, c := range p.template.Spec.Containers {
			if !image.MatchString(c.Image) || strings.HasSuffix(c.Image, ":latest") {
				say("%s: image %s", p, c.Image)
			}
			if c.ImagePullPolicy != corev1.PullIfNotPresent {
				say("%s: pulls %s", p, c.ImagePullPolicy)
			}
		}
	}
}

// TestProductionHasAPriority: every pod has the class that the overlay brings, and nobody else gets it.
func TestProductionHasAPriority(t *testing.T) {
	s := render(t, "overlays/production")
	classes := map[string]bool{}
	for _, o := range s.raw {
		if o["kind"] == "PriorityClass" {
			class := as[schedulingv1.PriorityClass](t, o)
			classes[class.Name] = class.Value > 0 && !class.GlobalDefault
		}
	}
	for _, p := range s.pods() {
		if name := p.template.Spec.PriorityClassName; !classes[name] {
			t.Errorf("%s has the priority %q, which is not in %v", p, name, classes)
		}
	}
}

// TestNobodyElseSetsTheNumber: what is scaled has no replicas, or each apply would take back what the scaler did.
func TestNobodyElseSetsTheNumber(t *testing.T) {
	scaled := 0
	for _, overlay := range directories(t, "overlays") {
		s := render(t, overlay)
		for _, o := range s.raw {
			spec, _ := o["spec"].(map[string]any)
			target, _ := spec["scaleTargetRef"].(map[string]any)
			if target == nil {
				continue
			}
			scaled++
			d := find(s.deployments, fmt.Sprint(target["name"]))
			if d == nil || d.Spec.Replicas != nil {
				t.Errorf("%s: %s scales %v, which is not there or has replicas", overlay, named(o), target["name"])
			}
		}
	}
	if scaled == 0 {
		t.Error("nothing is scaled: is the manifest read rightly?")
	}
}

// TestNoRegistryIsNamed: where images come from is the site's.
func TestNoRegistryIsNamed(t *testing.T) {
	registry := regexp.MustCompile(`docker\.io|gcr\.io|ghcr\.io|quay\.io|registry\.k8s\.io|public\.ecr`)
	if err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "go.sum") {
			return err
		}
		text, err := os.ReadFile(path)
		if found := registry.Find(text); found != nil {
			t.Errorf("%s names %s", path, found)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
