package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/retry"
)

// workshop is a temporary directory with the programs in it.
type workshop struct {
	dir  string
	self string // this program, for its roles
	root string // errand's checkout
}

// build builds errand's programs and the peers. before is another checkout of errand, or "".
func build(ctx context.Context, before string) (w workshop, clean func() error, err error) {
	if w.self, err = os.Executable(); err != nil {
		return w, nil, err
	}
	if w.dir, err = os.MkdirTemp("", "errand-bench-"); err != nil {
		return w, nil, err
	}
	clean = func() error { return os.RemoveAll(w.dir) }
	w.root, err = output(ctx, "go", "list", "-f", "{{.Module.Dir}}", "errand/internal/programs")
	if err == nil {
		// By errand's own go.mod: here other versions of its dependencies might be chosen.
		_, err = output(ctx, "go", "build", "-C", w.root, "-o", w.dir+"/", "./cmd/...")
	}
	if err == nil {
		_, err = output(ctx, "go", "build", "-C", filepath.Join(w.root, "bench"), "-o", w.dir+"/", "./peers")
	}
	if err == nil && before != "" {
		_, err = output(ctx, "go", "build", "-C", before, "-o", filepath.Join(w.dir, "before")+"/", "./cmd/...")
	}
	if err != nil {
		return w, nil, errors.Join(err, clean())
	}
	return w, clean, nil
}

// output runs a command and returns the line that it prints.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

// stage has a server, an upstream and a connection; contestants are measured on it.
type stage struct {
	workshop
	limits  bus.Limits
	server  *process
	api     *process
	url     string // of the server
	address string // of the upstream
	nc      *nats.Conn
	js      jetstream.JetStream
}

// open starts a server and an upstream.
func (w workshop) open(name string, upstream ...string) (*stage, error) {
	s := &stage{workshop: w}
	if err := s.start(name, upstream); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *stage) start(name string, upstream []string) (err error) {
	if s.server, s.url, err = s.serve(name+"-server", "server", filepath.Join(s.dir, name)); err != nil {
		return err
	}
	if s.api, s.address, err = s.serve(name+"-upstream", upstream...); err != nil {
		return err
	}
	if s.nc, err = nats.Connect(s.url); err != nil {
		return err
	}
	s.limits = bus.Limits{MaxPayload: s.nc.MaxPayload(), Replicas: 1}
	s.js, err = jetstream.New(s.nc, jetstream.WithPublishAsyncMaxPending(512))
	return err
}

// serve starts a role that prints its address.
func (w workshop) serve(name string, args ...string) (*process, string, error) {
	p, err := start(w.dir, name, w.self, args, nil)
	if err != nil {
		return nil, "", err
	}
	url, err := p.line()
	if err != nil {
		return nil, "", errors.Join(err, p.stop(nil))
	}
	return p, url, nil
}

func (s *stage) close() (err error) {
	if s.nc != nil {
		s.nc.Close()
	}
	for _, p := range []*process{s.api, s.server} {
		if p != nil {
			err = errors.Join(err, p.stop(nil))
		}
	}
	return err
}

// program starts a program of errand with its default configuration, except for a free port in ADMIN_ADDR.
func (s *stage) program(path string, env ...string) (*process, error) {
	return start(s.dir, filepath.Base(path), path, nil, append([]string{"NATS_URL=" + s.url, "ADMIN_ADDR=127.0.0.1:0", s.trust(),
		"MANDATE_API_URL=" + s.address, "MANDATE_API_TOKEN=bench-token", "MAIL_API_URL=" + s.address, "MAIL_API_KEY=bench-key"}, env...))
}

// trust is the setting by which a program trusts an upstream over TLS.
func (s *stage) trust() string { return "SSL_CERT_FILE=" + filepath.Join(s.dir, authority) }

// reading is the CPU time used so far, in seconds.
type reading struct{ contestant, server, upstream float64 }

// read reads the CPU time of a contestant, of the server and of the upstream.
func (s *stage) read(contestant *process) (r reading, err error) {
	for p, used := range map[*process]*float64{contestant: &r.contestant, s.server: &r.server, s.api: &r.upstream} {
		seconds, failed := p.cpu()
		*used, err = seconds, errors.Join(err, failed)
	}
	return r, err
}

// until waits for something that a program does, and fails when the program or the context has ended.
func until(ctx context.Context, p *process, done func() (bool, error)) error {
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if !retry.Pause(ctx, 50*time.Millisecond) {
			return context.Cause(ctx)
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended early: %s", p.cmd.Args, p.logTail())
		default:
		}
	}
}
