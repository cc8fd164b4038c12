package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"errand/internal/programs"
)

// growth measures what a request costs the more there is of everything.
type growth struct {
	Of       []string      `arg:"" optional:"" enum:"history,replicas" help:"${enum}; both if left out."`
	IDs      []int         `name:"ids" default:"0,1000000,10000000" help:"Ids in the history before. Ten million take 22 GB of disk."`
	Replicas []int         `default:"1,2,4,8" help:"Replicas of mandate-consumer, with one server and with three."`
	Latency  time.Duration `default:"20ms" help:"Of the upstream, while replicas are measured; else it answers at once."`
	Requests int           `default:"20000" help:"Requests to settle in each round, 1000 to 1000000."`
	Rounds   int           `default:"3" help:"Rounds, 1 to 100."`
	Save     bool          `help:"Write the tables into docs/why/performance.md, instead of those that are there."`
}

// Run measures and prints one table after the other.
func (g *growth) Run(ctx context.Context) (err error) {
	if g.Requests < 1000 || g.Requests > 1_000_000 || g.Rounds < 1 || g.Rounds > 100 {
		return &programs.Invalid{Variable: "--requests, --rounds", Problem: "must be 1000 to 1000000 and 1 to 100"}
	}
	parts := []struct {
		name    string
		measure func(context.Context, workshop) (string, error)
	}{{"replicas", g.replicas}, {"history", g.history}}
	w, clean, err := build(ctx, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clean()) }()
	on, err := thisMachine(ctx)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if len(g.Of) > 0 && !slices.Contains(g.Of, part.name) {
			continue
		}
		found, err := part.measure(ctx, w)
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		text := fmt.Sprintf("%s;\n%d requests a round, medians of %d rounds.\n\n%s", on, g.Requests, g.Rounds, found)
		fmt.Printf("\n%s\n", text)
		if g.Save {
			if err := save(w.root, part.name, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// grown is what one round of growth showed: figures for 1,000 requests.
type grown struct {
	rate   float64
	cost   reading
	peak   float64 // MB of the largest consumer
	server float64 // MB of the server after a garbage collection
}

// medians are the cells of a table.
func medians(rounds []grown) []string {
	of := func(figure func(grown) float64) spread { return spreadIn(rounds, figure) }
	rate := of(func(g grown) float64 { return g.rate })
	return []string{
		fmt.Sprintf("%.0f (%.0f to %.0f)", rate.median, rate.low, rate.high),
		fmt.Sprintf("%.3f", of(func(g grown) float64 { return g.cost.contestants }).median),
		fmt.Sprintf("%.3f", of(func(g grown) float64 { return g.cost.server }).median),
		fmt.Sprintf("%.1f", of(func(g grown) float64 { return g.peak }).median),
		fmt.Sprintf("%.0f", of(func(g grown) float64 { return g.server }).median),
	}
}

// grownHead is the head of a table of medians, behind two columns that say what grows.
func grownHead(of, what string) []string {
	return []string{of, what, "requests/s", "CPU s per 1,000", "server's", "peak MB", "server's MB"}
}

// settle has consumers settle the requests that wait in a queue that is held.
func (g *growth) settle(ctx context.Context, s *stage, prefix string, consumers int) (found grown, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("not done within ten minutes"))
	defer cancel()
	work := requests{}
	var all []*process
	defer func() {
		for _, p := range all {
			err = errors.Join(err, p.stop(syscall.SIGTERM))
		}
	}()
	asking := 0
	for range consumers {
		p, err := s.program(filepath.Join(s.dir, "mandate-consumer"))
		if err != nil {
			return found, err
		}
		all = append(all, p)
		if asking, err = work.asked(ctx, s, p, asking); err != nil {
			return found, err
		}
	}
	waiting, err := work.waiting(ctx, s.js)
	if err != nil {
		return found, err
	}
	waiting++ // the one that start publishes
	before, err := work.start(ctx, s, prefix, all...)
	if err != nil {
		return found, err
	}
	began := time.Now()
	if err := until(ctx, all[0], func() (bool, error) { return work.finished(ctx, s) }); err != nil {
		return found, err
	}
	found.rate = float64(waiting) / time.Since(began).Seconds()
	after, err := s.read(all...)
	if err != nil {
		return found, err
	}
	found.cost = after.per(float64(waiting)/1000, before)
	for _, p := range all {
		peak, err := p.peakMemory()
		if err != nil {
			return found, err
		}
		found.peak = max(found.peak, float64(peak)/1e6)
	}
	if err := work.hold(ctx, s); err != nil {
		return found, err
	}
	found.server, err = s.memory()
	return found, err
}

// replicas measures with more and more consumers, each with its default configuration, of one server and of three.
func (g *growth) replicas(ctx context.Context, w workshop) (string, error) {
	lines := [][]string{append(grownHead("servers", "replicas"), "of the ceiling")}
	for _, servers := range []int{1, 3} {
		for _, n := range g.Replicas {
			rounds, err := g.replicaRounds(ctx, w, servers, n)
			if err != nil {
				return "", fmt.Errorf("%d replicas, %d servers: %w", n, servers, err)
			}
			ceiling := scenario{latency: g.Latency, concurrency: 64 * n}.ceiling()
			share := spreadIn(rounds, func(r grown) float64 { return r.rate / ceiling })
			lines = append(lines, append(append([]string{fmt.Sprint(servers), fmt.Sprint(n)}, medians(rounds)...),
				fmt.Sprintf("%.2f", share.median)))
			fmt.Println(lines[len(lines)-1])
		}
	}
	return markdown(lines, 2), nil
}

func (g *growth) replicaRounds(ctx context.Context, w workshop, servers, n int) (rounds []grown, err error) {
	s, err := w.open(ctx, fmt.Sprintf("replicas-%d-%d", servers, n), servers, "upstream", "--latency="+g.Latency.String())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	work := requests{items: g.Requests}
	for i := range g.Rounds {
		prefix := fmt.Sprint("r", i)
		if err := work.prepare(ctx, s, prefix); err != nil {
			return nil, err
		}
		found, err := g.settle(ctx, s, prefix, n)
		if err != nil {
			return nil, err
		}
		took, err := work.verify(ctx, s, 2)
		if err != nil {
			return nil, err
		}
		found.rate = float64(work.items) / took.Seconds()
		rounds = append(rounds, found)
	}
	return rounds, nil
}
