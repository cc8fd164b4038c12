//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// processes are the programs of a cluster. They end with the process that started them, even if it is killed.
type processes struct {
	logs  string // directory of their logs
	ended chan string
	all   []*exec.Cmd
}

func newProcesses(logs string) *processes {
	// In Linux the parent is a thread: the one that starts them must not end before this process does.
	runtime.LockOSThread()
	must(os.MkdirAll(logs, 0o750))
	return &processes{logs: logs, ended: make(chan string, 64)}
}

// start starts a program. It is called from one goroutine only.
func (p *processes) start(name, path string, args ...string) {
	log := get(os.Create(p.log(name)))
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	// Ctrl-C must only reach this process, which stops the others in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	must(cmd.Start())
	p.all = append(p.all, cmd)
	go func() { // ends with the child
		_ = cmd.Wait()
		p.ended <- name
	}()
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

// broken returns an error when a program has ended on its own.
func (p *processes) broken() error {
	select {
	case name := <-p.ended:
		p.ended <- name // kill counts them
		text := bytes.TrimSpace(get(os.ReadFile(p.log(name))))
		return permanent{fmt.Errorf("%s ended on its own: %s", name, text[max(0, len(text)-2000):])}
	default:
		return nil
	}
}

// waitFor waits until ready returns no error.
func (p *processes) waitFor(ctx context.Context, what string, timeout time.Duration, ready func(context.Context) error) {
	err := until(ctx, timeout, func(ctx context.Context) error { return cmp.Or(p.broken(), ready(ctx)) })
	if err != nil {
		must(fmt.Errorf("%s: %w", what, err))
	}
}

// permanent is an error that ends a wait.
type permanent struct{ error }

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
