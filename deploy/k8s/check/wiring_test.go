package check

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// environment is what a container's variables come to.
func (s *set) environment(p pod, say complain) map[string]string {
	env := map[string]string{}
	for _, from := range p.container().EnvFrom {
		m := find(s.configMaps, from.ConfigMapRef.Name)
		if m == nil {
			say("%s: there is no ConfigMap %s", p, from.ConfigMapRef.Name)
			continue
		}
		maps.Copy(env, m.Data)
	}
	for _, v := range p.container().Env {
		env[v.Name] = v.Value
		if v.ValueFrom != nil && v.ValueFrom.ConfigMapKeyRef != nil {
			ref := v.ValueFrom.ConfigMapKeyRef
			m := find(s.configMaps, ref.Name)
			value, there := "", false
			if m != nil {
				value, there = m.Data[ref.Key]
			}
			switch env[v.Name] = value; {
			case there:
			case ref.Optional == nil || !*ref.Optional:
				say("%s: there is no ConfigMap %s with %s", p, ref.Name, ref.Key)
			default:
				delete(env, v.Name)
			}
			continue
		}
		if v.ValueFrom == nil || v.ValueFrom.SecretKeyRef == nil {
			continue
		}
		ref := v.ValueFrom.SecretKeyRef
		secret := find(s.secrets, ref.Name)
		if secret == nil || secret.Data[ref.Key] == nil {
			say("%s: there is no Secret %s with %s", p, ref.Name, ref.Key)
			continue
		}
		env[v.Name] = string(secret.Data[ref.Key])
	}
	return env
}

// files is what is in a pod's volumes, by volume and name.
func (s *set) files(p pod, say complain) map[string]map[string][]byte {
	all := map[string]map[string][]byte{}
	for _, v := range p.template.Spec.Volumes {
		files := map[string][]byte{}
		switch {
		case v.Secret != nil:
			secret := find(s.secrets, v.Secret.SecretName)
			if secret == nil {
				say("%s: there is no Secret %s", p, v.Secret.SecretName)
				continue
			}
			maps.Copy(files, secret.Data)
		case v.ConfigMap != nil:
			m := find(s.configMaps, v.ConfigMap.Name)
			if m == nil {
				say("%s: there is no ConfigMap %s", p, v.ConfigMap.Name)
				continue
			}
			for name, text := range m.Data {
				files[name] = []byte(text)
			}
		}
		all[v.Name] = files
	}
	return all
}

func find[T interface{ GetName() string }](list []T, name string) (none T) {
	for _, o := range list {
		if o.GetName() == name {
			return o
		}
	}
	return none
}

var hashed = regexp.MustCompile(`-[a-z0-9]{10}$`)

// references: everything named is there, and a changed ConfigMap rolls the pods.
func references(s *set, say complain) {
	for _, p := range s.pods() {
		s.environment(p, say)
		s.files(p, say)
		used := map[string]bool{}
		for _, from := range p.container().EnvFrom {
			used[from.ConfigMapRef.Name] = true
		}
		for _, v := range p.container().Env {
			if v.ValueFrom != nil && v.ValueFrom.ConfigMapKeyRef != nil {
				used[v.ValueFrom.ConfigMapKeyRef.Name] = true
			}
		}
		for _, v := range p.template.Spec.Volumes {
			if v.ConfigMap != nil {
				used[v.ConfigMap.Name] = true
			}
		}
		delete(used, "nats-ca") // the site's
		for name := range used {
			if !hashed.MatchString(name) {
				say("%s: a change of ConfigMap %s does not reach it", p, name)
			}
		}
	}
}

// secretFiles: each file that a setting names is in a Secret, mounted so that the user may read
// it, nobody may write it, and a new one arrives.
func secretFiles(s *set, say complain) {
	for _, p := range s.pods() {
		spec, files := p.template.Spec, s.files(p, func(string, ...any) {})
		for _, v := range spec.Volumes {
			if v.Secret != nil && (v.Secret.DefaultMode == nil || *v.Secret.DefaultMode != 0o440 || spec.SecurityContext.FSGroup == nil ||
				*spec.SecurityContext.FSGroup != *spec.SecurityContext.RunAsGroup) {
				say("%s: volume %s is not for its group to read, and for nobody else", p, v.Name)
			}
		}
		for name, value := range s.environment(p, func(string, ...any) {}) {
			if value == "" || !strings.HasSuffix(name, "_FILE") && name != "NATS_CA" {
				if strings.HasSuffix(name, "_PASSWORD") && strings.HasPrefix(name, "NATS_") || strings.HasSuffix(name, "_API_KEY") ||
					strings.HasSuffix(name, "_API_TOKEN") {
					say("%s: %s is in the environment", p, name)
				}
				continue
			}
			there := false
			for _, m := range p.container().VolumeMounts {
				file, below := strings.CutPrefix(value, m.MountPath+"/")
				there = there || below && m.SubPath == "" && m.ReadOnly && len(files[m.Name][file]) > 0
			}
			if !there {
				say("%s: %s: no such file is mounted: %s", p, name, value)
			}
		}
	}
}

// selects says whether a selector matches labels; an empty one matches all, a nil one none.
func selects(s *metav1.LabelSelector, set map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(set))
}

// selectors: each finds pods, and a port of theirs.
func selectors(s *set, say complain) {
	ports := func(selector *metav1.LabelSelector) (found bool, names []string) {
		for _, p := range s.pods() {
			if selects(selector, p.template.Labels) {
				found = true
				for _, c := range p.template.Spec.Containers {
					for _, port := range c.Ports {
						names = append(names, port.Name)
					}
				}
			}
		}
		return found, names
	}
	for _, d := range s.deployments {
		if !selects(d.Spec.Selector, d.Spec.Template.Labels) {
			say("Deployment %s: does not select its own pods", d.Name)
		}
		for _, o := range s.deployments {
			if o != d && selects(d.Spec.Selector, o.Spec.Template.Labels) {
				say("Deployment %s: selects the pods of %s", d.Name, o.Name)
			}
		}
	}
	for _, service := range s.services {
		found, names := ports(&metav1.LabelSelector{MatchLabels: service.Spec.Selector})
		if !found {
			say("Service %s: selects no pod", service.Name)
		}
		for _, port := range service.Spec.Ports {
			if !slices.Contains(names, port.TargetPort.StrVal) {
				say("Service %s: no port %s", service.Name, &port.TargetPort)
			}
		}
		if slices.Contains(programs, service.Name) && (service.Spec.ClusterIP != "None" || !service.Spec.PublishNotReadyAddresses) {
			say("Service %s: does not show every pod", service.Name)
		}
	}
	for _, program := range programs {
		if find(s.services, program) == nil {
			say("there is no Service %s", program)
		}
	}
	for _, b := range s.budgets {
		if found, _ := ports(b.Spec.Selector); !found {
			say("PodDisruptionBudget %s: selects no pod", b.Name)
		}
	}
	for _, n := range s.policies {
		found, names := ports(&n.Spec.PodSelector)
		if !found {
			say("NetworkPolicy %s: selects no pod", n.Name)
		}
		for _, rule := range n.Spec.Ingress {
			for _, port := range rule.Ports {
				if !slices.Contains(names, port.Port.StrVal) {
					say("NetworkPolicy %s: no port %s", n.Name, port.Port)
				}
			}
			for _, peer := range rule.From {
				if peer.PodSelector == nil || peer.NamespaceSelector != nil {
					continue
				}
				if found, _ := ports(peer.PodSelector); !found {
					say("NetworkPolicy %s: lets in pods that are not there", n.Name)
				}
			}
		}
	}
}

// network: nothing goes in or out that is not named, and what a pod is meant to call it may.
func network(s *set, say complain) {
	for _, p := range s.pods() {
		closed := map[networkingv1.PolicyType]bool{}
		out, in := map[string]bool{}, map[string]bool{}
		for _, n := range s.policies {
			if !selects(&n.Spec.PodSelector, p.template.Labels) {
				continue
			}
			for _, kind := range n.Spec.PolicyTypes {
				closed[kind] = true
			}
			for _, rule := range n.Spec.Egress {
				if len(rule.Ports) == 0 {
					say("NetworkPolicy %s: lets everything out", n.Name)
				}
				for _, port := range rule.Ports {
					out[fmt.Sprint(port.Port, " ", *port.Protocol)] = true
				}
			}
			for _, rule := range n.Spec.Ingress {
				if len(rule.From) == 0 || len(rule.Ports) == 0 {
					say("NetworkPolicy %s: lets everybody in, or to every port", n.Name)
				}
				for _, port := range rule.Ports {
					in[port.Port.String()] = true
				}
			}
		}
		if !closed[networkingv1.PolicyTypeIngress] || !closed[networkingv1.PolicyTypeEgress] {
			say("%s: is open to the network", p)
		}
		wanted := map[string]bool{}
		for name, value := range s.environment(p, func(string, ...any) {}) {
			if at, err := url.Parse(value); err == nil && (name == "NATS_URL" || strings.HasSuffix(name, "_API_URL")) {
				wanted[portOf(at)+" TCP"], wanted["53 UDP"], wanted["53 TCP"] = true, true, true
			}
		}
		if len(p.template.Spec.Containers) > 1 { // a proxy that logs users in at its issuer
			wanted["443 TCP"] = true
		}
		if !maps.Equal(out, wanted) {
			say("%s: may call %v and needs %v", p, slices.Sorted(maps.Keys(out)), slices.Sorted(maps.Keys(wanted)))
		}
		if isProgram(p) && !maps.Equal(in, map[string]bool{"admin": true}) {
			say("%s: may be called on %v", p, slices.Sorted(maps.Keys(in)))
		}
	}
}

func portOf(at *url.URL) string {
	if at.Port() != "" {
		return at.Port()
	}
	return map[string]string{"https": "443", "http": "80", "nats": "4222", "tls": "4222"}[at.Scheme]
}
