package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"errand/internal/app"
)

// compare is the bench itself: it keeps server and upstream up, and lets the
// contestants take turns.
type compare struct {
	Requests    int           `default:"20000" help:"Requests a round and contestant, 100 to 1000000."`
	Latency     time.Duration `default:"0ms" help:"Time the upstream takes for an answer, up to 10s."`
	Concurrency int           `default:"64" help:"Requests in hand at once, 1 to 1000."`
	Rounds      int           `default:"3" help:"Rounds, 1 to 100; the order of the contestants changes with each."`
}

// contestant is a program that is measured.
type contestant struct {
	name   string
	path   string
	args   []string
	env    []string
	events int // it stores for a request
}

func (c *compare) validate() error {
	switch {
	case c.Requests < 100 || c.Requests > 1_000_000:
		return &app.Invalid{Variable: "--requests", Problem: "must be 100 to 1000000"}
	case c.Latency < 0 || c.Latency > 10*time.Second:
		return &app.Invalid{Variable: "--latency", Problem: "must be 0s to 10s"}
	case c.Concurrency < 1 || c.Concurrency > 1000:
		return &app.Invalid{Variable: "--concurrency", Problem: "must be 1 to 1000"}
	case c.Rounds < 1 || c.Rounds > 100:
		return &app.Invalid{Variable: "--rounds", Problem: "must be 1 to 100"}
	}
	return nil
}

// Run measures; the error of a contestant that fails ends it.
func (c *compare) Run(ctx context.Context) (err error) {
	if err := c.validate(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "errand-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	consumer := filepath.Join(dir, "mandate-consumer")
	build := exec.CommandContext(ctx, "go", "build", "-o", consumer, "errand/cmd/mandate-consumer")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}

	nats, natsURL, err := serve(dir, "server", self, "server", filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nats.stop(nil)) }()
	api, apiURL, err := serve(dir, "upstream", self, "upstream", "--latency", c.Latency.String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, api.stop(nil)) }()

	s, err := newStage(natsURL, dir, nats, c)
	if err != nil {
		return err
	}
	defer s.close()
	return c.rounds(ctx, s, c.contestants(self, consumer, natsURL, apiURL))
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

func (c *compare) contestants(self, consumer, natsURL, apiURL string) []contestant {
	hands := strconv.Itoa(c.Concurrency)
	// ADMIN_ADDR: any free port, served as by default. The rest of the configuration is the default.
	env := []string{"NATS_URL=" + natsURL, "MANDATE_API_URL=" + apiURL, "MANDATE_API_TOKEN=token", "ADMIN_ADDR=127.0.0.1:0", "CONCURRENCY=" + hands}
	return []contestant{
		{name: "errand", path: consumer, env: env, events: 2},
		{name: "errand, LOG_LEVEL=warn", path: consumer, env: append(slices.Clip(env), "LOG_LEVEL=warn"), events: 2},
		{name: "loop", path: self, args: []string{"loop", "--nats", natsURL, "--upstream", apiURL, "--concurrency", hands}, events: 1},
	}
}

// rounds runs them and prints each as it ends, and the medians at last.
func (c *compare) rounds(ctx context.Context, s *stage, contestants []contestant) error {
	fmt.Printf("%d enrollments a round, %v upstream latency, %d in hand\n", c.Requests, c.Latency, c.Concurrency)
	all := make([]round, c.Rounds)
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
		c.print(contestants, all[n])
	}
	fmt.Printf("\nmedian of %d\n", c.Rounds)
	c.print(contestants, median(all))
	fmt.Println("\nin one round, median, to the loop")
	ratios(contestants, all)
	fmt.Print(explanation)
	return nil
}
