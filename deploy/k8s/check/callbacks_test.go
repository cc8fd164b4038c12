package check

import (
	"net/url"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

// TestCallbacksComeInOverTLS: where the consumer says that callbacks are taken, the Ingress leads to the
// receiver's port for them and no other, which has the consumer's secret.
func TestCallbacksComeInOverTLS(t *testing.T) {
	none := func(string, ...any) {}
	s := render(t, "overlays/sandbox", "components/callbacks")
	consumer, receiver := s.environment(s.pod("mandate-consumer"), none), s.environment(s.pod("callback-receiver"), none)
	at, err := url.Parse(consumer["MANDATE_CALLBACK_URL"])
	if err != nil || at.Scheme != "https" {
		t.Fatalf("callbacks are sent to %q", consumer["MANDATE_CALLBACK_URL"])
	}
	ingress := as[networkingv1.Ingress](t, object(t, s, "Ingress callbacks"))
	rule := ingress.Spec.Rules[0]
	if rule.Host != at.Host || rule.HTTP.Paths[0].Path != at.Path+"/" || !slices.ContainsFunc(ingress.Spec.TLS,
		func(tls networkingv1.IngressTLS) bool {
			return slices.Contains(tls.Hosts, at.Host) && tls.SecretName != ""
		}) {
		t.Errorf("the Ingress has %s%s and TLS for %v, the service sends to %s", rule.Host, rule.HTTP.Paths[0].Path, ingress.Spec.TLS, at)
	}
	to := rule.HTTP.Paths[0].Backend.Service
	service := find(s.services, to.Name)
	if service == nil || len(service.Spec.Ports) != 1 || to.Port.Name != service.Spec.Ports[0].Name ||
		service.Spec.Ports[0].TargetPort.StrVal != "callbacks" || service.Spec.PublishNotReadyAddresses {
		t.Errorf("the Ingress leads to %v, which is not the receiver's callbacks alone", to)
	}
	policy := as[networkingv1.NetworkPolicy](t, object(t, s, "NetworkPolicy callback-receiver"))
	for _, from := range policy.Spec.Ingress {
		for _, port := range from.Ports {
			if port.Port.StrVal == "callbacks" && (len(from.Ports) != 1 || len(from.From) != 1 ||
				from.From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "ingress-nginx") {
				t.Errorf("callbacks come from others than the Ingress's controller: %v", from)
			}
		}
		if len(from.Ports) == 0 || len(from.From) == 0 {
			t.Errorf("anybody may come in: %v", from)
		}
	}
	secret := func(name string) string { return string(find(s.secrets, name).Data["callback-secret"]) }
	if secret("mandate-consumer") == "" || secret("mandate-consumer") != secret("callback-receiver") ||
		consumer["MANDATE_CALLBACK_SECRET_FILE"] != receiver["MANDATE_CALLBACK_SECRET_FILE"] {
		t.Error("the receiver does not have the consumer's secret")
	}
}
