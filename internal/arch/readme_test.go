package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What readers copy is compiled and run: every fenced block of Go in these documents, and of shell in the first two, is part
// of an example, apart from its indentation. The block of shell in docs/use/publish.md has its own test.
func TestTheSnippetsOfTheReadmeAreFromExamplesThatRun(t *testing.T) {
	examples := ""
	eachFile(t, func(name string, text []byte) {
		if strings.HasSuffix(name, "/example_test.go") || strings.HasPrefix(name, "examples/") && !strings.HasSuffix(name, ".md") {
			examples += unindented(string(text))
		}
	})
	fenced := regexp.MustCompile("(?ms)^```(go|sh)\n(.*?)^```$")
	n := 0
	for _, document := range []string{"README.md", "examples/README.md", "docs/use/publish.md", "docs/use/outcomes.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", document))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range fenced.FindAllStringSubmatch(string(text), -1) {
			if block[1] == "sh" && strings.HasPrefix(document, "docs/") {
				continue
			}
			n++
			if !strings.Contains(examples, unindented(block[2])) {
				t.Errorf("%s: no example contains this:\n%s", document, block[2])
			}
		}
	}
	if n < 5 {
		t.Errorf("%d blocks found", n)
	}
}

func unindented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimLeft(line, " \t"))
	}
	return b.String()
}
