//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// processes are the programs of a cluster. They end with the process that started them, even if it is killed.
type processes struct {
	logs  string // directory of their logs
	ended chan string
	all   []*exec.Cmd
}

func newProcesses(logs string) (*processes, error) {
	// In Linux the parent is a thread: the one that starts them must not end before this process does.
	runtime.LockOSThread()
	return &processes{logs: logs, ended: make(chan string, 64)}, os.MkdirAll(logs, 0o750)
}

// start starts a program; env is added to this process's own. It is called from one goroutine only.
func (p *processes) start(name string, env []string, path string, args ...string) error {
	log, err := os.Create(p.log(name))
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	// Ctrl-C must only reach this process, which stops the others in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	p.all = append(p.all, cmd)
	go func() { // ends with the child
		_ = cmd.Wait()
		p.ended <- name
	}()
	return nil
}

// kill kills all of them: nothing of a run is kept.
func (p *processes) kill() {
	for _, cmd := range p.all {
		_ = cmd.Process.Kill() // fails if it has ended
	}
	for range p.all {
		<-p.ended
	}
	p.all = nil
}

func (p *processes) log(name string) string { return filepath.Join(p.logs, name+".log") }

// endedNames returns the names of the programs that have ended on their own.
func (p *processes) endedNames() (names []string) {
	for range len(p.ended) {
		names = append(names, <-p.ended)
	}
	for _, name := range names {
		p.ended <- name // kill counts them
	}
	return names
}

// waitFor calls ready until it returns no error. It gives up after timeout, or when a program has ended.
func (p *processes) waitFor(ctx context.Context, what string, timeout time.Duration, ready func(context.Context) error) error {
	err := until(ctx, timeout, func(ctx context.Context) error {
		if dead := p.endedNames(); len(dead) > 0 {
			return permanent{fmt.Errorf("%s ended: %s", dead[0], p.tail(dead[0]))}
		}
		return ready(ctx)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// tail is the end of a program's log.
func (p *processes) tail(name string) string {
	text, err := os.ReadFile(p.log(name))
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return strings.TrimSpace(string(bytes.Join(lines[max(0, len(lines)-8):], []byte("\n"))))
}

// permanent is an error that ends a wait.
type permanent struct{ error }

func (f permanent) Unwrap() error { return f.error }

// until calls ready four times a second until it returns no error. After timeout it returns the last error.
func until(ctx context.Context, timeout time.Duration, ready func(context.Context) error) error {
	ctx, stop := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not within %v", timeout))
	defer stop()
	for last := error(nil); ; {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		if end, ok := errors.AsType[permanent](err); ok {
			return end.error
		}
		if ctx.Err() == nil || last == nil { // an error after the end of ctx only says that
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		case <-time.After(250 * time.Millisecond):
		}
	}
}
