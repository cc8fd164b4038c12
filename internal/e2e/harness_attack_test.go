package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
)

// serverSubjects are the patterns of every subject that nats-server's own source names.
func serverSubjects(t *testing.T) (patterns []string) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/nats-io/nats-server/v2").Output()
	must(t, err)
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "server", "*.go"))
	must(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		must(t, err)
		ast.Inspect(tree, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
				if s, err := strconv.Unquote(text.Value); err == nil && strings.HasPrefix(s, "$") && strings.Contains(s, ".") &&
					!strings.ContainsAny(s, " \r\n\t/") {
					patterns = append(patterns, s)
				}
			}
			return true
		})
	}
	slices.Sort(patterns)
	patterns = slices.Compact(patterns)
	fatalIf(t, len(patterns) < 100, "nats-server's source names %d subjects, want more", len(patterns))
	return patterns
}

// expand fills in a pattern what stands in the place of a stream, and of its consumer or of whatever else comes after it.
func expand(pattern string) (subjects []string) {
	pattern = strings.NewReplacer("%s", "*", "%d", "*").Replace(strings.TrimSuffix(pattern, ".")) // what stands before a dot is a prefix
	for stream, consumer := range attacked {
		subject := strings.Replace(pattern, "*", stream, 1)
		subject = strings.Replace(subject, "*", consumer, 1)
		subject = strings.ReplaceAll(subject, "*", "x")
		for _, rest := range []string{"x", "$O.lists.M.none", "mandate.enroll.succeeded.r", "mandate.callback.received.r"} {
			subjects = append(subjects, strings.Replace(subject, ">", rest, 1))
		}
	}
	slices.Sort(subjects)
	return slices.Compact(subjects)
}

// attacked are the streams, each with one of the consumers it has.
var attacked = map[string]string{
	bus.MandateRequests: "mandate-enroll", bus.MandateEvents: "service", bus.MailDeliveries: "subscriber", bus.DeadLetters: "x",
	bus.MandateCallbacks: "x", bus.Audit: "x", bus.Keys: "x", "OBJ_lists": "x", "ERRAND": "x",
}

// ours are subjects of which nobody outside of errand's account may write the messages: of every stream, of readers' feeds, of inboxes.
func ours() (subjects []string) {
	for _, stream := range bus.Streams(bus.Limits{}) {
		for _, s := range stream.Subjects {
			subjects = append(subjects, strings.NewReplacer("*", "forged", ">", "forged").Replace(s))
		}
	}
	for _, op := range []string{"started", "succeeded", "failed", "resolved", "reopened"} {
		subjects = append(subjects, "mandate.enroll."+op+".victim", "mail.send."+op+".victim")
	}
	for _, user := range users {
		subjects = append(subjects, "_INBOX_"+user+".victim")
	}
	return append(subjects, "mail.log.turn", "errand.leader.mail.log", "mail.log.requested", "mandate.callback.received.victim",
		"audit.redrive.olga.r", "audit.redrive.ben.r", "dead.mail.send.requested", "events.service.MAIL_EVENTS", "events.subscriber.MAIL_EVENTS",
		"$O.lists.C.x", "$O.lists.M.x", "_INBOX.victim", "_R_.victim")
}

// secret is in a message that is only for those whom it names.
func secret(kind string) string { return "only-for-" + kind }

// target is an installation that is attacked: all streams, in each something secret, and with it what readers and people have.
type target struct {
	t     *testing.T
	n     *devkit.NATS
	admin *nats.Conn
	js    jetstream.JetStream

	mayWrite *regexp.Regexp // subjects that do not count as changed, or nil

	mu       sync.Mutex
	requests map[string]int // requests that came in, without what differs from one to the next
}

func newTarget(t *testing.T, config string) *target {
	t.Helper()
	n := devtest.Configured(t, config)
	w, ctx := &target{t: t, n: n, admin: connect(t, n.URL, nats.Timeout(time.Minute)), requests: map[string]int{}}, patiently(t)
	w.js, _ = jetstream.New(w.admin)
	w.must(w.js.CreateStream(ctx, bus.Streams(bus.Limits{})[0])) // KEYS, which takes no second secret
	w.must(w.js.Publish(ctx, "keys.recipients", []byte(secret("keys"))))
	must(t, devtest.Provision(ctx, w.admin))
	w.must(w.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: "lists"}))
	for subject, kind := range map[string]string{"mandate.enroll.requested": "requests", "mail.send.requested": "requests",
		"mandate.enroll.succeeded.r": "events", "mandate.callback.received.r": "callbacks",
		"mail.send.accepted.r": "events", "mail.delivery.bounced.r": "events", "dead.mail.send.requested": "dead",
		"audit.redrive.ann.r": "audit", "$O.lists.C.r": "lists"} {
		w.must(w.js.Publish(ctx, subject, []byte(secret(kind))))
	}
	w.must(w.admin.Subscribe("*.*.requested", func(m *nats.Msg) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.requests[m.Subject+" "+numbers.ReplaceAllString(string(m.Data), "0")]++
	}))
	w.must(nil, w.admin.FlushWithContext(ctx))
	return w
}

// patiently is for what a server is asked that has much to do: where a context has no end, a
// client wants each answer within five seconds.
func patiently(t *testing.T) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(stop)
	return ctx
}

// numbers are in many answers of the server's.
var numbers = regexp.MustCompile(`[0-9]+`)

func (w *target) must(_ any, err error) {
	w.t.Helper()
	must(w.t, err)
}

// serve makes the copies of the configured readers.
func (w *target) serve(readers ...string) {
	w.t.Helper()
	ctx := patiently(w.t)
	plan, err := bus.PlanReaders(ctx, w.js, readers)
	w.must(nil, err)
	w.must(nil, bus.Apply(ctx, plan, false, func(bus.Change) {}))
	for _, reader := range readers {
		nc, js := connectAs(w.t, w.n.URL, reader, nats.Timeout(time.Minute))
		plan, err := bus.PlanCopies(ctx, nc, js, reader, bus.Readable, bus.Limits{})
		w.must(nil, err)
		w.must(nil, bus.Apply(ctx, plan, false, func(bus.Change) {}))
	}
}

// accountOf are the accounts of a configuration's users.
func accountOf(t *testing.T, config string) map[string]string {
	var o server.Options
	must(t, o.ProcessConfigString(config))
	accounts := map[string]string{}
	for _, u := range o.Users {
		accounts[u.Username] = u.Account.Name
	}
	return accounts
}

// state is all that a stream of errand's is and has, but for the requests that anybody may
// add: those are looked at one by one.
func (w *target) state() map[string]string {
	w.t.Helper()
	found, ctx := map[string]string{}, patiently(w.t)
	streams := w.js.ListStreams(ctx)
	for info := range streams.Info() {
		s, err := w.js.Stream(ctx, info.Config.Name)
		w.must(s, err)
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
		w.must(info, err)
		config, _ := json.Marshal(info.Config) // as it came
		found["configuration of "+info.Config.Name] = string(config)
		if info.Config.Retention == jetstream.LimitsPolicy {
			span := fmt.Sprint(info.State.FirstSeq, " to ", info.State.LastSeq, ": ")
			if w.mayWrite != nil {
				span = ""
				maps.DeleteFunc(info.State.Subjects, func(subject string, _ uint64) bool { return w.mayWrite.MatchString(subject) })
			}
			found["messages of "+info.Config.Name] = span + fmt.Sprint(info.State.Subjects)
		}
		consumers := s.ListConsumers(ctx)
		for c := range consumers.Info() {
			config, _ := json.Marshal(c.Config)
			found["consumer "+c.Name+" of "+c.Stream] = fmt.Sprint(string(config), " paused: ", c.Paused)
		}
		w.must(nil, consumers.Err())
	}
	w.must(nil, streams.Err())
	return found
}
