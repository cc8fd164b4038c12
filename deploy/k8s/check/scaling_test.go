package check

import (
	"cmp"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/expr-lang/expr"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"sigs.k8s.io/yaml"

	"errand/internal/bus"
)

// scaled is what is looked at of a ScaledObject.
type scaled struct {
	Metadata struct{ Name, Namespace string }
	Spec     struct {
		ScaleTargetRef                   struct{ Name string }
		MinReplicaCount, MaxReplicaCount int
		PollingInterval, CooldownPeriod  *int
		Fallback                         *struct{}
		Triggers                         []struct {
			Name, Type string
			Metadata   map[string]string
		}
		Advanced struct {
			ScalingModifiers              struct{ Formula, Target string }
			HorizontalPodAutoscalerConfig struct {
				Behavior autoscalingv2.HorizontalPodAutoscalerBehavior
			}
		}
	}
}

func (s scaled) trigger(t *testing.T, name string) map[string]string {
	t.Helper()
	for _, trigger := range s.Spec.Triggers {
		if trigger.Name == name {
			return trigger.Metadata
		}
	}
	t.Fatalf("%s has no trigger %s", s.Metadata.Name, name)
	return nil
}

// wants evaluates the formula as KEDA does, to thousandths, cut off.
func (s scaled) wants(t *testing.T, writes, reads, busy float64) float64 {
	t.Helper()
	env := map[string]float64{"writes": writes, "reads": reads, "busy": busy}
	program, err := expr.Compile("float("+s.Spec.Advanced.ScalingModifiers.Formula+")", expr.Env(env))
	if err != nil {
		t.Fatal(err)
	}
	value, err := expr.Run(program, env)
	if err != nil {
		t.Fatal(err)
	}
	return math.Trunc(1000*value.(float64)) / 1000
}

// next is the number of replicas that the HPA makes of it: none within a tenth, else rounded up.
func (s scaled) next(t *testing.T, replicas int, writes, reads, busy float64) int {
	t.Helper()
	target, err := strconv.ParseFloat(s.Spec.Advanced.ScalingModifiers.Target, 64)
	if err != nil {
		t.Fatal(err)
	}
	wants := s.wants(t, writes, reads, busy) / target
	if math.Abs(wants/float64(replicas)-1) > 0.1 {
		replicas = int(math.Ceil(wants))
	}
	return min(max(replicas, s.Spec.MinReplicaCount), s.Spec.MaxReplicaCount)
}

// numbers are the numbers in the formula: workers, seconds that a backlog may take, seconds a request.
func (s scaled) numbers(t *testing.T) (workers, backlog, request float64) {
	t.Helper()
	found := regexp.MustCompile(`\((\d+) \* (\d+) / (\d+)\)`).FindStringSubmatch(s.Spec.Advanced.ScalingModifiers.Formula)
	if found == nil {
		t.Fatalf("the formula of %s does not say what a replica works off: %s", s.Metadata.Name, s.Spec.Advanced.ScalingModifiers.Formula)
	}
	var n [3]float64
	for i, text := range found[1:] {
		n[i], _ = strconv.ParseFloat(text, 64) // digits
	}
	return n[0], n[1], n[2]
}

func scaledObjects(t *testing.T, s *set) (list []scaled) {
	t.Helper()
	for _, raw := range s.raw {
		if raw["kind"] == "ScaledObject" {
			list = append(list, as[scaled](t, raw))
		}
	}
	if len(list) != 2 {
		t.Fatalf("%d ScaledObjects, want one for each of the two consumers", len(list))
	}
	return list
}

// scalings are the overlays that KEDA scales.
func scalings(t *testing.T) map[string]*set {
	t.Helper()
	return map[string]*set{"production": render(t, "overlays/production", "components/keda"),
		"sandbox-keda": render(t, "overlays/sandbox-keda")}
}

// What the formula does in each situation, with the numbers that it has.
func TestScalingGrowsWithBusyHandsAndBacklogOnly(t *testing.T) {
	for name, s := range scalings(t) {
		for _, so := range scaledObjects(t, s) {
			workers, seconds, request := so.numbers(t)
			off := workers * seconds / request // what a replica works off in the time that a backlog may take
			most := so.Spec.MaxReplicaCount
			full := func(replicas int) float64 { return float64(replicas) * (workers - 1) / workers } // a worker waits at the other queue
			endless := 1000 * off
			for _, c := range []struct {
				situation           string
				replicas            int
				writes, reads, busy float64
				want                int
			}{
				{"idle", 1, 0, 0, 0, 1},
				{"idle after a load", most, 0, 0, 0, 1},
				{"a backlog on full workers", 1, endless, 0, full(1), 2},
				{"a backlog on full workers", 2, endless, 0, full(2), 4},
				{"a backlog of reads alone", 1, 0, endless, full(1), 2},
				{"as many as there may be", most, endless, 0, full(most), most},
				{"full workers and a backlog that one works off in time", 1, off / 2, 0, full(1), 1},
				{"full workers and a backlog for three", 2, 2.9 * off, 0, full(2), 3},
				{"held, with a probe in flight", 1, endless, 0, 1 / workers, 1},
				{"held when there were many", most, endless, 0, float64(most) / workers, 1},
				{"everything deferred", 2, 100_000, 0, 0, 1},
				{"workers that wait to call again", most, endless, 0, 0.1, 1},
				{"a load that two just do, without a backlog", 2, 2 * workers * 0.8, 0, 2 * 0.8, 2},
				{"an upstream that takes calls and answers none: those a third of their time old are not counted", 3, endless, 0, full(3) / 3, 2},
				{"drained", most, workers / 2, 0, 0.5, 1},
				{"an upstream so slow that all workers wait for it", most / 2, endless, endless, full(most / 2), most},
			} {
				if got := so.next(t, c.replicas, c.writes, c.reads, c.busy); got != max(c.want, so.Spec.MinReplicaCount) {
					t.Errorf("%s, %s: %s: from %d to %d replicas, want %d", name, so.Metadata.Name, c.situation, c.replicas, got,
						max(c.want, so.Spec.MinReplicaCount))
				}
			}
			for replicas := so.Spec.MinReplicaCount; replicas <= most; replicas++ {
				if got := so.next(t, replicas, endless, endless, float64(replicas)); got > 2*replicas {
					t.Errorf("%s, %s: from %d to %d replicas at once", name, so.Metadata.Name, replicas, got)
				}
			}
		}
	}
}

// The triggers ask for what there is, and the formula counts the workers that there are.
func TestTriggersNameWhatThereIs(t *testing.T) {
	for name, s := range scalings(t) {
		for _, so := range scaledObjects(t, s) {
			complain := func(format string, args ...any) {
				t.Errorf("%s, %s: %s", name, so.Metadata.Name, fmt.Sprintf(format, args...))
			}
			p := s.pod(so.Spec.ScaleTargetRef.Name)
			settings := s.environment(p, complain)
			if workers, _, _ := so.numbers(t); settings["CONCURRENCY"] != fmt.Sprint(workers) {
				complain("the formula counts with %v workers, CONCURRENCY is %s", workers, settings["CONCURRENCY"])
			}
			if so.Spec.Fallback != nil || so.Spec.PollingInterval != nil || so.Spec.CooldownPeriod != nil {
				complain("has settings that do nothing here, or harm: fallback, pollingInterval, cooldownPeriod")
			}
			wantDoubling(complain, so.Spec.Advanced.HorizontalPodAutoscalerConfig.Behavior.ScaleUp)
			for _, trigger := range []string{"writes", "reads"} {
				m := so.trigger(t, trigger)
				if m["account"] != "ERRAND" || !slices.ContainsFunc(bus.Queues(), func(q bus.Queue) bool {
					// mandate-consumer takes from MANDATE_REQUESTS, and so on
					return q.Stream == m["stream"] && q.Name == m["consumer"] && strings.HasPrefix(so.Metadata.Name,
						strings.ToLower(strings.TrimSuffix(q.Stream, "_REQUESTS")))
				}) {
					complain("%s asks for consumer %s of stream %s, account %s", trigger, m["consumer"], m["stream"], m["account"])
				}
			}
			if so.trigger(t, "writes")["consumer"] == so.trigger(t, "reads")["consumer"] {
				complain("both triggers ask for the same queue")
			}
			busy := so.trigger(t, "busy")
			if _, there := exported(t)[busy["valueLocation"]]; !there {
				complain("no program exports %s", busy["valueLocation"])
			}
			if busy["aggregateFromKubeServiceEndpoints"] != "true" || busy["aggregationType"] != "sum" {
				complain("busy is not the sum over all pods")
			}
			u, err := url.Parse(busy["url"])
			if err != nil || u.Path != "/metrics" {
				complain("busy asks %q: %v", busy["url"], err)
				continue
			}
			service := 0
			for _, svc := range s.services {
				for _, port := range svc.Spec.Ports {
					if svc.Name+"."+svc.Namespace+".svc.cluster.local" == u.Hostname() && fmt.Sprint(port.Port) == u.Port() {
						service++
						if !svc.Spec.PublishNotReadyAddresses || svc.Name != p.name {
							complain("Service %s hides pods that are not ready, or is another program's", svc.Name)
						}
					}
				}
			}
			if service != 1 {
				complain("busy asks %s, which is not a Service", u.Host)
			}
		}
	}
}

// The HPA without KEDA goes by the workers alone.
func TestHPAsGoByBusyHands(t *testing.T) {
	found := 0
	for _, raw := range render(t, "overlays/production", "components/hpa").raw {
		if raw["kind"] != "HorizontalPodAutoscaler" {
			continue
		}
		found++
		h := as[autoscalingv2.HorizontalPodAutoscaler](t, raw)
		complain := func(format string, args ...any) { t.Errorf("%s: %s", h.Name, fmt.Sprintf(format, args...)) }
		wantDoubling(complain, h.Spec.Behavior.ScaleUp)
		if len(h.Spec.Metrics) != 1 || h.Spec.Metrics[0].Pods == nil {
			complain("it does not go by its pods alone")
			continue
		}
		m := h.Spec.Metrics[0].Pods
		if _, there := exported(t)[m.Metric.Name]; !there {
			complain("no program exports %s", m.Metric.Name)
		}
		if half := m.Target.AverageValue.AsApproximateFloat64(); half != 0.5 {
			complain("it grows beyond %v of the workers, want half", half)
		}
	}
	if found != 2 {
		t.Errorf("%d HPAs, want one for each of the two consumers", found)
	}
}

// The adapter's rule gives the HPAs what they ask for.
func TestTheAdapterRuleNamesTheGauge(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "components/hpa/prometheus-adapter.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Rules struct {
			Custom []struct{ SeriesQuery, MetricsQuery string }
		}
	}
	if err := yaml.Unmarshal(text, &values); err != nil || len(values.Rules.Custom) != 1 {
		t.Fatalf("%v: %+v", err, values)
	}
	rule := values.Rules.Custom[0]
	query := strings.NewReplacer("<<.Series>>", "errand_busy_ratio", "<<.LabelMatchers>>", `namespace="errand"`, "<<.GroupBy>>",
		"pod").Replace(rule.MetricsQuery)
	for _, expr := range []string{rule.SeriesQuery, query} {
		if missing, err := unknown(expr, exported(t)); err != nil || len(missing) > 0 || !strings.Contains(expr, "errand_busy_ratio") {
			t.Errorf("%s: %v, nobody exports %q", expr, err, missing)
		}
	}
}

// drainable: a disruption budget that is used up leaves a replica of each program, of one that is scaled at its minimum too.
func drainable(s *set, say complain) {
	least := map[string]int{}
	for _, d := range s.deployments {
		if least[d.Name] = 1; d.Spec.Replicas != nil {
			least[d.Name] = int(*d.Spec.Replicas)
		}
	}
	for _, o := range s.raw {
		spec, _ := o["spec"].(map[string]any)
		if target, scaled := spec["scaleTargetRef"].(map[string]any); scaled {
			n, _ := cmp.Or(spec["minReplicaCount"], spec["minReplicas"]).(float64)
			least[fmt.Sprint(target["name"])] = int(n)
		}
	}
	for name, n := range least {
		for _, b := range s.budgets {
			if most := b.Spec.MaxUnavailable; selects(b.Spec.Selector, s.pod(name).template.Labels) && n <= most.IntValue() {
				say("%s: of %d replicas PodDisruptionBudget %s lets %v go at once", name, n, b.Name, most)
			}
		}
	}
}

func TestADrainLeavesAReplica(t *testing.T) {
	for overlay, want := range map[string]int{"overlays/production": 0, "overlays/production+components/keda": 0,
		"overlays/production+components/hpa": 0,
		"overlays/sandbox":                   2, "overlays/sandbox-keda": 2} { // one replica of each consumer, to be seen growing
		dir, component, found := strings.Cut(overlay, "+")
		s := render(t, dir)
		if found {
			s = render(t, dir, component)
		}
		var said []string
		drainable(s, func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
		if len(said) != want {
			t.Errorf("%s: complaints are %q, want %d", overlay, said, want)
		}
	}
}

// wantDoubling wants no more than a doubling at once.
func wantDoubling(complain func(string, ...any), up *autoscalingv2.HPAScalingRules) {
	if up == nil || len(up.Policies) != 1 || up.Policies[0].Type != autoscalingv2.PercentScalingPolicy || up.Policies[0].Value > 100 {
		complain("it may more than double at once")
	}
}
