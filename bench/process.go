package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// stopWait is how long a process may take to stop.
const stopWait = 30 * time.Second

// process is a child: a role of this program, or a contestant.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	read    *os.File // its standard output
	out     *bufio.Scanner
	logFile string        // has its standard error
	ended   chan struct{} // closed when it has ended; err is set then
	err     error
}

// start starts a child whose standard error goes to a file in dir. It does not inherit servers and secrets of the environment.
func start(dir, name, path string, args, env []string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), ended: make(chan struct{})}
	for _, variable := range []string{"PATH", "HOME", "TMPDIR", "GOGC", "GOMAXPROCS", "GOMEMLIMIT"} {
		if value, ok := os.LookupEnv(variable); ok {
			p.cmd.Env = append(p.cmd.Env, variable+"="+value)
		}
	}
	p.cmd.Env = append(p.cmd.Env, env...)
	file, err := os.CreateTemp(dir, name+"-*.log")
	if err != nil {
		return nil, err
	}
	defer file.Close() // the child has its own descriptor
	p.logFile = file.Name()
	p.cmd.Stderr = file
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// Not StdoutPipe: Wait would close it while it is being read.
	var w *os.File
	if p.read, w, err = os.Pipe(); err != nil {
		return nil, err
	}
	defer w.Close()
	p.cmd.Stdout, p.out = w, bufio.NewScanner(p.read)
	if err := p.cmd.Start(); err != nil {
		p.read.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() { // ends with the child
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// line returns the next line that the child prints.
func (p *process) line() (string, error) {
	if p.out.Scan() {
		return p.out.Text(), nil
	}
	return "", fmt.Errorf("%s ended: %s", p.cmd.Args, p.logTail())
}

// ask writes a question and reads the answer of the child, an upstream.
func (p *process) ask(question string) (seen called, err error) {
	if _, err := io.WriteString(p.in, question+"\n"); err != nil {
		return seen, err
	}
	text, err := p.line()
	if err != nil {
		return seen, err
	}
	err = json.Unmarshal([]byte(text), &seen)
	return seen, err
}

// stop closes the child's input, sends the signal if there is one, and waits.
func (p *process) stop(signal os.Signal) error {
	defer p.read.Close()
	_ = p.in.Close()
	if signal != nil {
		_ = p.cmd.Process.Signal(signal) // fails if it has ended
	}
	select {
	case <-p.ended:
	case <-time.After(stopWait):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("%s did not stop within %v", p.cmd.Args, stopWait)
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w: %s", p.cmd.Args, p.err, p.logTail())
	}
	return nil
}

// logTail is the end of the child's standard error.
func (p *process) logTail() string {
	text, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-2000):]))
}

// cpu is the CPU time that the running child has used so far in seconds, user and system, of all its threads.
func (p *process) cpu() (float64, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has just ended
		}
		if err != nil {
			return 0, err
		}
		var used int64
		if _, err := fmt.Sscan(string(text), &used); err != nil {
			return 0, err
		}
		sum += used
	}
	return time.Duration(sum).Seconds(), nil
}

// peakMemory is the running child's maximum resident memory so far, in bytes. What the system reports of one that has ended is at
// least its parent's.
func (p *process) peakMemory() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			var kib int64
			_, err := fmt.Sscan(string(rest), &kib)
			return kib << 10, err
		}
	}
	return 0, errors.New("no VmHWM in the process's status")
}
