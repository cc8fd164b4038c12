package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// A site keeps its overlay alone, and takes the rest from a version of this repository.
func TestAnOverlayMayReferToAVersionByURL(t *testing.T) {
	repository := t.TempDir()
	if err := os.CopyFS(filepath.Join(repository, "deploy/k8s"), os.DirFS(root)); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"init -q", "add .", "commit -qm release", "tag v0.1.0", "rm -qr .", "commit -qm other"} {
		cmd := exec.CommandContext(t.Context(), "git", strings.Fields("-c user.name=t -c user.email=t@example.com "+args)...)
		cmd.Dir = repository
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	local := func(text string) string {
		return strings.Replace(text, "components: []", "components:\n  - ../../components/keda\n  - ../../components/monitoring", 1)
	}
	remote := func(text string) string {
		return regexp.MustCompile(`\.\./\.\./(\S+)`).ReplaceAllString(local(text), "file://"+repository+"//deploy/k8s/$1?ref=v0.1.0")
	}
	want, got := renderEdited(t, local, "overlays/production"), renderEdited(t, remote, "overlays/production")
	if len(want.raw) != len(got.raw) {
		t.Fatalf("by URL it renders %d objects, want %d", len(got.raw), len(want.raw))
	}
	for i := range want.raw {
		if !reflect.DeepEqual(want.raw[i], got.raw[i]) {
			t.Errorf("by URL it renders\n%v, want\n%v", got.raw[i], want.raw[i])
		}
	}
}
