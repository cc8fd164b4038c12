package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"errand/internal/app"
)

// compare measures the consumer of enrollments.
type compare struct {
	Requests    int           `default:"20000" help:"Requests per round and contestant, 100 to 1000000."`
	Latency     time.Duration `default:"0ms" help:"Time until the upstream answers, up to 10s."`
	Concurrency int           `default:"64" help:"Requests in flight at once, 1 to 1000."`
	Rounds      int           `default:"3" help:"Rounds, 1 to 100; the order of the contestants changes with each round."`
}

func (c *compare) validate() error {
	if c.Latency < 0 || c.Latency > 10*time.Second {
		return &app.Invalid{Variable: "--latency", Problem: "must be 0s to 10s"}
	}
	return cmp.Or(within("--requests", c.Requests, 100, 1_000_000), within("--concurrency", c.Concurrency, 1, 1000), within("--rounds", c.Rounds, 1, 100))
}

// within returns an error that names the flag unless low <= n <= high.
func within(flag string, n, low, high int) error {
	if n < low || n > high {
		return &app.Invalid{Variable: flag, Problem: fmt.Sprintf("must be %d to %d", low, high)}
	}
	return nil
}

// Run measures until all rounds are done or a contestant fails.
func (c *compare) Run(ctx context.Context) error {
	if err := c.validate(); err != nil {
		return err
	}
	t := trial{what: fmt.Sprintf("%d enrollments per round, %v upstream latency, %d in flight", c.Requests, c.Latency, c.Concurrency), unit: "requests/s",
		items: c.Requests, rounds: c.Rounds, note: settled,
		// Much longer than any machine takes: a contestant that hangs must not hang the bench.
		limit: time.Minute + time.Duration(c.Requests)*(5*time.Millisecond+2*c.Latency/time.Duration(c.Concurrency))}
	if c.Latency > 0 {
		t.ceiling = float64(c.Concurrency) / c.Latency.Seconds()
	}
	return t.run(ctx, "mandate-consumer", []string{"upstream", "--latency", c.Latency.String()}, func(s *stage, h setup) []contestant {
		s.prepare, s.watch = s.publish, s.settled
		concurrency := strconv.Itoa(c.Concurrency)
		env := h.env("MANDATE_API_URL="+h.upstream, "MANDATE_API_TOKEN=bench-token", "CONCURRENCY="+concurrency)
		return []contestant{
			{name: "errand", path: h.program, env: env, events: 2},
			{name: "errand, LOG_LEVEL=warn", path: h.program, env: append(slices.Clip(env), "LOG_LEVEL=warn"), events: 2},
			{name: "loop", path: h.self, args: []string{"loop", "--nats", h.nats, "--upstream", h.upstream, "--concurrency", concurrency}, events: 1},
		}
	})
}
