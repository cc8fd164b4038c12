package check

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

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

// identity: a separate account, and no token.
func identity(s *set, say complain) {
	for _, p := range s.pods() {
		spec := p.template.Spec
		if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
			say("%s: mounts a token", p)
		}
		account := find(s.accounts, spec.ServiceAccountName)
		switch {
		case account == nil || spec.ServiceAccountName != p.name:
			say("%s: has no separate ServiceAccount", p)
		case account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken:
			say("ServiceAccount %s: mounts a token", account.Name)
		}
		if spec.EnableServiceLinks == nil || *spec.EnableServiceLinks {
			say("%s: gets variables named after Services", p)
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
		// The log poller: what it starts with, 180 bytes a mail to one, and 9 bytes for each state of a month.
		if known, err := strconv.ParseInt(env["POLL_RECIPIENTS"], 10, 64); p.name == "log-poller" &&
			(err != nil || known == 0 || 64<<20+(180+5*9)*known > limit*82/100) {
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
		if d.Name == "toolbox" { // a shell has nothing to ask
			continue
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
			say("%s: a stop may cut a call: UPSTREAM_TIMEOUT %s, SHUTDOWN_GRACE %s, the pod's end", p, env["UPSTREAM_TIMEOUT"],
				env["SHUTDOWN_GRACE"])
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
		if rolling == nil || rolling.MaxUnavailable == nil || rolling.MaxUnavailable.IntValue() != 0 || rolling.MaxSurge == nil ||
			rolling.MaxSurge.IntValue() != 1 {
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
		if strings.HasSuffix(d.Name, "-poller") && (d.Spec.Replicas == nil || *d.Spec.Replicas != 2) {
			say("%s: two, of which one goes on when the other goes", p)
		}
		budgets := 0
		for _, b := range s.budgets {
			if !selects(b.Spec.Selector, p.template.Labels) {
				continue
			}
			budgets++
			if b.Spec.MinAvailable != nil || b.Spec.MaxUnavailable == nil || b.Spec.MaxUnavailable.IntValue() != 1 ||
				b.Spec.UnhealthyPodEvictionPolicy == nil || *b.Spec.UnhealthyPodEvictionPolicy != "AlwaysAllow" {
				say("PodDisruptionBudget %s: is not one pod at a time, whatever its health", b.Name)
			}
		}
		if budgets != 1 {
			say("%s: has %d PodDisruptionBudgets", p, budgets)
		}
	}
}

// provisioning: the Job goes by itself, so that the next apply makes it again.
func provisioning(s *set, say complain) {
	for _, j := range s.jobs {
		if j.Spec.TTLSecondsAfterFinished == nil || j.Spec.BackoffLimit == nil ||
			j.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyNever {
			say("Job %s: does not go, has no end of tries, or its pods go with their logs", j.Name)
		}
	}
}
