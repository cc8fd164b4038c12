// Command schemas makes the JSON schemas beside it again, of the kinds that the manifests use:
//
//	go run ./schemas
//
// They are taken from the modules of Kubernetes, KEDA and the Prometheus operator, which the module proxy must have, without
// their descriptions. To move to a newer release, change its number below.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"errand/internal/programs"
)

const (
	kubernetes = "k8s.io/kubernetes@v1.36.3"
	keda       = "github.com/kedacore/keda/v2@v2.21.0"
	prometheus = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
)

// builtin are Kubernetes' own kinds, by their definition.
var builtin = []string{
	"io.k8s.api.core.v1.Namespace",
	"io.k8s.api.core.v1.ServiceAccount",
	"io.k8s.api.core.v1.ConfigMap",
	"io.k8s.api.core.v1.Secret",
	"io.k8s.api.core.v1.Service",
	"io.k8s.api.apps.v1.Deployment",
	"io.k8s.api.batch.v1.Job",
	"io.k8s.api.policy.v1.PodDisruptionBudget",
	"io.k8s.api.networking.v1.NetworkPolicy",
	"io.k8s.api.networking.v1.Ingress",
	"io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
	"io.k8s.api.scheduling.v1.PriorityClass",
}

// custom are kinds of others, by module and file.
var custom = []struct{ module, file string }{
	{keda, "config/crd/bases/keda.sh_scaledobjects.yaml"},
	{keda, "config/crd/bases/keda.sh_triggerauthentications.yaml"},
	{prometheus, "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml"},
	{prometheus, "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"},
}

type object = map[string]any

func main() {
	programs.Main("schemas", "Makes the JSON schemas of the kinds that the manifests use.", new(generate))
}

type generate struct {
	Dir string `arg:"" default:"schemas" help:"Where to."`
}

// Run writes a file for each kind.
func (g *generate) Run(context.Context) error {
	var api struct{ Definitions map[string]object }
	if err := read(kubernetes, "api/openapi-spec/swagger.json", &api); err != nil {
		return err
	}
	// The server takes numbers too.
	text, number := object{"type": "string"}, object{"type": "number"}
	api.Definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = object{"oneOf": []any{text, number}}
	for _, name := range builtin {
		root, ok := api.Definitions[name]
		if !ok {
			return fmt.Errorf("%s has no %s", kubernetes, name)
		}
		kind := root["x-kubernetes-group-version-kind"].([]any)[0].(object)
		root["required"] = []string{"apiVersion", "kind", "metadata"}
		root["definitions"] = closure(api.Definitions, root)
		if err := write(g.Dir, kind["kind"], kind["group"], kind["version"], root); err != nil {
			return err
		}
	}
	for _, c := range custom {
		var crd struct {
			Spec struct {
				Group    string
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema struct{ OpenAPIV3Schema object }
				}
			}
		}
		if err := read(c.module, c.file, &crd); err != nil {
			return err
		}
		for _, v := range crd.Spec.Versions {
			v.Schema.OpenAPIV3Schema["properties"].(object)["metadata"] = object{"type": "object"}
			if err := write(g.Dir, crd.Spec.Names.Kind, crd.Spec.Group, v.Name, v.Schema.OpenAPIV3Schema); err != nil {
				return err
			}
		}
	}
	return nil
}

// read takes a file, JSON or YAML, out of a module.
func read(module, file string, into any) error {
	out, err := exec.Command("go", "mod", "download", "-json", module).Output() //nolint:gosec // one of the above
	if err != nil {
		return fmt.Errorf("go mod download %s: %w: %s", module, err, out)
	}
	var at struct{ Dir string }
	if err := json.Unmarshal(out, &at); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(at.Dir, file))
	if err != nil {
		return err
	}
	return yaml.Unmarshal(text, into)
}

// closure are the definitions that a schema needs, directly or not.
func closure(all map[string]object, schema any) object {
	found := object{}
	var walk func(any)
	walk = func(node any) {
		switch node := node.(type) {
		case object:
			if ref, ok := node["$ref"].(string); ok {
				if name := strings.TrimPrefix(ref, "#/definitions/"); found[name] == nil {
					found[name] = all[name]
					walk(all[name])
				}
			}
			for _, k := range slices.Sorted(maps.Keys(node)) {
				walk(node[k])
			}
		case []any:
			for _, n := range node {
				walk(n)
			}
		}
	}
	walk(schema)
	return found
}

// write keeps a schema under the name by which kubeconform looks for it.
func write(dir string, kind, group, version any, schema object) error {
	name := fmt.Sprintf("%v-%v-%v.json", kind, strings.Split(fmt.Sprint(group), ".")[0], version)
	text, err := json.Marshal(strict(schema))
	if err != nil {
		return err
	}
	path := filepath.Join(dir, strings.ToLower(strings.Replace(name, "--", "-", 1)))
	return os.WriteFile(path, append(text, '\n'), 0o644) //nolint:gosec // a file of the source
}

// strict is a schema that knows all its fields, in the words of JSON schema.
func strict(s object) object {
	if s["x-kubernetes-int-or-string"] == true || s["format"] == "int-or-string" {
		return object{"oneOf": []any{object{"type": "string"}, object{"type": "integer"}}}
	}
	out := object{}
	for key, value := range s {
		switch {
		case key == "description", key == "example", strings.HasPrefix(key, "x-kubernetes-"):
		case key == "properties", key == "definitions":
			named := object{}
			for name, sub := range value.(object) {
				named[name] = strict(sub.(object))
			}
			out[key] = named
		case key == "items", key == "additionalProperties":
			if sub, ok := value.(object); ok {
				value = strict(sub)
			}
			fallthrough
		default:
			out[key] = value
		}
	}
	if out["properties"] != nil && out["additionalProperties"] == nil && s["x-kubernetes-preserve-unknown-fields"] != true {
		out["additionalProperties"] = false
	}
	return out
}
