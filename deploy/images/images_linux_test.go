package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Run from the image's own bytes, on the processor that is here.
func TestProgramsOfTheImagesRun(t *testing.T) {
	dir := t.TempDir()
	run := func(program string, args ...string) (string, error) {
		path := filepath.Join(dir, program)
		if _, err := os.Stat(path); err != nil {
			img := loaded(t, filepath.Join(dist, program+"-"+runtime.GOARCH+".tar"), "localhost/errand/"+program+":1.2.3")
			if err := os.WriteFile(path, contents(t, img).text[program], 0o755); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(path, args...)
		cmd.Env = []string{} // as bare as in a container
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
	for _, program := range programs {
		if said, err := run(program, "--help"); err != nil || !strings.Contains(said, program) {
			t.Errorf("%s --help: %v\n%s", program, err, said)
		}
	}
	if said, err := run("errand", "demo", "--help"); err == nil || !strings.Contains(said, "this build has no demo") {
		t.Errorf("errand demo: %v\n%s", err, said)
	}
}
