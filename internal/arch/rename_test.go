package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"errand/internal/sandbox/devkit/devtest"
)

// The module can be renamed to publish the project under another name: the copy builds, with its tests and the modules
// beside it, and nothing in it has the old path.
func TestTheRenamedTreeBuilds(t *testing.T) {
	devtest.Full(t)
	dir, renamed := t.TempDir(), "example.com/some.one/errand-fork"
	err := walk(func(root, name string) error {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil {
			return err
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, text, info.Mode())
	})
	if err != nil {
		t.Fatal(err)
	}
	in := func(sub, program string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir = filepath.Join(dir, sub)
		cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false -trimpath -mod=mod", "CGO_ENABLED=0", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
		return string(out)
	}
	for _, invalid := range []string{"example.com//x", "a/../b", "go", "example.com/x."} { // the tree would not be a module
		cmd := exec.CommandContext(t.Context(), "scripts/module-path", invalid)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Fatalf("%s is accepted as a module path: %s", invalid, out)
		}
	}
	in(".", "scripts/module-path", renamed)
	in(".", "go", "vet", "./cmd/...", "./pkg/...", "./internal/arch")
	for _, sub := range []string{"examples/go", "examples/outbox", "examples/service"} {
		in(sub, "go", "vet", "./...")
	}
	for _, sub := range []string{".", "bench", "deploy/images", "deploy/k8s/check", "scripts/k8s-e2e", "scripts/k8s-e2e/cluster", "tools"} {
		if got, want := strings.TrimSpace(in(sub, "go", "list", "-m")), renamed+strings.TrimPrefix("/"+sub, "/."); got != want {
			t.Errorf("%s is the module %s, want %s", sub, got, want)
		}
	}
	old := `"` + module + `/(cmd|docs|internal|pkg)|[ =]` + module + `/internal/programs`
	left, err := exec.CommandContext(t.Context(), "grep", "-rnE", old, dir).Output()
	if len(left) > 0 {
		t.Errorf("the old path is left, %v:\n%s", err, left)
	}
}
