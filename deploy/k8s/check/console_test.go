package check

import (
	"net"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTheConsoleIsOpenToNobodyWhoDidNotLogIn: without a login its pages are for the pod alone, show
// and do nothing else, and no Service leads there; with one the Ingress leads there, over TLS, under the
// name that the sessions are for.
func TestTheConsoleIsOpenToNobodyWhoDidNotLogIn(t *testing.T) {
	none := func(string, ...any) {}
	s := render(t, "overlays/sandbox", "components/console")
	env := s.environment(s.pod("console"), none)
	host, _, err := net.SplitHostPort(env["CONSOLE_ADDR"])
	if err != nil || !net.ParseIP(host).IsLoopback() || env["CONSOLE_LOGIN"] != "none" || env["CONSOLE_ROLES"] != "read" {
		t.Errorf("without a login it listens on %s and gives the roles %s", env["CONSOLE_ADDR"], env["CONSOLE_ROLES"])
	}
	for _, service := range s.services {
		if selects(&metav1.LabelSelector{MatchLabels: service.Spec.Selector}, s.pod("console").template.Labels) {
			t.Errorf("Service %s leads to a console without a login", service.Name)
		}
	}
	if c := s.pod("console").container(); len(c.Ports) != 1 {
		t.Errorf("without a login it has the ports %v", c.Ports)
	}

	s = render(t, "overlays/sandbox", "components/console", "components/console-login")
	env = s.environment(s.pod("console"), none)
	if env["CONSOLE_LOGIN"] == "none" {
		t.Error("there is no login behind the Ingress")
	}
	name := strings.TrimPrefix(env["CONSOLE_URL"], "https://")
	ingress := as[networkingv1.Ingress](t, object(t, s, "Ingress console"))
	service := find(s.services, "console")
	for _, rule := range ingress.Spec.Rules {
		to := rule.HTTP.Paths[0].Backend.Service
		if rule.Host != name || !slices.ContainsFunc(ingress.Spec.TLS, func(tls networkingv1.IngressTLS) bool {
			return slices.Contains(tls.Hosts, name) && tls.SecretName != ""
		}) {
			t.Errorf("the Ingress has %s and TLS for %v, the console is %s", rule.Host, ingress.Spec.TLS, env["CONSOLE_URL"])
		}
		if service == nil || to.Name != service.Name || to.Port.Name != service.Spec.Ports[0].Name || !service.Spec.PublishNotReadyAddresses {
			t.Errorf("the Ingress leads to %v, which is not the console's Service, or not one that shows it while NATS is gone", to)
		}
	}
	if d := find(s.deployments, "console"); d.Spec.Replicas == nil || *d.Spec.Replicas != 1 || d.Spec.Strategy.Type != "Recreate" {
		t.Error("there may be two consoles at once, which do not know each other's links")
	}
}

// object is one that was rendered, by kind and name.
func object(t *testing.T, s *set, name string) map[string]any {
	t.Helper()
	for _, o := range s.raw {
		if named(o) == name {
			return o
		}
	}
	t.Fatalf("there is no %s", name)
	return nil
}
