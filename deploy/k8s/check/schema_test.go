package check

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/yannh/kubeconform/pkg/resource"
	"github.com/yannh/kubeconform/pkg/validator"
)

// schemas has the kinds that the manifests use, of Kubernetes 1.36, KEDA 2.21, the Prometheus operator 0.85 and the Gateway API 1.4,
// without descriptions. For newer ones, take the files of these names, in their strict form, from the collections that kubeconform
// uses: github.com/yannh/kubernetes-json-schema and github.com/datreeio/CRDs-catalog.
var schemas = sync.OnceValues(func() (validator.Validator, error) {
	return validator.New([]string{"schemas/{{.ResourceKind}}{{.KindSuffix}}.json"}, validator.Opts{Strict: true})
})

// schema holds every object against the API's schema of its kind.
func schema(s *set, say complain) {
	v, err := schemas()
	if err != nil {
		say("%v", err)
		return
	}
	for _, o := range s.raw {
		text, err := json.Marshal(o)
		if err != nil {
			say("%v", err)
			continue
		}
		if r := v.ValidateResource(resource.Resource{Bytes: text}); r.Status != validator.Valid {
			say("%s: %v", named(o), r.Err)
		}
	}
}

func named(o map[string]any) string {
	meta, _ := o["metadata"].(map[string]any)
	return fmt.Sprint(o["kind"], " ", meta["name"])
}
