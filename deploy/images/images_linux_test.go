package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The programs run as they are in the images, for the architecture of this machine.
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
		cmd.Env = []string{} // as in a container
		output, err := cmd.CombinedOutput()
		return string(output), err
	}
	for _, program := range programs {
		if output, err := run(program, "--help"); err != nil || !strings.Contains(output, program) {
			t.Errorf("%s --help: %v\n%s", program, err, output)
		}
	}
	if output, err := run("errand", "demo", "--help"); err == nil || !strings.Contains(output, "this build has no demo") {
		t.Errorf("errand demo: %v\n%s", err, output)
	}
}
