//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kedaLike writes files that look like KEDA's as far as trimKEDA looks.
func kedaLike(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"go.mod": "module keda\n", "go.sum": "", "apis/a.go": "package apis\n",
		"cmd/main.go": "package main\n", "controllers/c.go": "package controllers\n",
		"version/v.go": "package version\n", "pkg/a_test.go": "package pkg\n", "hack/tool.go": "package hack\n",
		"pkg/scalers/activemq_scaler.go": "package scalers\n\nfunc NewActiveMQScaler(config int) {}\n",
		"pkg/scaling/scalers_builder.go": "package scaling\n\nvar a = scalers.NewActiveMQScaler(config)\n" +
			"var b = scalers.NewActiveMQScaler(ctx, config)\nvar c = scalers.NewCronScaler(config)\n",
	}
	for _, path := range cut {
		if !strings.HasSuffix(path, ".go") {
			path += "/sdk.go"
		}
		files[path] = "package sdk\n"
	}
	for _, name := range keptScalers {
		files["pkg/scalers/"+name] = "package scalers\n"
	}
	files["pkg/scalers/cron_scaler.go"] = "package scalers\n\nfunc NewCronScaler(config int) {}\n"
	for path, text := range files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTrimLeavesOutCloudsAndDeclaresTheirScalers(t *testing.T) {
	into := t.TempDir()
	if err := os.CopyFS(into, os.DirFS("cluster/keda")); err != nil {
		t.Fatal(err)
	}
	if err := trimKEDA(kedaLike(t), into); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(into, "pkg/scalers/constructors.go"))
	if want := "package scalers\n\nvar (\n\tNewActiveMQScaler = cutOut\n)\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for path, want := range map[string]bool{"pkg/scalers/cron_scaler.go": true, "pkg/scalers/activemq_scaler.go": false,
		"pkg/scalers/aws/sdk.go":   false,
		"pkg/scalers/azure/sdk.go": false, "pkg/scalers/azure/stub.go": true, "pkg/a_test.go": false, "hack/tool.go": false,
		"pkg/scaling/resolver/hashicorpvault_handler.go": false} {
		if _, err := os.Stat(filepath.Join(into, path)); (err == nil) != want {
			t.Errorf("%s: %v, want it to be there: %v", path, err, want)
		}
	}
}

func TestTrimSaysWhatANewVersionHasMoved(t *testing.T) {
	for _, path := range []string{"pkg/scalers/nats_jetstream_scaler.go", "pkg/scalers/azure", "pkg/scaling/scalers_builder.go"} {
		keda := kedaLike(t)
		if err := os.RemoveAll(filepath.Join(keda, path)); err != nil {
			t.Fatal(err)
		}
		if err := trimKEDA(keda, t.TempDir()); err == nil || !strings.Contains(err.Error(), "has this version moved it?") ||
			!strings.Contains(err.Error(), filepath.Base(path)) {
			t.Errorf("without %s: %v", path, err)
		}
	}
}

func TestDocumentsOfSomeKindsAreKept(t *testing.T) {
	const yaml = "kind: A\nname: one\n---\nkind: B\nname: two\n---\nkind: C\n  kind: A\nname: three"
	const want = "kind: A\nname: one\n---\nkind: C\n  kind: A\nname: three"
	if got := documents(yaml, func(kind string) bool { return kind != "B" }); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
