//go:build linux

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

func TestDocumentsOfSomeKindsAreKept(t *testing.T) {
	const yaml = "kind: A\nname: one\n---\nkind: B\nname: two\n---\nkind: C\n  kind: A\nname: three"
	if got, want := documents(yaml, func(kind string) bool { return kind != "B" }), "kind: A\nname: one\n---\nkind: C\n  kind: A\nname: three"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
