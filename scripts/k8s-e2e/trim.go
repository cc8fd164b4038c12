//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The whole of KEDA links every cloud's SDK and takes more than twice the time of Kubernetes to compile. What is built is
// its own code, unchanged: operator, adapter, and these scalers. Whole files are left out, and cluster/keda declares what
// the others use of them.
var keptScalers = []string{"scaler.go", "cpu_memory_scaler.go", "cron_scaler.go", "kubernetes_workload_scaler.go",
	"metrics_api_scaler.go", "nats_jetstream_scaler.go"}

// keptTrees are the directories of KEDA's module that are needed.
var keptTrees = []string{"go.mod", "go.sum", "apis", "cmd", "controllers", "pkg", "version"}

// cut is what goes besides the scalers: secret stores and event sinks of the clouds.
var cut = []string{
	"pkg/mock",
	"pkg/scalers/aws", "pkg/scalers/azure", "pkg/scalers/gcp", "pkg/scalers/kafka", "pkg/scalers/liiklus",
	"pkg/scalers/openstack", "pkg/scalers/splunk", "pkg/scalers/sumologic",
	"pkg/scaling/resolver/aws_secretmanager_handler.go", "pkg/scaling/resolver/azure_keyvault_handler.go",
	"pkg/scaling/resolver/gcp_secretmanager_handler.go", "pkg/scaling/resolver/hashicorpvault_handler.go",
	"pkg/eventemitter/azure_event_grid_topic_handler.go",
}

// trimKEDA copies KEDA from its module to dir, which has cluster/keda already, without what is not needed here.
func trimKEDA(module, dir string) error {
	for _, path := range cut {
		if _, err := os.Stat(filepath.Join(module, path)); err != nil {
			return fmt.Errorf("keda: has this version moved it? %w", err)
		}
	}
	for _, tree := range keptTrees {
		err := filepath.WalkDir(filepath.Join(module, tree), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(module, path)
			if err != nil {
				return err
			}
			into := filepath.Join(dir, rel)
			switch {
			case slices.Contains(cut, rel) && d.IsDir():
				return fs.SkipDir
			case d.IsDir():
				return os.MkdirAll(into, 0o700)
			case slices.Contains(cut, rel), strings.HasSuffix(rel, "_test.go"), filepath.Dir(rel) == "pkg/scalers" &&
				!slices.Contains(keptScalers, d.Name()):
				return nil
			}
			text, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(into, text, 0o600))
		})
		if err != nil {
			return fmt.Errorf("keda: %w", err)
		}
	}
	return declareScalers(dir)
}

var (
	calledScaler   = regexp.MustCompile(`\bscalers\.(New\w+)\(`)
	declaredScaler = regexp.MustCompile(`(?m)^func (New\w+)\(`)
)

// declareScalers declares the constructors that KEDA calls and whose files are cut out.
func declareScalers(dir string) error {
	calls, err := os.ReadFile(filepath.Join(dir, "pkg/scaling/scalers_builder.go"))
	if err != nil {
		return fmt.Errorf("keda: has this version moved it? %w", err)
	}
	var kept, missing []string
	for _, name := range keptScalers {
		text, err := os.ReadFile(filepath.Join(dir, "pkg/scalers", name))
		if err != nil {
			return fmt.Errorf("keda: has this version moved it? %w", err)
		}
		for _, found := range declaredScaler.FindAllSubmatch(text, -1) {
			kept = append(kept, string(found[1]))
		}
	}
	for _, found := range calledScaler.FindAllSubmatch(calls, -1) {
		if name := string(found[1]); !slices.Contains(kept, name) && !slices.Contains(missing, name+" = cutOut") {
			missing = append(missing, name+" = cutOut")
		}
	}
	text := "package scalers\n\nvar (\n\t" + strings.Join(missing, "\n\t") + "\n)\n"
	return os.WriteFile(filepath.Join(dir, "pkg/scalers/constructors.go"), []byte(text), 0o600)
}
