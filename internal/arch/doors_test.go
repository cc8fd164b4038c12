// Package arch tests the structure of the project: which room may import which, what a main
// looks like, and what no file may contain. It has tests only.
//
//	doors_test.go      which room may import which, and which libraries, by `go list`
//	source_test.go     what Go files look like, by go/parser
//	tree_test.go       what no file of the tree may contain, and how wide its lines are
//	links_test.go      what documents name: pages, headings, rooms
//	readme_test.go     snippets come from examples that run
//	guarantees_test.go every guarantee has its tests
//	failpoint_test.go  shipped programs have no failpoints
//	rename_test.go     the module builds under another path
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

var programs = []string{"cmd/mandate-consumer", "cmd/mail-consumer", "cmd/log-poller", "cmd/transaction-poller", "cmd/callback-receiver",
	"cmd/console"}

// doors lists what the packages of each room may import, beside the standard library and their room. A package belongs to
// the longest name here that its path begins with. A door is a library, or a folder with all below; without pkg or docs it is
// in internal. Tests import what they like.
var doors = map[string]string{
	"cmd": "programs oncall/console",
	// The tool for people. It alone links an embedded server, for its demo and its sandbox.
	"cmd/errand": "programs oncall/act oncall/inspect bus retry sandbox style typo docs/schemas pkg/errand pkg/messages " +
		"kong isatty nats.go nuid zerolog x/term",

	// What other projects import has no dependencies but, in the client, NATS.
	"pkg/messages": "wire",
	"pkg/clients":  "pkg/messages loopback", // reasons, texts of events, requests as the documents have them
	"pkg/errand":   "pkg/messages nats.go",
	"docs/schemas": "",

	// For tests of services: an installation in their process.
	"pkg/errandtest": "programs sandbox bus wire oncall/inspect pkg/errand pkg/messages nats.go zerolog",

	"internal/programs": "requests lists mandates callback bus history retry telemetry throttle failpoint keyfile typo " +
		"pkg/clients pkg/messages kong isatty nats.go prometheus zerolog x/time",

	// A handler cannot see NATS: it cannot acknowledge, and is tested without a server. Requests and lists never meet.
	"internal/requests":          "mandates history retry failpoint pkg/clients pkg/messages zerolog x/sync",
	"internal/requests/consumer": "requests bus history retry telemetry failpoint pkg/clients pkg/messages nats.go zerolog",
	"internal/lists":             "lists/sweep mandates history retry failpoint pkg/clients pkg/messages zerolog",
	"internal/lists/sweep":       "retry failpoint pkg/clients zerolog", // any paged list, not only the sending log
	"internal/lists/sink":        "lists bus history retry failpoint pkg/messages nats.go",
	"internal/mandates":          "history retry pkg/clients pkg/messages zerolog",
	"internal/names":             "pkg/messages x/text",
	"internal/callback":          "bus loopback retry pkg/clients pkg/messages x/net x/time",

	// The index decides nothing, so it sees neither what calls nor what acts. It alone has SQLite: a minute to compile.
	"internal/oncall":         "names bus history lists/deliveries retry failpoint style pkg/messages nats.go zerolog x/sync",
	"internal/oncall/access":  "programs loopback zerolog x/net",
	"internal/oncall/index":   "oncall/inspect names bus history keyfile retry pkg/messages nats.go zerolog sqlite",
	"internal/oncall/console": "oncall names programs bus history mandates retry style pkg/messages nats.go zerolog",

	// The bus is NATS and nothing else; the history knows no NATS.
	"internal/bus":       "history throttle loopback retry keyfile pkg/messages nats.go zerolog x/sync",
	"internal/history":   "retry failpoint pkg/messages",
	"internal/throttle":  "retry zerolog x/time",
	"internal/retry":     "pkg/clients backoff",
	"internal/telemetry": "history retry pkg/clients pkg/messages otel x/time zerolog",
	"internal/failpoint": "", "internal/wire": "", "internal/keyfile": "", "internal/loopback": "", "internal/typo": "", "internal/style": "",

	// Keys of recipients. The client has none, and does not bring the library.
	"internal/wire/mailkey": "wire siphash",

	// A sandbox that shares types with the clients proves nothing about the services.
	"internal/sandbox":        "loopback style",
	"internal/sandbox/devkit": "bus nats.go nats-server",

	// What makes the schemas is not shipped: `errand schema` prints what is committed.
	"internal/schema": "programs style pkg/messages kong yaml",
	"internal/arch":   "", "internal/sim": "", "internal/e2e": "",
	"internal/sim/sinktest": "lists history pkg/messages", // the sink of lists, in memory
}

// libraries are the modules that doors name.
var libraries = map[string]string{
	"backoff": "github.com/cenkalti/backoff", "isatty": "github.com/mattn/go-isatty", "kong": "github.com/alecthomas/kong",
	"nats.go": "github.com/nats-io/nats.go", "nats-server": "github.com/nats-io/nats-server", "nuid": "github.com/nats-io/nuid",
	"otel":       "go.opentelemetry.io google.golang.org/protobuf",
	"prometheus": "github.com/prometheus/client_golang", "sqlite": "modernc.org/sqlite", "x/net": "golang.org/x/net",
	"x/sync": "golang.org/x/sync", "x/text": "golang.org/x/text", "x/term": "golang.org/x/term", "x/time": "golang.org/x/time",
	"siphash": "github.com/dchest/siphash", "yaml": "go.yaml.in/yaml", "zerolog": "github.com/rs/zerolog",
}

func TestRoomsImportEachOtherThroughDoorsOnly(t *testing.T) {
	for _, pkg := range list(t) {
		name := strings.TrimPrefix(pkg.ImportPath, module+"/")
		from, open := room(name), []string{}
		if from == "" {
			t.Errorf("%s is in no room", name)
		}
		for door := range strings.FieldsSeq(doors[from]) {
			switch library, ok := libraries[door]; {
			case ok:
				open = append(open, strings.Fields(library)...)
			case door == "pkg/messages": // and what it is made of
				open = append(open, module+"/"+door, module+"/internal/wire")
			case under(door, "pkg"), under(door, "docs"):
				open = append(open, module+"/"+door)
			default:
				open = append(open, module+"/internal/"+door)
			}
		}
		for _, dep := range pkg.Imports {
			to, ours := strings.CutPrefix(dep, module+"/")
			switch {
			case ours && strings.HasSuffix(to, "test") && !strings.HasSuffix(name, "test"):
				t.Errorf("%s must not import %s, which is for tests", name, to)
			case !strings.Contains(dep, ".") && !ours, ours && room(to) == from: // the standard library has no dot
			case !slices.ContainsFunc(open, func(door string) bool { return under(dep, door) }):
				t.Errorf("%s must not import %s: %s has no such door", name, dep, from)
			}
		}
	}
}

// Traces go by HTTP: gRPC would double what a program links. SQLite is the console's, the NATS server the tool's, for its demo.
func TestProgramsLinkOnlyWhatTheyNeed(t *testing.T) {
	for _, pkg := range list(t) {
		name := strings.TrimPrefix(pkg.ImportPath, module+"/")
		for library, owner := range map[string]string{"google.golang.org/grpc": "", "modernc.org/sqlite": "cmd/console",
			"github.com/nats-io/nats-server": "cmd/errand"} {
			links := slices.ContainsFunc(pkg.Deps, func(dep string) bool { return under(dep, library) })
			if program := under(name, "cmd") || owner == ""; program && links && name != owner {
				t.Errorf("%s links %s", name, library)
			}
			if !links && name == owner {
				t.Errorf("%s does not link %s: is the list read rightly?", name, library)
			}
		}
	}
}

// A service that publishes links nats.go and what that needs.
func TestTheClientBringsNATSAlone(t *testing.T) {
	for _, pkg := range list(t) {
		for _, dep := range pkg.Deps {
			if first, _, _ := strings.Cut(dep, "/"); pkg.ImportPath == module+"/pkg/errand" && (strings.Contains(first, ".") || first == module) &&
				!slices.ContainsFunc([]string{"github.com/nats-io/nats.go", "github.com/nats-io/nkeys", "github.com/nats-io/nuid",
					"github.com/klauspost/compress", "golang.org/x/crypto", "golang.org/x/sys", module + "/pkg", module + "/internal/wire"},
					func(open string) bool { return under(dep, open) }) {
				t.Errorf("pkg/errand brings %s", dep)
			}
		}
	}
}

// room is the longest name of a room that a package's path begins with.
func room(name string) (longest string) {
	for room := range doors {
		if under(name, room) && len(room) > len(longest) {
			longest = room
		}
	}
	return longest
}

func under(path, parent string) bool {
	return path == parent || strings.HasPrefix(path, parent+"/")
}

// listed is a package as `go list` shows it, without its tests.
type listed struct {
	ImportPath    string
	Imports, Deps []string
}

func list(t *testing.T) []listed {
	t.Helper()
	packages, err := listAll()
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

var listAll = sync.OnceValues(func() (packages []listed, err error) {
	out, err := run("go", "list", "-json=ImportPath,Imports,Deps", module+"/...")
	if err != nil {
		return nil, err
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg listed
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, pkg)
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
