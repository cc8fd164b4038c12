package arch

import (
	"bytes"
	"go/build/constraint"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// failpoints is the build tag of programs that die on demand, for the tests.
const failpoints = "failpoints"

// What is shipped cannot be made to die at a failpoint: without the tag a program does
// not even hold the name of the variable, which with it it does.
func TestShippedProgramsCannotDieAtAFailpoint(t *testing.T) {
	t.Setenv("CGO_ENABLED", "0") // as they are shipped
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
			if holds := bytes.Contains(text, []byte("ERRAND_FAILPOINT")); holds != want {
				t.Errorf("%s built with the tags %q holds the variable's name: %v", program, tags, holds)
			}
		}
	}
}

// No other package behaves otherwise with the tag, and nothing but tests builds with it.
func TestNothingElseKnowsTheTagOfFailpoints(t *testing.T) {
	for _, s := range parsed(t) {
		for _, group := range s.file.Comments {
			for _, line := range group.List {
				expr, err := constraint.Parse(line.Text)
				if err == nil && strings.Contains(expr.String(), failpoints) && s.dir != "internal/failpoint" {
					t.Errorf("%s: %s", s.path, line.Text)
				}
			}
		}
	}
	err := walk(func(root, name string) error {
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".md") || strings.HasPrefix(name, "internal/failpoint/") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if bytes.Contains(text, []byte(failpoints)) {
			t.Errorf("%s names the tag %s", name, failpoints)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
