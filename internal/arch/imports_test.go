// Package arch tests the structure of the project: which package may import which,
// what a main looks like, and what no file may contain. It has tests only.
//
//	imports_test.go  what a package depends on, by `go list -deps`
//	source_test.go   what its source looks like, by go/parser
//	tree_test.go     what no file of the tree may contain
//	links_test.go    what documents name: pages, headings, rooms
package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "errand"

var programs = []string{"cmd/mandate-consumer", "cmd/mail-consumer", "cmd/log-poller", "cmd/transaction-poller", "cmd/callback-receiver", "cmd/console"}

// A handler that does not import NATS cannot acknowledge, and is tested without a server.
func TestHandlersAndHistoryDoNotImportNATS(t *testing.T) {
	for _, pkg := range []string{"internal/requests/enroll", "internal/requests/send", "internal/requests/query", "internal/mandates", "internal/lists/sweep", "internal/lists/deliveries", "internal/lists/transactions", "internal/history"} {
		forbid(t, pkg, func(dep string) bool { return under(dep, "github.com/nats-io") })
	}
}

// What makes spans is in one package, for those who take requests and wire programs.
func TestNobodyButTheWiringKnowsOfTraces(t *testing.T) {
	for _, pkg := range []string{"internal/requests/enroll", "internal/requests/send", "internal/requests/query", "internal/requests/attempt", "internal/requests/hold", "internal/lists/sweep", "internal/lists/deliveries",
		"internal/history", "internal/bus", "pkg/errand"} {
		forbid(t, pkg, func(dep string) bool { return under(dep, "go.opentelemetry.io") })
	}
	for _, pkg := range append([]string{"cmd/errand"}, programs...) { // the collector is asked by HTTP
		forbid(t, pkg, func(dep string) bool { return under(dep, "google.golang.org/grpc") })
	}
}

func TestProgramsDoNotLinkTheServer(t *testing.T) {
	for _, pkg := range append([]string{"cmd/console"}, programs...) {
		forbid(t, pkg, func(dep string) bool { return under(dep, "github.com/nats-io/nats-server") })
	}
}

// SQLite takes a minute to compile and some megabytes of a program: the console alone has it.
func TestTheIndexAloneLinksSQLite(t *testing.T) {
	packages, err := list()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range packages {
		name := strings.TrimPrefix(pkg, module+"/")
		if !slices.Contains([]string{"internal/oncall/index", "internal/oncall/console", "cmd/console"}, name) {
			forbid(t, name, func(dep string) bool { return under(dep, "modernc.org") || dep == module+"/internal/oncall/index" })
		}
	}
}

// It is told what happens, and decides nothing: whoever calls an upstream, or writes a
// history, knows no index.
func TestTheIndexWritesNoHistory(t *testing.T) {
	forbid(t, "internal/oncall/index", ours("internal/requests/attempt", "internal/requests/consumer", "internal/requests/enroll", "internal/requests/send", "internal/oncall/act"))
}

func TestNothingButTestsLinksWhatIsStoredInMemory(t *testing.T) {
	for _, pkg := range append([]string{"cmd/errand"}, programs...) {
		forbid(t, pkg, ours("internal/history/historytest", "internal/lists/sink/sinktest"))
	}
}

// A sandbox that shares types with the client proves nothing about the upstream. What its
// pages look like, it may share.
func TestSandboxImportsNothingOfTheProjectButTheStyleOfPages(t *testing.T) {
	forbid(t, "internal/sandbox", func(dep string) bool { return under(dep, module) && !under(dep, module+"/internal/style") })
	forbid(t, "internal/style", func(dep string) bool { return under(dep, module) || !standard(dep) })
}

// Other projects import these two packages, so they have no dependencies.
func TestMessagesImportTheStandardLibraryOnly(t *testing.T) {
	forbid(t, "pkg/messages", func(dep string) bool { return !standard(dep) })
}

// What the schemas are made and tested with is no part of what is shipped: `errand schema`
// prints what is committed.
func TestNothingThatIsShippedMakesSchemas(t *testing.T) {
	for _, pkg := range append([]string{"cmd/errand", "docs/schemas", "pkg/messages"}, programs...) {
		forbid(t, pkg, func(dep string) bool {
			return under(dep, module+"/internal/schema") || under(dep, "github.com/santhosh-tekuri/jsonschema") || under(dep, "go.yaml.in/yaml/v3")
		})
	}
}

// Whoever uses errand links no more of it than that.
func TestTheClientOfErrandImportsMessagesAndNATSOnly(t *testing.T) {
	forbid(t, "pkg/errand", func(dep string) bool {
		return under(dep, module) && dep != module+"/pkg/messages" || under(dep, "github.com") && !under(dep, "github.com/nats-io") && !under(dep, "github.com/klauspost/compress")
	})
}

func TestClientsImportTheStandardLibraryAndThemselvesOnly(t *testing.T) {
	for _, pkg := range []string{"pkg/clients", "pkg/clients/mandate", "pkg/clients/mail"} {
		forbid(t, pkg, func(dep string) bool { return !standard(dep) && !under(dep, module+"/pkg/clients") })
	}
}

// The bus is NATS and nothing else: it imports neither handlers nor the poller.
func TestTheBusKnowsNoHandlerAndNoPoller(t *testing.T) {
	forbid(t, "internal/bus", ours("internal/requests/enroll", "internal/requests/send", "internal/requests/query", "internal/requests/consumer",
		"internal/lists/sweep", "internal/lists/deliveries", "internal/lists/sink"))
}

// A sweep reads any paged list, not only the sending log.
func TestTheSweepKnowsNoMail(t *testing.T) {
	forbid(t, "internal/lists/sweep", ours("pkg/clients/mail", "pkg/messages", "internal/lists/deliveries", "internal/lists/sink"))
}

// ours reports whether a dependency is one of these packages of the module.
func ours(packages ...string) func(dep string) bool {
	return func(dep string) bool {
		name, ok := strings.CutPrefix(dep, module+"/")
		return ok && slices.Contains(packages, name)
	}
}

// forbid fails the test for every wrong dependency of pkg, direct or not.
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

// standard recognizes the standard library by the first element of the path, which has
// no dot.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return first != module && !strings.Contains(first, ".")
}

// list returns the dependencies of every package of the module.
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
