package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
)

// build is a directory of programs, shared by the tests that run at once: the first
// of them builds, the last one cleans up.
type build struct {
	sync.Mutex
	tags  string
	tool  bool // errand too
	users int
	dir   string
	err   error
}

// releaseBuild has the programs as they are shipped; the programs of failpointBuild die at the failpoint that
// ERRAND_FAILPOINT names.
var releaseBuild, failpointBuild = &build{}, &build{tags: "failpoints"}

// toolBuild is failpointBuild with errand, the tool for people.
var toolBuild = &build{tags: "failpoints,nodemo", tool: true}

// full skips the test in -short. Building programs and starting brokers imply it.
func full(t *testing.T) {
	t.Helper()
	devtest.Full(t)
}

// programs returns the directory of the programs.
func (b *build) programs(t *testing.T) string {
	t.Helper()
	full(t)
	b.Lock()
	defer b.Unlock()
	if b.users == 0 {
		b.dir, b.err = os.MkdirTemp("", "errand-e2e-")
		if b.err == nil {
			command := exec.CommandContext(t.Context(), "go", "build", "-race=false", "-trimpath", "-buildvcs=false", "-tags="+b.tags,
				"-o", b.dir+string(filepath.Separator), "errand/cmd/mandate-consumer", "errand/cmd/mail-consumer", "errand/cmd/log-poller",
				"errand/cmd/transaction-poller", "errand/cmd/callback-receiver", "errand/cmd/console")
			if b.tool {
				command.Args = append(command.Args, "errand/cmd/errand")
			}
			command.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := command.CombinedOutput(); err != nil {
				b.err = fmt.Errorf("%v: %w\n%s", command, err, out)
			}
		}
	}
	b.users++
	t.Cleanup(func() {
		b.Lock()
		defer b.Unlock()
		if b.users--; b.users == 0 {
			_ = os.RemoveAll(b.dir)
		}
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.dir
}

// process is one run of a program.
type process struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	output output
	ended  chan struct{} // closed when it has ended and all that it said is here
	status int           // once it has ended; -1 by a signal

	mu          sync.Mutex
	endExpected bool // a test ends it
}

// launch starts a program with this environment and no other.
func launch(t *testing.T, dir, program string, env []string, args ...string) (*process, error) {
	p := &process{t: t, name: program, ended: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(dir, program), args...) // the test ends it, not a context
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() { // waited for over ended by kill, which every process meets
		_ = p.cmd.Wait() // the status says it all
		p.status = p.cmd.ProcessState.ExitCode()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) signal(s os.Signal) {
	err := p.cmd.Process.Signal(s)
	errorIf(p.t, err != nil && !errors.Is(err, os.ErrProcessDone), "%v to %s: %v", s, p.name, err)
}

func (p *process) expectEnd() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endExpected = true
}

// kill ends the process as a crash does, if it still runs.
func (p *process) kill() {
	p.expectEnd()
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// stop asks the process to end and wants it to do so in order, within a time.
func (p *process) stop(within time.Duration) {
	p.t.Helper()
	p.expectEnd()
	p.signal(syscall.SIGTERM)
	p.wantStatus(0, within)
}

// await waits for the process to end.
func (p *process) await(within time.Duration) {
	p.t.Helper()
	p.expectEnd()
	select {
	case <-p.ended:
	case <-time.After(within):
		p.t.Fatalf("%s still runs after %v\n%s", p.name, within, p.lastOutput())
	}
}

// wantStatus waits for the process to end with a status.
func (p *process) wantStatus(status int, within time.Duration) {
	p.t.Helper()
	p.await(within)
	if p.status != status {
		p.t.Fatalf("%s: exit status %d, want %d\n%s", p.name, p.status, status, p.lastOutput())
	}
}

// pause sends SIGSTOP; resume lets the process go on.
func (p *process) pause()  { p.signal(syscall.SIGSTOP) }
func (p *process) resume() { p.signal(syscall.SIGCONT) }

func (p *process) exited() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *process) exitedUnexpectedly() bool {
	if !p.exited() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.endExpected
}

// logged reports whether the process wrote a line that holds all of texts.
func (p *process) logged(texts ...string) bool { return p.logLine(texts...) != "" }

func (p *process) logLine(texts ...string) string {
	for line := range strings.Lines(p.output.String()) {
		if holds(line, texts) {
			return line
		}
	}
	return ""
}

// holds reports whether all words are in a text.
func holds(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// get reads a page of the process's admin server.
func (p *process) get(path string) (status int, body string) {
	p.t.Helper()
	var line struct {
		Addr string `json:"addr"`
	}
	if err := json.Unmarshal([]byte(p.logLine("admin server listens")), &line); err != nil {
		p.t.Fatalf("%s does not say where its admin server is: %v\n%s", p.name, err, p.lastOutput())
	}
	client := &http.Client{Timeout: time.Minute}
	r, err := client.Get("http://" + line.Addr + path)
	must(p.t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	must(p.t, err)
	_, _ = p.output.Write(text) // a page must keep the secrets too
	return r.StatusCode, string(text)
}

// says reports whether /readyz answers a status in these words; it waits for the admin server to listen.
func (p *process) says(status int, words ...string) func() bool {
	return func() bool {
		if !p.logged("admin server listens", "\n") {
			return false
		}
		got, page := p.get("/readyz")
		return got == status && holds(page, words)
	}
}

// wantNoLeaks fails the test when the output holds something that nobody may see.
func (p *process) wantNoLeaks() {
	p.t.Helper()
	for _, leak := range leaks {
		line := p.logLine(leak)
		errorIf(p.t, line != "", "%s shows %q: %s", p.name, leak, line)
	}
}

func (p *process) lastOutput() string {
	all := strings.SplitAfter(p.output.String(), "\n")
	return strings.Join(all[max(0, len(all)-keptLines):], "")
}

// wait reports whether d passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// gauges are what a program exports, by name and labels.
func (p *process) gauges() map[string]float64 {
	p.t.Helper()
	_, page := p.get("/metrics")
	out := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(page)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil && !strings.Contains(name, "_bucket") {
			out[name] = n
		}
	}
	return out
}

// lines keeps the last lines that a program logged, to show them when a test fails.
type lines struct {
	mu   sync.Mutex
	last []string
}

const keptLines = 60

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last = append(l.last, string(p)); len(l.last) > keptLines {
		l.last = l.last[1:]
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, "")
}

// output keeps everything that a program writes.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *output) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *output) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// count is how many lines hold all of the words.
func (r *output) count(words ...string) (n int) {
	for line := range strings.Lines(r.String()) {
		if holds(line, words) {
			n++
		}
	}
	return n
}

// peak is the most memory that the process has had resident so far, in KiB.
func (p *process) peak() int {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	must(p.t, err)
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			if kib, err := strconv.Atoi(f[1]); err == nil {
				return kib
			}
		}
	}
	p.t.Fatalf("no VmHWM: %s", status)
	return 0
}

// pile puts many requests into a queue at once.
func (in *installation) pile(q bus.Queue, prefix string, n int, request func(id string, more ...string) map[string]any) {
	in.t.Helper()
	subject := in.queue(q).Config.FilterSubject
	for i := range n {
		data, err := json.Marshal(request(fmt.Sprint(prefix, i)))
		if err == nil {
			_, err = in.js.PublishAsync(subject, data, jetstream.WithStallWait(time.Minute))
		}
		must(in.t, err)
	}
	select {
	case <-in.js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		in.t.Fatal("the requests are not stored")
	}
}
