package arch

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"errand/internal/sandbox/devkit/devtest"
)

// failpoints is the build tag of programs that can be killed at a failpoint, for tests.
const failpoints = "failpoints"

// Only a program built with the tag contains the name of the environment variable.
func TestShippedProgramsCannotBeKilledAtAFailpoint(t *testing.T) {
	devtest.Full(t)
	t.Setenv("CGO_ENABLED", "0") // as in shipped programs
	for tags, want := range map[string]bool{"": false, failpoints: true} {
		dir := t.TempDir()
		args := []string{"build", "-race=false", "-trimpath", "-buildvcs=false", "-tags=" + tags, "-o", dir + string(filepath.Separator)}
		for _, program := range programs {
			args = append(args, module+"/"+program)
		}
		if _, err := run("go", args...); err != nil {
			t.Fatal(err)
		}
		for _, program := range programs {
			text, err := os.ReadFile(filepath.Join(dir, filepath.Base(program)))
			if err != nil {
				t.Fatal(err)
			}
			if contains := bytes.Contains(text, []byte("ERRAND_FAILPOINT")); contains != want {
				t.Errorf("%s built with the tags %q contains the variable's name: %v", program, tags, contains)
			}
		}
	}
}

// No other package depends on the tag, and only tests build with it.
func TestNothingElseUsesTheTagOfFailpoints(t *testing.T) {
	condition := regexp.MustCompile(`(?m)^//go:build.*\b` + failpoints + `\b`)
	eachFile(t, func(name string, text []byte) {
		switch {
		case strings.HasSuffix(name, ".md"), strings.HasPrefix(name, "internal/failpoint/"):
		case !strings.HasSuffix(name, "_test.go") && bytes.Contains(text, []byte(failpoints)), condition.Match(text):
			t.Errorf("%s names the tag %s", name, failpoints)
		}
	})
}
