package check

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestEachBreakageIsSeen: a check that finds nothing proves nothing. Each case breaks one thing
// of the sandbox overlay, and must be detected.
func TestEachBreakageIsSeen(t *testing.T) {
	const mail = "mail-consumer"
	spec := func(s *set) *corev1.PodSpec { return &s.pod(mail).template.Spec }
	container := func(s *set) *corev1.Container { return s.pod(mail).container() }
	setting := func(s *set, name, value string) {
		c := container(s)
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
	}
	for name, c := range map[string]struct {
		spoil func(*set)
		want  string
	}{
		"a field that is not there": {func(s *set) { at(s, "Deployment", mail, "spec")["replicass"] = 2 },
			"at '/spec': additional properties 'replicass' not allowed"},
		"a field of a wrong type": {func(s *set) { at(s, "Service", mail, "spec")["publishNotReadyAddresses"] = "yes" },
			"at '/spec/publishNotReadyAddresses': got string, want boolean"},
		"a policy's field":        {func(s *set) { at(s, "NetworkPolicy", "programs", "spec")["egres"] = []any{} }, "'egres' not allowed"},
		"a kind without a schema": {func(s *set) { s.raw[3]["kind"] = "DaemonSet" }, "DaemonSet"},

		"the namespace comes late": {func(s *set) { s.raw[0], s.raw[1] = s.raw[1], s.raw[0] }, "not the first object"},
		"the namespace lets all run": {func(s *set) { s.namespaces[0].Labels["pod-security.kubernetes.io/enforce"] = "baseline" },
			"does not enforce restricted"},
		"an object is elsewhere": {func(s *set) { at(s, "Service", mail, "metadata")["namespace"] = "default" },
			"Service mail-consumer: is in namespace default"},
		"runs as root":       {func(s *set) { spec(s).SecurityContext.RunAsNonRoot = nil }, "is not restricted: runAsNonRoot"},
		"no seccomp":         {func(s *set) { spec(s).SecurityContext.SeccompProfile = nil }, "seccompProfile"},
		"keeps capabilities": {func(s *set) { container(s).SecurityContext.Capabilities = nil }, "unrestricted capabilities"},
		"a volume of the node": {func(s *set) {
			spec(s).Volumes[0] = corev1.Volume{Name: "secrets", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}
		}, "hostPath"},
		"writes to its image": {func(s *set) { container(s).SecurityContext.ReadOnlyRootFilesystem = nil }, "can be written"},
		"a token":             {func(s *set) { spec(s).AutomountServiceAccountToken = nil }, "Deployment mail-consumer: mounts a token"},
		"a token of the account": {func(s *set) { find(s.accounts, mail).AutomountServiceAccountToken = nil },
			"ServiceAccount mail-consumer: mounts a token"},
		"another's account": {func(s *set) { spec(s).ServiceAccountName = "default" }, "no separate ServiceAccount"},
		"service links":     {func(s *set) { spec(s).EnableServiceLinks = nil }, "variables named after Services"},
		"latest": {func(s *set) { container(s).Image = "localhost/errand/mail-consumer:latest" },
			"image localhost/errand/mail-consumer:latest"},
		"no tag": {func(s *set) { container(s).Image = "localhost/errand/mail-consumer" },
			"image localhost/errand/mail-consumer"},
		"a registry": {func(s *set) { container(s).Image = "registry.example.com/errand/mail-consumer:1" },
			"image registry.example.com"},
		"pulls always":    {func(s *set) { container(s).ImagePullPolicy = corev1.PullAlways }, "pulls Always"},
		"no memory limit": {func(s *set) { container(s).Resources.Limits = nil }, "lacks a request"},
		"no request":      {func(s *set) { delete(container(s).Resources.Requests, corev1.ResourceCPU) }, "lacks a request"},
		"a processor limit": {func(s *set) { container(s).Resources.Limits[corev1.ResourceCPU] = resource.MustParse("1") },
			"limit for the processor"},
		"Go thinks it has more": {func(s *set) { setting(s, "GOMEMLIMIT", "192MiB") }, `GOMEMLIMIT "192MiB"`},
		"too many recipients": {func(s *set) {
			s.pod("log-poller").container().Env = []corev1.EnvVar{{Name: "POLL_RECIPIENTS", Value: "10000000"}}
		}, `POLL_RECIPIENTS "10000000" does not go with`},
		"held programs are killed": {func(s *set) { container(s).LivenessProbe.HTTPGet.Path = "/readyz" },
			"a program that is held would be killed"},
		"always ready": {func(s *set) { container(s).ReadinessProbe.HTTPGet.Path = "/healthz" }, "readiness asks /healthz"},
		"no liveness":  {func(s *set) { container(s).LivenessProbe = nil }, "no liveness probe"},
		"a port that is not there": {func(s *set) { container(s).StartupProbe.HTTPGet.Port = intstr.FromString("http") },
			"the startup probe asks port http"},
		"seen late":               {func(s *set) { container(s).ReadinessProbe.FailureThreshold = 3 }, "not to be ready is seen after 15 s"},
		"killed at a hiccup":      {func(s *set) { container(s).LivenessProbe.FailureThreshold = 1 }, "restarted after 10 s"},
		"no last words":           {func(s *set) { container(s).TerminationMessagePolicy = "" }, "last words"},
		"the grace of Kubernetes": {func(s *set) { spec(s).TerminationGracePeriodSeconds = nil }, "a stop may cut a call"},
		"the grace is too long":   {func(s *set) { setting(s, "SHUTDOWN_GRACE", "60s") }, "a stop may cut a call"},
		"calls are too long":      {func(s *set) { setting(s, "UPSTREAM_TIMEOUT", "45s") }, "a stop may cut a call"},
		"old pods go first": {func(s *set) { s.deployments[1].Spec.Strategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt32(1)) },
			"does not put the new pod before"},
		"all on one node": {func(s *set) { spec(s).TopologySpreadConstraints = spec(s).TopologySpreadConstraints[1:] },
			"is spread over"},
		"another program's spread": {func(s *set) {
			spec(s).TopologySpreadConstraints[0].LabelSelector.MatchLabels["app.kubernetes.io/name"] = "mail"
		}, "is spread over"},
		"one poller":             {func(s *set) { find(s.deployments, "log-poller").Spec.Replicas = new(int32(1)) }, "goes on"},
		"every revision is kept": {func(s *set) { find(s.deployments, mail).Spec.RevisionHistoryLimit = nil }, "no revisionHistoryLimit"},
		"a budget of nobody": {func(s *set) { find(s.budgets, mail).Spec.Selector.MatchLabels["app.kubernetes.io/name"] = "mail" },
			"has 0 PodDisruptionBudgets"},
		"a budget with both": {func(s *set) { find(s.budgets, mail).Spec.MinAvailable = new(intstr.FromInt32(1)) },
			"is not one pod at a time"},
		"a held pod stops a drain": {func(s *set) { find(s.budgets, mail).Spec.UnhealthyPodEvictionPolicy = nil }, "whatever its health"},
		"a Job for good":           {func(s *set) { s.jobs[0].Spec.TTLSecondsAfterFinished = nil }, "Job errand-provision: does not go"},
		"no such ConfigMap": {func(s *set) { container(s).EnvFrom[0].ConfigMapRef.Name = "errand-nats-0123456789" },
			"no ConfigMap errand-nats-0123456789"},
		"a ConfigMap of a fixed name": {func(s *set) {
			m := find(s.configMaps, container(s).EnvFrom[1].ConfigMapRef.Name)
			m.Name = mail
			container(s).EnvFrom[1].ConfigMapRef.Name = mail
		}, "a change of ConfigMap mail-consumer does not reach it"},
		"no such Secret": {func(s *set) { spec(s).Volumes[0].Secret.SecretName = "mail" }, "no Secret mail"},
		"no such key": {func(s *set) { delete(find(s.secrets, mail).Data, "nats-password") },
			"NATS_PASSWORD_FILE: no such file is mounted"},
		"no such key for nats": {func(s *set) { delete(find(s.secrets, "nats-people").Data, "producer") },
			"no Secret nats-people with producer"},
		"a file elsewhere": {func(s *set) { setting(s, "MAIL_API_KEY_FILE", "/etc/errands/api-key") },
			"MAIL_API_KEY_FILE: no such file is mounted"},
		"a mount that stays as it was": {func(s *set) { container(s).VolumeMounts[0].SubPath = "api-key" }, "no such file is mounted"},
		"everybody reads it": {func(s *set) { spec(s).Volumes[0].Secret.DefaultMode = new(int32(0o444)) },
			"is not for its group to read"},
		"nobody reads it":          {func(s *set) { spec(s).SecurityContext.FSGroup = nil }, "is not for its group to read"},
		"a key in the environment": {func(s *set) { setting(s, "MAIL_API_KEY", "k") }, "MAIL_API_KEY is in the environment"},
		"a Deployment of others' pods": {func(s *set) {
			find(s.deployments, mail).Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/part-of": "errand"}}
		}, "selects the pods of"},
		"no version on its pods": {func(s *set) { delete(find(s.deployments, mail).Spec.Template.Labels, "app.kubernetes.io/version") },
			"have no label app.kubernetes.io/version"},
		"a Service of nobody": {func(s *set) { find(s.services, mail).Spec.Selector["app.kubernetes.io/name"] = "mail" },
			"Service mail-consumer: selects no pod"},
		"a Service's port": {func(s *set) { find(s.services, mail).Spec.Ports[0].TargetPort = intstr.FromString("http") },
			"Service mail-consumer: no port http"},
		"held pods are not asked": {func(s *set) { find(s.services, mail).Spec.PublishNotReadyAddresses = false }, "does not show every pod"},
		"no Service": {func(s *set) {
			s.services = slices.DeleteFunc(s.services, func(o *corev1.Service) bool { return o.Name == mail })
		}, "there is no Service mail-consumer"},
		"a policy of nobody": {func(s *set) { find(s.policies, "nats").Spec.PodSelector.MatchLabels["app.kubernetes.io/name"] = "nat" },
			"NetworkPolicy nats: selects no pod"},
		"a policy's port": {func(s *set) {
			find(s.policies, "programs").Spec.Ingress[0].Ports[0].Port = new(intstr.FromString("metrics"))
		}, "NetworkPolicy programs: no port metrics"},
		"a policy for others": {func(s *set) {
			find(s.policies, "nats").Spec.Ingress[0].From[0].PodSelector.MatchLabels["app.kubernetes.io/part-of"] = "errands"
		}, "lets in pods that are not there"},
		"everybody may call":     {func(s *set) { find(s.policies, "programs").Spec.Ingress[0].From = nil }, "lets everybody in"},
		"it may call everything": {func(s *set) { find(s.policies, "programs").Spec.Egress[0].Ports = nil }, "lets everything out"},
		"it may not call its upstream": {func(s *set) {
			find(s.policies,
				"programs").Spec.Egress[0].Ports[0].Port = new(intstr.FromInt32(443))
		}, "may call [4222 TCP 443 TCP 53 TCP 53 UDP] and needs [4222 TCP 53 TCP 53 UDP 8085 TCP]"},
		"no default":          {func(s *set) { find(s.policies, "default-deny").Spec.PolicyTypes = nil }, "is open to the network"},
		"a name nobody knows": {func(s *set) { setting(s, "MAIL_BATCHSIZE", "10") }, "mail-consumer knows no MAIL_BATCHSIZE"},
		"a name of another program": {func(s *set) {
			s.pod("errand-provision").container().Env = []corev1.EnvVar{{Name: "CONCURRENCY", Value: "1"}}
		}, "errand provision knows no CONCURRENCY"},
	} {
		t.Run(name, func(t *testing.T) {
			s := render(t, "overlays/sandbox")
			c.spoil(s)
			if said := s.complaints(); !slices.ContainsFunc(said, func(one string) bool { return strings.Contains(one, c.want) }) {
				t.Errorf("complaints are %q, want one of %q", said, c.want)
			}
		})
	}
}

// at returns a part of an object as it was rendered.
func at(s *set, kind, name, part string) map[string]any {
	for _, o := range s.raw {
		if named(o) == kind+" "+name {
			return o[part].(map[string]any)
		}
	}
	panic("no " + kind + " " + name)
}
