package main

import (
	"errors"
	"strings"
	"testing"
)

const builder = `package scaling

	switch triggerType {
	case "activemq":
		return scalers.NewActiveMQScaler(config)
	case "cpu":
		return scalers.NewCPUMemoryScaler(corev1.ResourceCPU, config)
	case "cron":
		return scalers.NewCronScaler(config)
	case "kubernetes-workload":
		return scalers.NewKubernetesWorkloadScaler(client, config)
	case "memory":
		return scalers.NewCPUMemoryScaler(corev1.ResourceMemory, config)
	case "metrics-api":
		return scalers.NewMetricsAPIScaler(config, client)
	case "nats-jetstream", "other-name":
		return scalers.NewNATSJetStreamScaler(config)
	case "zz":
		return nil, nil
	default:
		return nil, fmt.Errorf("no scaler found for type: %s", triggerType)
	}
`

func TestTrimKeepsTheScalersThatAreUsed(t *testing.T) {
	got, err := keepTriggers(builder)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`case "cpu":`, `case "metrics-api":`, `case "nats-jetstream", "other-name":`, "NewNATSJetStreamScaler(config)\n\tdefault:", "no scaler found"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is gone from:\n%s", want, got)
		}
	}
	for _, cut := range []string{"activemq", `"zz"`, "NewActiveMQ"} {
		if strings.Contains(got, cut) {
			t.Errorf("%q is still in:\n%s", cut, got)
		}
	}
}

func TestTrimSaysWhatANewVersionHasMoved(t *testing.T) {
	for name, err := range map[string]error{
		"scaler renamed": second(keepTriggers(strings.Replace(builder, "nats-jetstream", "nats", 1))),
		"no switch":      second(keepTriggers("package scaling\n")),
		"no azure":       second(cutAzureKeys("package resolver\n")),
		"no event grid":  second(cutEventGrid("package eventemitter\n")),
	} {
		if !errors.Is(err, errMoved) {
			t.Errorf("%s: %v, want %v", name, err, errMoved)
		}
	}
}

func second(_ string, err error) error { return err }

func TestSumOfAMetricAddsTheSeriesAskedFor(t *testing.T) {
	const metrics = `# HELP calls Calls.
calls_count{call="logs",fate="success"} 3
calls_count{call="logs",fate="busy"} 2
calls_count{call="send",fate="success"} 40
calls_count_more{call="logs"} 500
plain 7
`
	for _, c := range []struct {
		name, labels string
		want         float64
	}{{"calls_count", `call="logs"`, 5}, {"calls_count", "", 45}, {"plain", "", 7}, {"absent", "", 0}} {
		if got, err := sumOf(metrics, c.name, c.labels); err != nil || got != c.want {
			t.Errorf("%s{%s}: %v, %v, want %v", c.name, c.labels, got, err, c.want)
		}
	}
}

func TestDocumentsOfSomeKindsAreKept(t *testing.T) {
	const yaml = "kind: A\nname: one\n---\nkind: B\nname: two\n---\nkind: C\n  kind: A\nname: three"
	if got, want := documents(yaml, func(kind string) bool { return kind != "B" }), "kind: A\nname: one\n---\nkind: C\n  kind: A\nname: three"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
