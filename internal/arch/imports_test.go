// Package arch holds the shape of the project still: who may know whom, what a
// main looks like, and what no file may say. It has tests only.
//
//	imports_test.go  what a package links, over `go list -deps`
//	source_test.go   what its source looks like, over go/parser
//	tree_test.go     what no file of the tree may say
package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

const module = "errand"

var programs = []string{"cmd/mandate-consumer", "cmd/mail-consumer", "cmd/log-poller"}

// A handler that cannot see NATS cannot acknowledge, and is tested without a broker.
func TestHandlersAndHistoryCannotSeeNATS(t *testing.T) {
	for _, pkg := range []string{"internal/enroll", "internal/send", "internal/query", "internal/poll", "internal/history"} {
		forbid(t, pkg, func(dep string) bool { return under(dep, "github.com/nats-io") })
	}
}

func TestProgramsDoNotLinkTheServer(t *testing.T) {
	for _, pkg := range programs {
		forbid(t, pkg, func(dep string) bool { return under(dep, "github.com/nats-io/nats-server") })
	}
}

// A stand-in that shares types with the client proves nothing about the upstream.
func TestSandboxCannotSeeTheProject(t *testing.T) {
	forbid(t, "internal/sandbox", func(dep string) bool { return under(dep, module) })
}

// Others import these two; they bring nothing along.
func TestMessagesNeedTheStandardLibraryOnly(t *testing.T) {
	forbid(t, "pkg/messages", func(dep string) bool { return !standard(dep) })
}

func TestClientsNeedTheStandardLibraryAndThemselvesOnly(t *testing.T) {
	for _, pkg := range []string{"pkg/clients", "pkg/clients/mandate", "pkg/clients/mail"} {
		forbid(t, pkg, func(dep string) bool { return !standard(dep) && !under(dep, module+"/pkg/clients") })
	}
}

// forbid fails the test for every dependency of pkg, direct or not, that is wrong.
func forbid(t *testing.T, pkg string, wrong func(dep string) bool) {
	t.Helper()
	packages, err := list()
	if err != nil {
		t.Fatal(err)
	}
	deps, ok := packages[module+"/"+pkg]
	if !ok {
		t.Errorf("%s does not exist", pkg)
	}
	for _, dep := range deps {
		if wrong(dep) {
			t.Errorf("%s must not depend on %s", pkg, dep)
		}
	}
}

func under(path, parent string) bool {
	return path == parent || strings.HasPrefix(path, parent+"/")
}

// standard tells the standard library by its first element, which has no dot.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return first != module && !strings.Contains(first, ".")
}

// list gives what every package of the module depends on, itself not counted.
var list = sync.OnceValues(func() (map[string][]string, error) {
	out, err := run("go", "list", "-json=ImportPath,Deps", module+"/...")
	if err != nil {
		return nil, err
	}
	packages := map[string][]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg struct {
			ImportPath string
			Deps       []string
		}
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages[pkg.ImportPath] = pkg.Deps
	}
})

func run(name string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(err, errors.New(stderr.String()))
	}
	return out, nil
}
