// Package check renders every overlay and component as `kubectl apply -k` does, and holds what
// comes out against the schemas of the API, the rules of these manifests, and the real programs.
// The API server itself and a real cluster are not asked here.
//
//	kustomization ─► render ─► set ─► complaints: schema, pods, references, network, …
//	                            └──► the programs: do they know each name, do they take each value
package check

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// root is deploy/k8s.
const root = ".."

// set is what a kustomization renders to, in order, and typed where a check looks inside.
type set struct {
	raw         []map[string]any
	namespaces  []*corev1.Namespace
	accounts    []*corev1.ServiceAccount
	configMaps  []*corev1.ConfigMap
	secrets     []*corev1.Secret
	services    []*corev1.Service
	deployments []*appsv1.Deployment
	jobs        []*batchv1.Job
	cronJobs    []*batchv1.CronJob
	budgets     []*policyv1.PodDisruptionBudget
	policies    []*networkingv1.NetworkPolicy
}

// add takes one object in, typed if a check looks inside it.
func (s *set) add(text []byte) error {
	var raw map[string]any
	if err := yaml.Unmarshal(text, &raw); err != nil {
		return err
	}
	s.raw = append(s.raw, raw)
	switch raw["kind"] {
	case "Namespace":
		return keep(&s.namespaces, text)
	case "ServiceAccount":
		return keep(&s.accounts, text)
	case "ConfigMap":
		return keep(&s.configMaps, text)
	case "Secret":
		return keep(&s.secrets, text)
	case "Service":
		return keep(&s.services, text)
	case "Deployment":
		return keep(&s.deployments, text)
	case "Job":
		return keep(&s.jobs, text)
	case "CronJob":
		return keep(&s.cronJobs, text)
	case "PodDisruptionBudget":
		return keep(&s.budgets, text)
	case "NetworkPolicy":
		return keep(&s.policies, text)
	}
	return nil
}

func keep[T any](list *[]*T, text []byte) error {
	item := new(T)
	if err := yaml.Unmarshal(text, item); err != nil {
		return err
	}
	*list = append(*list, item)
	return nil
}

// pod is what a Deployment or a Job makes pods of.
type pod struct {
	kind, name string
	template   *corev1.PodTemplateSpec
}

func (p pod) String() string { return p.kind + " " + p.name }

func (p pod) container() *corev1.Container { return &p.template.Spec.Containers[0] }

func (s *set) pods() (list []pod) {
	for _, d := range s.deployments {
		list = append(list, pod{"Deployment", d.Name, &d.Spec.Template})
	}
	for _, j := range s.jobs {
		list = append(list, pod{"Job", j.Name, &j.Spec.Template})
	}
	for _, c := range s.cronJobs {
		list = append(list, pod{"CronJob", c.Name, &c.Spec.JobTemplate.Spec.Template})
	}
	return list
}

// pod returns one by name.
func (s *set) pod(name string) pod {
	for _, p := range s.pods() {
		if p.name == name {
			return p
		}
	}
	panic("no pod template " + name)
}

// render makes what kubectl would apply of an overlay, with these components added in its kustomization.yaml: components/NAME
// where it is, ./NAME as a copy beside that file.
func render(t *testing.T, dir string, components ...string) *set {
	t.Helper()
	return renderEdited(t, func(text string) string { return text }, dir, components...)
}

// renderEdited is render of a copy of the overlay whose kustomization.yaml was edited.
func renderEdited(t *testing.T, edit func(string) string, dir string, components ...string) *set {
	t.Helper()
	from, err := filepath.Abs(filepath.Join(root, dir))
	if err != nil {
		t.Fatal(err)
	}
	at := t.TempDir()
	if err := os.CopyFS(at, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(at, "kustomization.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var k map[string]any
	if err := yaml.Unmarshal([]byte(edit(string(text))), &k); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"resources", "components"} {
		list, _ := k[field].([]any)
		for i, entry := range list {
			if entry := entry.(string); strings.HasPrefix(entry, "../") {
				list[i] = relative(t, at, filepath.Join(from, entry))
			}
		}
		if field == "components" {
			for _, c := range components {
				if c, copied := strings.CutPrefix(c, "./"); copied {
					if err := os.CopyFS(filepath.Join(at, c), os.DirFS(filepath.Join(root, "components", c))); err != nil {
						t.Fatal(err)
					}
					list = append(list, c)
					continue
				}
				list = append(list, relative(t, at, filepath.Join(from, "../..", c)))
			}
		}
		k[field] = list
	}
	if text, err = yaml.Marshal(k); err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy // as kubectl does
	objects, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), at)
	if err != nil {
		t.Fatalf("%s %v: %v", dir, components, err)
	}
	s := &set{}
	for _, o := range objects.Resources() {
		text, err := o.AsYAML()
		if err == nil {
			err = s.add(text)
		}
		if err != nil {
			t.Fatalf("%s %v: %s %s: %v", dir, components, o.GetKind(), o.GetName(), err)
		}
	}
	return s
}

// relative is a path as kustomize takes it, which takes no absolute ones.
func relative(t *testing.T, from, to string) string {
	t.Helper()
	path, err := filepath.Rel(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// everything is each overlay, and each component in an overlay that lacks it.
func everything(t *testing.T) map[string]*set {
	t.Helper()
	all := map[string]*set{}
	for _, overlay := range directories(t, "overlays") {
		all[overlay] = render(t, overlay)
	}
	for _, component := range directories(t, "components") {
		for _, overlay := range []string{"overlays/sandbox", "overlays/production"} {
			all[fmt.Sprintf("%s+%s", overlay, filepath.Base(component))] = render(t, overlay, inOrder(t, component)...)
		}
	}
	return all
}

// inOrder is a component behind those that it is added to, whose names its own begins with.
func inOrder(t *testing.T, component string) (list []string) {
	t.Helper()
	for _, c := range directories(t, "components") {
		if c == component || strings.HasPrefix(component, c+"-") {
			list = append(list, c)
		}
	}
	return list
}

// elsewhere is each component as a copy in a copy of an overlay, outside of this tree and under another namespace.
func elsewhere(t *testing.T) map[string]*set {
	t.Helper()
	all := map[string]*set{}
	other := func(text string) string {
		return strings.ReplaceAll(text, "\nnamespace: errand\n", "\nnamespace: staging\n")
	}
	for _, overlay := range []string{"overlays/sandbox", "overlays/production"} {
		for _, component := range directories(t, "components") {
			if overlay == "overlays/sandbox" && component == "components/keda" {
				continue // sandbox-keda is that
			}
			var copies []string
			for _, c := range inOrder(t, component) {
				copies = append(copies, "./"+filepath.Base(c))
			}
			all[fmt.Sprintf("%s+%s", overlay, filepath.Base(component))] = renderEdited(t, other, overlay, copies...)
		}
	}
	all["overlays/sandbox-keda"] = renderEdited(t, other, "overlays/sandbox-keda")
	return all
}

// directories are those below dir that can be rendered.
func directories(t *testing.T, dir string) (list []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, dir, "*", "kustomization.yaml"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no kustomization in %s: %v", dir, err)
	}
	for _, f := range found {
		path, err := filepath.Rel(root, filepath.Dir(f))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, path)
	}
	return list
}

// forSite are the objects that production leaves to the site: the Secrets as its example has
// them, and the ConfigMap of the authority.
func forSite(t *testing.T, s *set) *set {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "overlays/production/secrets.example.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	given := &set{configMaps: []*corev1.ConfigMap{{Data: map[string]string{"ca.crt": authority(t)}}}}
	given.configMaps[0].Name = "nats-ca"
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		if err := given.add([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	for _, secret := range given.secrets {
		secret.Data = map[string][]byte{}
		for key, value := range secret.StringData {
			// A placeholder is refused where a secret must be long, and so is never in use.
			secret.Data[key] = []byte(strings.ReplaceAll(value, "CHANGE-ME", "what-the-site-has-in-its-place-for-real"))
		}
	}
	whole := *s
	if len(s.secrets) == 0 {
		whole.secrets = given.secrets
	}
	whole.configMaps = slices.Concat(s.configMaps, given.configMaps)
	return &whole
}
