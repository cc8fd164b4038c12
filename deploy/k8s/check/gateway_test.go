package check

import (
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

// route is what is looked at of an HTTPRoute.
type route struct {
	Spec struct {
		ParentRefs []struct{ Name, Namespace, SectionName string }
		Hostnames  []string
		Rules      []struct {
			Matches []struct {
				Path struct{ Type, Value string }
			}
			BackendRefs []struct {
				Name string
				Port int32
			}
		}
	}
}

// TestAGatewayTakesTheIngressesPlace: the route leads to the Service and the path that the Ingress led to, under the same name, from a
// listener with TLS, and only the Gateway's namespace reaches the pods.
func TestAGatewayTakesTheIngressesPlace(t *testing.T) {
	for name, c := range map[string]struct{ component, policy string }{
		"callbacks": {"components/callbacks-gateway", "callback-receiver"},
		"console":   {"components/console-login-gateway", "console-login"},
	} {
		with := inOrder(t, c.component)
		ingress := as[networkingv1.Ingress](t, object(t, render(t, "overlays/sandbox", with[:len(with)-1]...), "Ingress "+name))
		s := render(t, "overlays/sandbox", with...)
		for _, o := range s.raw {
			if o["kind"] == "Ingress" {
				t.Errorf("%s: the %s is still there", name, named(o))
			}
		}
		r := as[route](t, object(t, s, "HTTPRoute "+name)).Spec
		rule, path := ingress.Spec.Rules[0], "/" // a route without matches
		if len(r.Rules) != 1 || len(r.ParentRefs) != 1 || r.ParentRefs[0].SectionName != "https" {
			t.Fatalf("%s: the route has %d rules and the listeners %v", name, len(r.Rules), r.ParentRefs)
		}
		if matches := r.Rules[0].Matches; len(matches) > 0 {
			path = matches[0].Path.Value
		}
		if !slices.Equal(r.Hostnames, []string{rule.Host}) || path != rule.HTTP.Paths[0].Path {
			t.Errorf("%s: the route is for %v%s, the Ingress for %s%s", name, r.Hostnames, path, rule.Host, rule.HTTP.Paths[0].Path)
		}
		to := r.Rules[0].BackendRefs[0]
		service := find(s.services, rule.HTTP.Paths[0].Backend.Service.Name)
		if to.Name != service.Name || to.Port != service.Spec.Ports[0].Port {
			t.Errorf("%s: the route leads to %v, which is not the Ingress's Service", name, to)
		}
		from := find(s.policies, c.policy).Spec.Ingress[0].From
		if got := from[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]; len(from) != 1 || got != r.ParentRefs[0].Namespace {
			t.Errorf("%s: the namespace %s may come in, the Gateway is in %s", name, got, r.ParentRefs[0].Namespace)
		}
	}
}
