package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var mutants = flag.String("sim.mutants", "", "put back the faults of testdata/mutants that match, and see them found; '.' for all")

// mostHistories is how many histories it may take to find a fault that was put back.
const mostHistories = 50_000

// Each fault that was mended, put back by a patch, is found. One that is not shows what the simulation cannot express. Without
// -sim.mutants, since that takes minutes, the patches are only applied.
func TestFaultsThatArePutBackAreFound(t *testing.T) {
	patches, err := filepath.Glob("testdata/mutants/*.patch")
	if err != nil || len(patches) == 0 {
		t.Fatalf("there are no patches: %v", err)
	}
	for _, patch := range patches {
		name := strings.TrimSuffix(filepath.Base(patch), ".patch")
		if !regexp.MustCompile(*mutants).MatchString(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			binary := filepath.Join(t.TempDir(), "sim.test")
			overlay := apply(t, patch)
			if *mutants == "" {
				return
			}
			run(t, "../..", "go", "test", "-overlay", overlay, "-c", "-o", binary, "./internal/sim")
			said, err := exec.Command(binary, "-test.run", "^TestWhateverHappensThePromisesAreKept$", "-test.v", "-sim.for", "10m",
				"-sim.from", "1", "-sim.first", "-sim.count", fmt.Sprint(mostHistories), "-sim.ignore", *ignore).CombinedOutput()
			found := regexp.MustCompile(`(\d+) histories`).FindSubmatch(said)
			if err == nil || found == nil {
				t.Fatalf("it is not found: %s", said)
			}
			seed := regexp.MustCompile(`seed (\d+):`).FindSubmatch(said)
			if seed == nil {
				t.Fatalf("it ended without a story: %s", said)
			}
			n, _ := strconv.ParseUint(string(seed[1]), 10, 64) // digits
			if f := play(t, draw(n)); f != nil {
				t.Fatalf("seed %d fails without the fault, too: %s", n, f.story)
			}
			t.Logf("found after %s histories\n%s", found[1], said)
		})
	}
}

// apply applies a patch to copies of the files that it changes, and returns the file that go build -overlay takes for them.
func apply(t *testing.T, patch string) (overlay string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text, err := os.ReadFile(patch)
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for _, file := range regexp.MustCompile(`(?m)^\+\+\+ b/(.*)$`).FindAllSubmatch(text, -1) {
		name := string(file[1])
		code, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, name)] = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), code, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	absolute, err := filepath.Abs(patch)
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, "git", "apply", "--recount", absolute)
	body, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, body, 0o644); err != nil {
		t.Fatal(err)
	}
	return overlay
}

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir = dir
	if said, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, said)
	}
}
