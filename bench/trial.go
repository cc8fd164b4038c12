package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// trial runs server and upstream, and one contestant after the other.
type trial struct {
	what, unit, note string // heading, unit of the rate, explanation of the figures
	items            int    // work of each contestant in a round
	rounds           int
	limit            time.Duration // of one run
	ceiling          float64       // the maximum possible rate; 0: unknown
}

// contestant is a program that is measured.
type contestant struct {
	name   string
	path   string
	args   []string
	env    []string
	events int // stored for each item
}

// setup has the addresses and paths that a contestant needs.
type setup struct {
	program        string // the measured program of the project
	self           string // this program, for its roles
	nats, upstream string // addresses
}

// env is the environment of the program: the default configuration, except for a free port
// in ADMIN_ADDR.
func (h setup) env(more ...string) []string {
	return slices.Clip(append([]string{"NATS_URL=" + h.nats, "ADMIN_ADDR=127.0.0.1:0"}, more...))
}

// run measures the program; upstream is the role that serves it, set returns the
// contestants.
func (t *trial) run(ctx context.Context, program string, upstream []string, set func(*stage, setup) []contestant) (err error) {
	dir, err := os.MkdirTemp("", "errand-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	h := setup{program: filepath.Join(dir, program)}
	if h.self, err = os.Executable(); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", h.program, "errand/cmd/"+program)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	nats, url, err := serve(dir, "server", h.self, "server", filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nats.stop(nil)) }()
	h.nats = url
	api, url, err := serve(dir, "upstream", h.self, upstream...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, api.stop(nil)) }()
	h.upstream = url
	s, err := newStage(h.nats, dir, nats, t)
	if err != nil {
		return err
	}
	defer s.close()
	return t.compete(ctx, s, set(s, h))
}

// serve starts a role that prints its address.
func serve(dir, name, path string, args ...string) (*process, string, error) {
	p, err := start(dir, name, path, args, nil)
	if err != nil {
		return nil, "", err
	}
	url, err := p.line()
	if err != nil {
		return nil, "", errors.Join(err, p.stop(nil))
	}
	return p, url, nil
}

// compete runs the rounds, prints each when it ends, and the medians at the end.
func (t *trial) compete(ctx context.Context, s *stage, contestants []contestant) error {
	fmt.Println(t.what)
	all := make([]round, t.rounds)
	for n := range all {
		all[n] = make(round, len(contestants))
		for i := range contestants {
			i = (i + n) % len(contestants)
			f, err := s.run(ctx, contestants[i], fmt.Sprintf("r%d-%d", n, i))
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", n+1, contestants[i].name, err)
			}
			all[n][i] = f
		}
		fmt.Printf("\nround %d\n", n+1)
		t.print(contestants, all[n])
	}
	fmt.Printf("\nmedian of %d\n", t.rounds)
	t.print(contestants, median(all))
	fmt.Println("\nratio to the last one in the same round, median")
	t.ratios(contestants, all)
	fmt.Printf(explanation, t.unit, t.note)
	return nil
}
