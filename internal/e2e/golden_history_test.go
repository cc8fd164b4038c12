package e2e

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"

	"errand/internal/sandbox"
)

var update = flag.Bool("update", false, "write testdata/histories as the programs behave now")

// TestHistoriesAreThoseOnFile holds every event that a request leaves, in the order of its stream, against a file in
// testdata/histories. To write the files again and read what changed:
//
//	go test ./internal/e2e -run TestHistoriesAreThoseOnFile -update && git diff internal/e2e/testdata
func TestHistoriesAreThoseOnFile(t *testing.T) {
	known := map[string]bool{}
	for _, s := range append(enrollScenarios(), mailScenarios()...) {
		fatalIf(t, known[s.name], "two scenarios are called %s", s.name)
		known[s.name] = true
		runInBubble(t, s.name, func(t *testing.T, b *bubble) {
			if s.lasts > 24*time.Hour {
				full(t)
			}
			s.play(t, b)
			compare(t, s.name, b.history())
		})
	}
	files, err := filepath.Glob("testdata/histories/*.txt")
	must(t, err)
	for _, file := range files {
		errorIf(t, !known[strings.TrimSuffix(filepath.Base(file), ".txt")], "%s is of no scenario", file)
	}
}

func compare(t *testing.T, name, got string) {
	file := filepath.Join("testdata", "histories", name+".txt")
	if *update {
		must(t, os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	must(t, err)
	d := diff.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n"))
	errorIf(t, d != "", "%s (-file +now):\n%s", file, d)
}

// history is everything that was stored about the scenario's request: the events in
// order, then its dead letters, and what the upstream really did.
func (b *bubble) history() string {
	var out strings.Builder
	for _, filter := range []string{"mandate.>", "mail.>"} {
		for _, e := range b.events(filter) {
			if strings.HasSuffix(e.Subject, ".other") { // is there only to be listed
				continue
			}
			fmt.Fprintf(&out, "%s\n%s\n", e.Subject, plain(b.t, e.Raw))
		}
	}
	for _, d := range b.events("dead.>") {
		fmt.Fprintf(&out, "%s\n", d.Subject)
		for _, name := range []string{"Errand-Request-Id", "Errand-Reason", "Errand-Message", "Errand-Stream", "Errand-Sequence",
			"Errand-Deliveries"} {
			fmt.Fprintf(&out, "  %s: %s\n", name, offsets(d.Header.Get(name)))
		}
	}
	o := b.oracle()
	fmt.Fprintf(&out, "calls: %v\n", o.Calls)
	fmt.Fprintf(&out, "enrolled: %d, twice: %d\n", o.Enroll.Accepted, o.Enroll.TwiceCount)
	fmt.Fprintf(&out, "served: %d, twice: %d\n", o.Mail.Recipients, o.Mail.TwiceCount)
	return out.String()
}

// plain is a body with sorted keys, and times as seconds since the bubble began.
func plain(t *testing.T, body string) string {
	t.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	err := d.Decode(&v)
	fatalIf(t, err != nil, "%v: %s", err, body)
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	must(t, e.Encode(simplify("", v)))
	return strings.TrimRight(out.String(), "\n")
}

func simplify(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = simplify(k, v[k])
		}
		if key == "secret" { // each installation has its own
			v["id"] = "8 digits"
		}
	case []any:
		for i := range v {
			v[i] = simplify("", v[i])
		}
	case string:
		if key == "keys" { // hashes of the recipients
			hashes, _ := base64.StdEncoding.DecodeString(v)
			return fmt.Sprint(len(hashes), " bytes")
		}
		return offsets(v)
	}
	return v
}

var stamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// offsets writes the times in a text as seconds since the bubble began: milliseconds are
// the servers' and the network's, and differ from run to run.
func offsets(text string) string {
	return stamps.ReplaceAllStringFunc(text, func(stamp string) string {
		at, err := time.Parse(time.RFC3339, stamp)
		if err != nil {
			return stamp
		}
		return fmt.Sprintf("%+ds", int(at.Sub(epoch).Round(time.Second)/time.Second))
	})
}

// Faults of the enroll operation that the scenarios share.
var (
	enrollRefused = sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 422,
		Body: []byte(`{"error":{"order_number":["The order number is taken."]}}`)}
	enrollBusy = sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 503}
)

// often is a fault that comes so often.
func often(n int, f sandbox.Fault) sandbox.Fault {
	f.Times = n
	return f
}

// asking is an answer that asks for patience.
func asking(operation string, status int, seconds string) sandbox.Fault {
	return sandbox.Fault{Operation: operation, Kind: sandbox.Status, Status: status, Headers: map[string]string{"Retry-After": seconds}}
}

// unknownFates are the ways in which a call's fate is not known: whether the work was done, and what the caller sees.
var unknownFates = []struct{ name, kind string }{
	{"done_and_cut", sandbox.AcceptCut}, {"cut", sandbox.Cut}, {"status_500", sandbox.Status},
	{"done_and_unreadable", sandbox.Garbage}, {"done_and_empty", sandbox.AcceptEmpty},
}

// scenario is what the upstream does with requests; the history of them is on file.
type scenario struct {
	name     string // enroll.… or mail.…; the file has the same name
	requests []any
	faults   []sandbox.Fault
	batch    int           // recipients a batch; 1000 when left out
	until    string        // ends with the first event under this filter; "" waits for all of lasts
	lasts    time.Duration // at most; ten minutes when left out
	before   func(b *bubble)
	after    func(b *bubble)
}

func (s *scenario) play(t *testing.T, b *bubble) {
	if s.before != nil {
		s.before(b)
	}
	for _, f := range s.faults {
		b.fault(f)
	}
	subject := "mail.send.requested"
	if strings.HasPrefix(s.name, "enroll.") {
		subject = "mandate.enroll.requested"
	}
	for _, r := range s.requests {
		b.publish(subject, r)
	}
	b.play(s)
	if s.after != nil {
		time.Sleep(time.Until(epoch.Add(time.Minute))) // a run ends some seconds after its event
		s.after(b)
	}
	errorIf(t, s.until != "" && b.count(s.until) == 0, "nothing under %s\n%s", s.until, b.logs)
}

// play runs the scenario's program. Its quick waits are too short to show in whole
// seconds, and it has one call of a request on its way at a time.
func (b *bubble) play(s *scenario) {
	lasts, until := cmp.Or(s.lasts, 10*time.Minute), func() bool { return s.until != "" && b.count(s.until) > 0 }
	if strings.HasPrefix(s.name, "enroll.") {
		p := b.mandates()
		p.RetryFirst = time.Millisecond
		b.run(p, lasts, until)
		return
	}
	p := b.mails()
	p.RetryFirst, p.BatchParallel = time.Millisecond, 1
	if s.batch > 0 {
		p.BatchSize = s.batch
	}
	b.run(p, lasts, until)
}

// epoch is when every bubble begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Faults of the send operation that the scenarios share.
var (
	sendRefused = sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 422,
		Body: []byte(`{"error":true,"status_code":422,"message":"The subject is not allowed.","data":{}}`)}
	sendBusy = sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 503}
	sendHeld = sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 402}
)
