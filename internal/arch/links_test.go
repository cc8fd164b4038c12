package arch

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	page    = regexp.MustCompile(`\bdocs/[a-z0-9/-]+\.(?:md|svg)(?:#[a-z0-9-]+)?`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	rule    = regexp.MustCompile(`^\|[-:| ]+\|$`)
	unsaid  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Every link of a document, and every page that a program, a manifest or a test names, exists, with its heading.
func TestEveryLinkLeadsToAPageAndItsHeading(t *testing.T) {
	t.Parallel()
	anchors := map[string]map[string]bool{}
	found := 0
	err := walk(func(root, name string) error {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		var targets []string
		targets = append(targets, page.FindAllString(string(text), -1)...)
		if strings.HasSuffix(name, ".md") {
			targets = targets[:0] // a page is named by its link there
			for _, m := range link.FindAllStringSubmatch(string(text), -1) {
				target, anchor, _ := strings.Cut(m[1], "#")
				if target == "" {
					target = path.Base(name)
				}
				if !strings.Contains(target, ":") {
					targets = append(targets, path.Join(path.Dir(name), target)+"#"+anchor)
				}
			}
		}
		for _, target := range targets {
			found++
			file, anchor, _ := strings.Cut(target, "#")
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s leads to %s, which does not exist", name, file)
			} else if anchor != "" && !headings(t, anchors, root, file)[anchor] {
				t.Errorf("%s leads to %s, which has no such heading", name, target)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 150 {
		t.Errorf("%d links found, want 150 or more", found)
	}
}

// headings returns the anchors that GitHub makes of a page's headings.
func headings(t *testing.T, known map[string]map[string]bool, root, file string) map[string]bool {
	if known[file] == nil {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		known[file] = map[string]bool{}
		for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
			known[file][strings.ReplaceAll(unsaid.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
		}
	}
	return known[file]
}

// A blank line inside a table ends it: the rows after it are shown as text.
func TestEveryTableRowFollowsAHead(t *testing.T) {
	t.Parallel()
	tables := 0
	eachFile(t, func(name string, text []byte) {
		if !strings.HasSuffix(name, ".md") {
			return
		}
		lines := append(strings.Split(string(text), "\n"), "")
		for i, line := range lines {
			if !strings.HasPrefix(line, "|") || i > 0 && strings.HasPrefix(lines[i-1], "|") {
				continue
			}
			if tables++; !rule.MatchString(lines[i+1]) {
				t.Errorf("%s: no head before the row %s", name, line)
			}
		}
	})
	if tables < 50 {
		t.Errorf("%d tables found, want 50 or more", tables)
	}
}

// The tree that a newcomer reads is the tree that there is: each entry exists, and no package is outside of it.
func TestTheTreeOfRoomsNamesEveryPackage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/why/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tree, _ := strings.Cut(string(text), "\n## Rooms\n")
	tree, _, _ = strings.Cut(tree, "\n## ")
	var rooms []string
	for _, m := range regexp.MustCompile(`(?m)^    ([a-z0-9/]+)  `).FindAllStringSubmatch(tree, -1) {
		if _, err := os.Stat(filepath.Join("../..", m[1])); err != nil {
			t.Errorf("%s does not exist", m[1])
		}
		rooms = append(rooms, module+"/"+m[1])
	}
	for _, pkg := range list(t) {
		inside := func(room string) bool { return under(pkg.ImportPath, room) }
		if !slices.ContainsFunc(rooms, inside) && pkg.ImportPath != module+"/docs/schemas" {
			t.Errorf("%s is in no room", pkg.ImportPath)
		}
	}
}
