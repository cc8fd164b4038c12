package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestEveryPackageHasAComment(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range parsed(t) {
		// A package that has only tests has its comment in one of them.
		documented[s.dir] = documented[s.dir] || s.file.Doc.Text() != ""
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment", dir)
		}
	}
}

// named are the files in a package's comment, but for what is elsewhere.
var named = regexp.MustCompile(`(?:^|[\t ,])([a-z_0-9]+\.go)\b`)

func TestAPackagesCommentNamesFilesThatAreThere(t *testing.T) {
	files, found := map[string]bool{}, 0
	for _, s := range parsed(t) {
		files[s.path] = true
	}
	for _, s := range parsed(t) {
		for _, m := range named.FindAllStringSubmatch(s.file.Doc.Text(), -1) {
			if found++; !files[path.Join(s.dir, m[1])] && m[1] != "nats.go" {
				t.Errorf("%s names %s, which is not there", s.path, m[1])
			}
		}
	}
	if found < 80 {
		t.Errorf("%d names found, want 80 or more", found)
	}
}

func TestMainIsOneStatement(t *testing.T) {
	found := 0
	for _, s := range parsed(t) {
		for _, decl := range s.file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || s.test || s.file.Name.Name != "main" || fn.Recv != nil || fn.Name.Name != "main" {
				continue
			}
			if n := len(fn.Body.List); n != 1 {
				t.Errorf("%s: main has %d statements, want 1", s.path, n)
			}
			if strings.HasPrefix(s.dir, "cmd/") {
				found++
			}
		}
	}
	if want := len(programs) + 1; found != want {
		t.Errorf("%d mains in cmd, want %d", found, want)
	}
}

// A program ends in one place, after its cleanups have run. The examples are separate modules and cannot import that place.
func TestOnlyProgramsEndsTheProcess(t *testing.T) {
	var in []string
	for _, s := range parsed(t) {
		if !s.test {
			in = append(in, slices.Repeat([]string{s.dir}, calls(s.file, s.file, "os", "Exit", true))...)
		}
	}
	if want := []string{"examples/go", "examples/service", "internal/programs"}; !slices.Equal(in, want) {
		t.Errorf("os.Exit is called in %q, want once in each of %q", in, want)
	}
}

// In a bubble of testing/synctest a sleep takes no time and is exact; elsewhere it is a guess. Packages with bubbles
// may sleep in helpers and in function literals, other packages nowhere; no test sleeps in its own body.
func TestTestsSleepInBubblesOnly(t *testing.T) {
	bubbles := map[string]bool{}
	for _, s := range parsed(t) {
		for _, pkg := range []string{"testing/synctest", module + "/internal/sandbox/devkit/devtest"} {
			bubbles[s.dir] = bubbles[s.dir] || importName(s.file, pkg) != ""
		}
	}
	for _, s := range parsed(t) {
		if !s.test {
			continue
		}
		if !bubbles[s.dir] && calls(s.file, s.file, "time", "Sleep", true) > 0 {
			t.Errorf("%s sleeps, and its package has no bubbles", s.path)
		}
		for _, decl := range s.file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if ok && strings.HasPrefix(fn.Name.Name, "Test") && calls(s.file, fn, "time", "Sleep", false) > 0 {
				t.Errorf("%s: %s sleeps outside a bubble", s.path, fn.Name.Name)
			}
		}
	}
}

type source struct {
	path, dir string // from the module's root, with slashes
	test      bool
	file      *ast.File
}

func parsed(t *testing.T) []source {
	t.Helper()
	sources, err := parseTree()
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// parseTree reads every Go file of the module, including those behind build tags.
var parseTree = sync.OnceValues(func() (sources []source, err error) {
	err = walk(func(root, name string) error {
		if path.Ext(name) != ".go" || strings.Contains("/"+name, "/testdata/") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		sources = append(sources, source{name, path.Dir(name), strings.HasSuffix(name, "_test.go"), file})
		return nil
	})
	return sources, err
})

// eachFile calls f with every regular file of the tree and its text.
func eachFile(t *testing.T, f func(name string, text []byte)) {
	t.Helper()
	err := walk(func(root, name string) error {
		text, err := os.ReadFile(filepath.Join(root, name))
		f(name, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// walk visits the regular files of the tree; name is relative to root, with slashes.
func walk(visit func(root, name string) error) error {
	mod, err := run("go", "env", "GOMOD")
	if err != nil {
		return err
	}
	root := filepath.Dir(strings.TrimSpace(string(mod)))
	return filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		if d.IsDir() && (name == ".git" || name == "bin" || name == "dist" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if !d.Type().IsRegular() || name == ".git" { // in a worktree it is a file
			return nil
		}
		return visit(root, filepath.ToSlash(name))
	})
}

// calls counts the mentions of pkg.fn below node, under whatever name file imports pkg; in function
// literals too if literals is true.
func calls(file *ast.File, node ast.Node, pkg, fn string, literals bool) (n int) {
	local := importName(file, pkg)
	ast.Inspect(node, func(node ast.Node) bool {
		if sel, ok := node.(*ast.SelectorExpr); ok && types.ExprString(sel) == local+"."+fn {
			n++
		}
		_, literal := node.(*ast.FuncLit)
		return literals || !literal
	})
	return n
}

// importName is the name under which file imports pkg; "" if it does not import it.
func importName(file *ast.File, pkg string) string {
	for _, spec := range file.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err != nil || p != pkg {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(pkg)
	}
	return ""
}
