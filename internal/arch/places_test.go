package arch

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// A name without a folder is in that of the file before it.
func TestEveryFileThatTheArchitectureNamesExists(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Where is what\n")
	file := regexp.MustCompile("`([A-Za-z0-9_./-]+\\.go)`")
	found := 0
	for row := range strings.Lines(table) {
		folder := ""
		for _, match := range file.FindAllStringSubmatch(row, -1) {
			name := match[1]
			if strings.Contains(name, "/") {
				folder = path.Dir(name)
			} else {
				name = path.Join(folder, name)
			}
			if _, err := os.Stat(path.Join("../..", name)); err != nil {
				t.Errorf("%s: there is no such file, in: %s", name, row)
			}
			found++
		}
	}
	if found < 100 {
		t.Errorf("%d files are named, want 100 or more: is the table where it was?", found)
	}
}
