//go:build unix

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// build is a directory of programs, shared by the tests that run at once: the first
// of them builds, the last one cleans up.
type build struct {
	sync.Mutex
	tags  string
	users int
	dir   string
	err   error
}

// shipped are the programs as they are shipped; mortal ones die at the failpoint that
// ERRAND_FAILPOINT names.
var shipped, mortal = &build{}, &build{tags: "failpoints"}

// programs gives the directory of the programs.
func (b *build) programs(t *testing.T) string {
	t.Helper()
	b.Lock()
	defer b.Unlock()
	if b.users == 0 {
		b.dir, b.err = os.MkdirTemp("", "errand-e2e-")
		if b.err == nil {
			command := exec.CommandContext(t.Context(), "go", "build", "-race=false", "-trimpath", "-buildvcs=false", "-tags="+b.tags,
				"-o", b.dir+string(filepath.Separator), "errand/cmd/mandate-consumer", "errand/cmd/mail-consumer", "errand/cmd/log-poller")
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
	said   record
	ended  chan struct{} // closed when it has ended and all that it said is here
	status int           // once it has ended; -1 by a signal

	mu   sync.Mutex
	told bool // to end, by a signal
}

// launch starts a program with this environment and no other.
func launch(t *testing.T, dir, program string, env []string, args ...string) (*process, error) {
	p := &process{t: t, name: program, ended: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(dir, program), args...) // its end is a story's business, not a context's
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, &p.said, &p.said
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
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("%v to %s: %v", s, p.name, err)
	}
}

func (p *process) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = true
}

// kill ends the process as a crash does, if it still runs.
func (p *process) kill() {
	p.tell()
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// stop asks the process to end and wants it to do so in order, within a time.
func (p *process) stop(within time.Duration) {
	p.t.Helper()
	p.tell()
	p.signal(syscall.SIGTERM)
	p.wantStatus(0, within)
}

// wantStatus waits for the process to end with a status.
func (p *process) wantStatus(status int, within time.Duration) {
	p.t.Helper()
	p.tell()
	select {
	case <-p.ended:
	case <-time.After(within):
		p.t.Fatalf("%s still runs after %v\n%s", p.name, within, p.last())
	}
	if p.status != status {
		p.t.Fatalf("%s: exit status %d, want %d\n%s", p.name, p.status, status, p.last())
	}
}

// pause stops the process where it stands; resume lets it go on.
func (p *process) pause()  { p.signal(syscall.SIGSTOP) }
func (p *process) resume() { p.signal(syscall.SIGCONT) }

func (p *process) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *process) endedByItself() bool {
	if !p.gone() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.told
}

// says reports whether the process wrote a line that holds all of texts.
func (p *process) says(texts ...string) bool { return p.line(texts...) != "" }

func (p *process) line(texts ...string) string {
	for line := range strings.Lines(p.said.String()) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			return line
		}
	}
	return ""
}

// get reads a page of the process's admin server.
func (p *process) get(path string) (status int, body string) {
	p.t.Helper()
	var line struct {
		Addr string `json:"addr"`
	}
	if err := json.Unmarshal([]byte(p.line("admin server listens")), &line); err != nil {
		p.t.Fatalf("%s does not say where its admin server is: %v\n%s", p.name, err, p.last())
	}
	client := &http.Client{Timeout: 5 * time.Second}
	r, err := client.Get("http://" + line.Addr + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	_, _ = p.said.Write(text) // a page must keep the secrets too
	return r.StatusCode, string(text)
}

// keptItsSecrets fails the test when something that nobody may see was said.
func (p *process) keptItsSecrets() {
	p.t.Helper()
	for _, leak := range leaks {
		if line := p.line(leak); line != "" {
			p.t.Errorf("%s tells %q: %s", p.name, leak, line)
		}
	}
}

func (p *process) last() string {
	all := strings.SplitAfter(p.said.String(), "\n")
	return strings.Join(all[max(0, len(all)-keep):], "")
}
