package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

var shown = regexp.MustCompile("\\berrand [a-z][^|#<>`,;)\n]* --[^|#<>`,;)\n]*")

// What documents and alerts tell people to type has flags that there are.
func TestShownCommandsHaveTheirFlags(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(new(cli), kong.Name("errand"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, pattern := range []string{"*.md", "docs/*/*.md", "docs/*/*/*.md", "deploy/*/*.md", "deploy/k8s/components/*/*.yaml"} {
		paths, _ := filepath.Glob(filepath.Join("../..", pattern)) // the patterns are valid
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, command := range shown.FindAllString(string(text), -1) {
				found++
				if c, err := kong.Trace(parser, strings.Fields(command)[1:]); err != nil {
					t.Error(err)
				} else if c.Error != nil && strings.HasPrefix(c.Error.Error(), "unknown flag") {
					t.Errorf("%s: %s: %v", path, command, c.Error)
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("%d commands found, want 50 or more", found)
	}
}
