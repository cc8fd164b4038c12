package check

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// complain takes what is wrong, as a sentence that names the object.
type complain func(format string, args ...any)

// checks are all rules; breakages_test.go has at least one manifest that breaks each.
var checks = []func(*set, complain){schema, namespace, security, identity, images, resources, probes, stops, replicas, provisioning, references, secretFiles, selectors, network, knownSettings}

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

// programs take requests or read the log; everything else is around them.
var programs = []string{"mandate-consumer", "mail-consumer", "log-poller"}

func isProgram(p pod) bool { return slices.Contains(programs, p.name) }

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
		if meta := o["metadata"].(map[string]any); meta["namespace"] != ns.Name {
			say("%s: is in namespace %v, not in %s", named(o), meta["namespace"], ns.Name)
		}
	}
}

var evaluator = func() policy.Evaluator {
	e, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		panic(err)
	}
	return e
}()

// security: the API server's own rules for restricted, and what they leave open.
func security(s *set, say complain) {
	restricted := psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}
	for _, p := range s.pods() {
		if r := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &p.template.ObjectMeta, &p.template.Spec)); !r.Allowed {
			say("%s: is not restricted: %s", p, r.ForbiddenDetail())
		}
		for _, c := range p.template.Spec.Containers {
			if sc := c.SecurityContext; sc == nil || sc.ReadOnlyRootFilesystem == nil || !*sc.ReadOnlyRootFilesystem {
				say("%s: its root file system can be written", p)
			}
		}
	}
}

// identity: an account of its own, and no token.
func identity(s *set, say complain) {
	for _, p := range s.pods() {
		spec := p.template.Spec
		if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
			say("%s: mounts a token", p)
		}
		account := find(s.accounts, spec.ServiceAccountName)
		switch {
		case account == nil || spec.ServiceAccountName != p.name:
			say("%s: has no ServiceAccount of its own", p)
		case account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken:
			say("ServiceAccount %s: mounts a token", account.Name)
		}
		if spec.EnableServiceLinks == nil || *spec.EnableServiceLinks {
			say("%s: gets variables named after Services", p)
		}
	}
}

var image = regexp.MustCompile(`^((localhost|REGISTRY)/errand/(mandate-consumer|mail-consumer|log-poller|errand)|nats):[A-Za-z0-9._-]+$`)

// images: ours and nats, with a tag that stays, and no registry's name.
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

// resources: requests for both, a limit for memory, none for the processor; Go knows the limit.
func resources(s *set, say complain) {
	for _, p := range s.pods() {
		c := p.container()
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
			say("%s: lacks a request, or the limit of its memory", p)
		}
		if !c.Resources.Limits.Cpu().IsZero() {
			say("%s: has a limit for the processor", p)
		}
		limit := c.Resources.Limits.Memory().Value()
		env := s.environment(p, func(string, ...any) {})
		if p.kind == "Deployment" {
			soft, err := resource.ParseQuantity(strings.TrimSuffix(env["GOMEMLIMIT"], "B"))
			if err != nil || soft.Value() < limit*3/4 || soft.Value() > limit*95/100 {
				say("%s: GOMEMLIMIT %q is not a little less than the limit %s", p, env["GOMEMLIMIT"], c.Resources.Limits.Memory())
			}
		}
		// The log poller: what it starts with, 48 bytes a recipient, and as much again that is not collected yet.
		if known, err := strconv.ParseInt(env["POLL_RECIPIENTS"], 10, 64); p.name == "log-poller" && (err != nil || known == 0 || 64<<20+2*48*known > limit) {
			say("%s: POLL_RECIPIENTS %q does not go with %s", p, env["POLL_RECIPIENTS"], c.Resources.Limits.Memory())
		}
	}
}

// probes: a hung process is restarted within a minute or so, a program that is held never, and
// what is wrong is seen within ten seconds.
func probes(s *set, say complain) {
	for _, d := range s.deployments {
		p := pod{"Deployment", d.Name, &d.Spec.Template}
		c := p.container()
		if c.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
			say("%s: its last words are not kept", p)
		}
		for name, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
			if probe == nil || probe.HTTPGet == nil {
				say("%s: no %s probe", p, name)
				return
			}
			if !slices.ContainsFunc(c.Ports, func(port corev1.ContainerPort) bool { return port.Name == probe.HTTPGet.Port.StrVal }) {
				say("%s: the %s probe asks port %s, which is not there", p, name, &probe.HTTPGet.Port)
			}
		}
		patience := func(probe *corev1.Probe) int32 { return probe.PeriodSeconds * max(probe.FailureThreshold, 1) }
		if hung := patience(c.LivenessProbe); hung < 30 || hung > 90 {
			say("%s: a hung process is restarted after %d s", p, hung)
		}
		if !isProgram(p) {
			continue
		}
		if patience(c.ReadinessProbe) > 10 {
			say("%s: not to be ready is seen after %d s", p, patience(c.ReadinessProbe))
		}
		if c.LivenessProbe.HTTPGet.Path != "/healthz" || c.StartupProbe.HTTPGet.Path != "/healthz" {
			say("%s: a program that is held would be killed", p)
		}
		if c.ReadinessProbe.HTTPGet.Path != "/readyz" {
			say("%s: readiness asks %s", p, c.ReadinessProbe.HTTPGet.Path)
		}
	}
}

// stops: the pod outlives the program's grace, and that a call.
func stops(s *set, say complain) {
	for _, p := range s.pods() {
		if !isProgram(p) {
			continue
		}
		env := s.environment(p, func(string, ...any) {})
		grace, err1 := time.ParseDuration(env["SHUTDOWN_GRACE"])
		call, err2 := time.ParseDuration(env["UPSTREAM_TIMEOUT"])
		end := p.template.Spec.TerminationGracePeriodSeconds
		if err1 != nil || err2 != nil || end == nil || time.Duration(*end)*time.Second <= grace || grace <= call {
			say("%s: a stop may cut a call: UPSTREAM_TIMEOUT %s, SHUTDOWN_GRACE %s, the pod's end", p, env["UPSTREAM_TIMEOUT"], env["SHUTDOWN_GRACE"])
		}
	}
}

// replicas: rollouts take nothing away before the new is there, and pods are spread.
func replicas(s *set, say complain) {
	for _, d := range s.deployments {
		p := pod{"Deployment", d.Name, &d.Spec.Template}
		if !isProgram(p) {
			continue
		}
		rolling := d.Spec.Strategy.RollingUpdate
		if rolling == nil || rolling.MaxUnavailable == nil || rolling.MaxUnavailable.IntValue() != 0 || rolling.MaxSurge == nil || rolling.MaxSurge.IntValue() != 1 {
			say("%s: a rollout does not put the new pod before the old one", p)
		}
		if d.Spec.RevisionHistoryLimit == nil {
			say("%s: no revisionHistoryLimit", p)
		}
		var over []string
		for _, c := range p.template.Spec.TopologySpreadConstraints {
			if c.WhenUnsatisfiable == corev1.ScheduleAnyway && selects(c.LabelSelector, p.template.Labels) {
				over = append(over, c.TopologyKey)
			}
		}
		if !slices.Equal(over, []string{"kubernetes.io/hostname", "topology.kubernetes.io/zone"}) {
			say("%s: is spread over %v", p, over)
		}
		if d.Name == "log-poller" && (d.Spec.Replicas == nil || *d.Spec.Replicas != 2) {
			say("%s: one that works and one that stands by", p)
		}
		budgets := 0
		for _, b := range s.budgets {
			if !selects(b.Spec.Selector, p.template.Labels) {
				continue
			}
			budgets++
			if b.Spec.MinAvailable != nil || b.Spec.MaxUnavailable == nil || b.Spec.MaxUnavailable.IntValue() != 1 || b.Spec.UnhealthyPodEvictionPolicy == nil || *b.Spec.UnhealthyPodEvictionPolicy != "AlwaysAllow" {
				say("PodDisruptionBudget %s: is not one pod at a time, whatever its health", b.Name)
			}
		}
		if budgets != 1 {
			say("%s: has %d PodDisruptionBudgets", p, budgets)
		}
	}
}

// provisioning: the Job goes by itself, so that the next apply makes it anew.
func provisioning(s *set, say complain) {
	for _, j := range s.jobs {
		if j.Spec.TTLSecondsAfterFinished == nil || j.Spec.BackoffLimit == nil || j.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyNever {
			say("Job %s: does not go, has no end of tries, or its pods go with their logs", j.Name)
		}
	}
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
			if v.Secret != nil && (v.Secret.DefaultMode == nil || *v.Secret.DefaultMode != 0o440 || spec.SecurityContext.FSGroup == nil || *spec.SecurityContext.FSGroup != *spec.SecurityContext.RunAsGroup) {
				say("%s: volume %s is not for its group to read, and for nobody else", p, v.Name)
			}
		}
		for name, value := range s.environment(p, func(string, ...any) {}) {
			if value == "" || !strings.HasSuffix(name, "_FILE") && name != "NATS_CA" {
				if strings.HasSuffix(name, "_PASSWORD") && strings.HasPrefix(name, "NATS_") || strings.HasSuffix(name, "_API_KEY") || strings.HasSuffix(name, "_API_TOKEN") {
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
				for _, port := range p.container().Ports {
					names = append(names, port.Name)
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

// network: nothing goes in or out that is not named, and what a pod is told to call it may.
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
