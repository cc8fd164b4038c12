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

// processes are the programs of a cluster. They end when the process that started them does, however that happens.
type processes struct {
	logs  string // folder of what they say
	ended chan string
	all   []*exec.Cmd
}

func newProcesses(logs string) (*processes, error) {
	// Parents are threads to Linux: the one that starts them must not end before this process does.
	runtime.LockOSThread()
	return &processes{logs: logs, ended: make(chan string, 64)}, os.MkdirAll(logs, 0o750)
}

// start starts a program; env is added to this process's own. It is called from one goroutine only.
func (p *processes) start(name string, env []string, path string, args ...string) error {
	log, err := os.Create(p.log(name))
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	// Ctrl-C is for us, who end them in order.
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

// kill ends them all at once: nothing of a run is kept.
func (p *processes) kill() {
	for _, cmd := range p.all {
		_ = cmd.Process.Kill() // one that has ended needs none
	}
	for range p.all {
		<-p.ended
	}
	p.all = nil
}

func (p *processes) log(name string) string { return filepath.Join(p.logs, name+".log") }

// dead are the names of those that have ended by themselves.
func (p *processes) dead() (names []string) {
	for range len(p.ended) {
		names = append(names, <-p.ended)
	}
	for _, name := range names {
		p.ended <- name // kill counts them
	}
	return names
}

// await calls ready until it gives no error, for so long; a process that ended meanwhile ends the wait.
func (p *processes) await(ctx context.Context, what string, patience time.Duration, ready func(context.Context) error) error {
	err := until(ctx, patience, func(ctx context.Context) error {
		if dead := p.dead(); len(dead) > 0 {
			return final{fmt.Errorf("%s ended: %s", dead[0], p.tail(dead[0]))}
		}
		return ready(ctx)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// tail is the end of what a program said.
func (p *processes) tail(name string) string {
	text, err := os.ReadFile(p.log(name))
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return strings.TrimSpace(string(bytes.Join(lines[max(0, len(lines)-8):], []byte("\n"))))
}

// final is an error that waiting does not mend.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// until calls ready four times a second until it gives no error; it gives the last one when patience is over.
func until(ctx context.Context, patience time.Duration, ready func(context.Context) error) error {
	ctx, stop := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %v", patience))
	defer stop()
	for last := error(nil); ; {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		if end, ok := errors.AsType[final](err); ok {
			return end.error
		}
		if ctx.Err() == nil || last == nil { // what it says once its time is over is only that
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		case <-time.After(250 * time.Millisecond):
		}
	}
}
