package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// scenario is some work under some conditions.
type scenario struct {
	key         string // for --only
	title       string
	program     string // of errand
	latency     time.Duration
	tls         bool
	concurrency int // requests in flight; 0 for a sweep
	work        work
	items       int
	quick       bool // part of a quick run
}

// work is what a contestant has to do.
type work interface {
	// prepare creates the streams and the work; the ids of this run begin with prefix, and no others do.
	prepare(ctx context.Context, s *stage, prefix string) error
	// start lets the contestant begin and returns what was used before.
	start(ctx context.Context, s *stage, prefix string, contestant *process) (reading, error)
	// finished reports whether everything seems to be done.
	finished(ctx context.Context, s *stage) (bool, error)
	// verify makes sure that everything was done right, with so many events for each item, and returns the time it took.
	verify(ctx context.Context, s *stage, events int) (time.Duration, error)
}

// scenarios are what is compared. Each run takes a few seconds on two cores, and less with a smaller share of the items.
func scenarios(share float64) (all []scenario) {
	enroll := func(latency time.Duration, concurrency int, items float64, quick bool) *scenario {
		items *= share
		all = append(all, scenario{key: fmt.Sprintf("enroll-%dms-%d", latency.Milliseconds(), concurrency),
			title:   fmt.Sprintf("enrollments, %d ms, %d in flight", latency.Milliseconds(), concurrency),
			program: "mandate-consumer", latency: latency, concurrency: concurrency,
			work: requests{items: int(items)}, items: int(items), quick: quick})
		return &all[len(all)-1]
	}
	overTLS := func(s *scenario) { s.key, s.title, s.tls = s.key+"-tls", s.title+", TLS", true }
	enroll(0, 64, 16_000, true)
	enroll(0, 256, 16_000, false)
	overTLS(enroll(0, 64, 16_000, false))
	enroll(20*time.Millisecond, 64, 6_400, true)
	overTLS(enroll(20*time.Millisecond, 64, 6_400, false))
	enroll(20*time.Millisecond, 256, 12_800, false)
	enroll(200*time.Millisecond, 64, 960, false)
	enroll(200*time.Millisecond, 256, 3_840, false)
	mail := func(recipients int, items float64) {
		items *= share
		all = append(all, scenario{key: fmt.Sprint("mail-", recipients), title: fmt.Sprintf("messages to %d, 0 ms, 64 in flight", recipients),
			program: "mail-consumer", concurrency: 64,
			work: requests{items: int(items), recipients: recipients}, items: int(items), quick: recipients > 1})
	}
	mail(1, 8_000)
	mail(2_500, 400)
	sweep := func(page int, items float64) {
		items *= share
		all = append(all, scenario{key: fmt.Sprint("sweep-", page), title: fmt.Sprintf("first sweep of a log, %d rows a page", page),
			program: "log-poller", work: rows{items: int(items), page: page}, items: int(items), quick: page > 100})
	}
	sweep(1_000, 80_000)
	sweep(100, 40_000)
	return all
}

// contestant is a program that is measured.
type contestant struct {
	name   string
	start  func(*stage) (*process, error)
	events int // stored for each item
}

// contestants returns a scenario's contestants: errand, an earlier errand if there is one, and the peers.
func (c scenario) contestants(before bool) []contestant {
	events := 1 + min(c.concurrency, 1) // a request has started and outcome
	all := []contestant{{"errand", func(s *stage) (*process, error) { return c.errand(s, "") }, events}}
	if before {
		all = append(all, contestant{"before", func(s *stage) (*process, error) { return c.errand(s, "before") }, events})
	}
	if c.concurrency == 0 {
		return append(all, contestant{"loop", c.copier, 1})
	}
	peer := func(name string, events int) {
		all = append(all, contestant{name, func(s *stage) (*process, error) { return c.peer(s, name) }, events})
	}
	peer("watermill", 1)
	peer("loop", 1)
	if c.program == "mandate-consumer" {
		peer("fenced", 2)
		if !c.tls {
			peer("limit", 1)
		}
	}
	return all
}

// errand starts a program of errand from a directory of the workshop.
func (c scenario) errand(s *stage, directory string) (*process, error) {
	path := filepath.Join(s.dir, directory, c.program)
	if sweep, ok := c.work.(rows); ok {
		return s.program(path, "POLL_LIMIT="+strconv.Itoa(sweep.page))
	}
	return s.program(path, "CONCURRENCY="+strconv.Itoa(c.concurrency))
}

func (c scenario) peer(s *stage, name string) (*process, error) {
	operation := "enroll"
	if c.program == "mail-consumer" {
		operation = "send"
	}
	args := []string{name, "--nats=" + s.url, "--upstream=" + s.address, fmt.Sprint("--concurrency=", c.concurrency),
		"--operation=" + operation}
	return start(s.dir, name, filepath.Join(s.dir, "peers"), args, []string{s.trust()})
}

func (c scenario) copier(s *stage) (*process, error) {
	sweep, _ := c.work.(rows)
	args := []string{"copy", "--nats=" + s.url, "--upstream=" + s.address, fmt.Sprint("--rows=", sweep.items),
		fmt.Sprint("--limit=", sweep.page)}
	return start(s.dir, "copy", filepath.Join(s.dir, "peers"), args, nil)
}

// upstream is the role that serves the contestants.
func (c scenario) upstream(dir string) []string {
	if c.concurrency == 0 {
		return []string{"log", fmt.Sprint("--rows=", c.items)}
	}
	args := []string{"upstream", "--latency=" + c.latency.String()}
	if c.tls {
		args = append(args, "--authority="+filepath.Join(dir, authority))
	}
	return args
}

// ceiling is the highest rate that the upstream's latency allows; 0 means no limit.
func (c scenario) ceiling() float64 {
	if c.latency == 0 {
		return 0
	}
	return float64(c.concurrency) / c.latency.Seconds()
}

// runLimit is much longer than a run takes: a contestant that hangs must not hang the bench.
const runLimit = 2 * time.Minute

// figures are the results of one run of a contestant.
type figures struct {
	rate     float64 // items per second
	cpu      float64 // CPU seconds of the contestant per 1,000 items
	server   float64 // and of the server
	upstream float64 // and of the upstream
	peak     float64 // MB resident
}

// run measures a contestant with new work.
func (c scenario) run(ctx context.Context, s *stage, who contestant, prefix string) (f figures, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("not done within %v", runLimit))
	defer cancel()
	if err := c.work.prepare(ctx, s, prefix); err != nil {
		return f, err
	}
	p, err := who.start(s)
	if err != nil {
		return f, err
	}
	before, after, err := c.measure(ctx, s, prefix, p)
	peak, hidden := p.peakMemory()
	if err := errors.Join(err, hidden, p.stop(syscall.SIGTERM)); err != nil {
		return f, err
	}
	took, err := c.work.verify(ctx, s, who.events)
	n := float64(c.items)
	return figures{rate: n / took.Seconds(), cpu: (after.contestant - before.contestant) * 1000 / n,
		server: (after.server - before.server) * 1000 / n, upstream: (after.upstream - before.upstream) * 1000 / n,
		peak: float64(peak) / 1e6}, err
}

// measure has a contestant work until it has finished.
func (c scenario) measure(ctx context.Context, s *stage, prefix string, p *process) (before, after reading, err error) {
	if before, err = c.work.start(ctx, s, prefix, p); err == nil {
		err = until(ctx, p, func() (bool, error) { return c.work.finished(ctx, s) })
	}
	if err == nil {
		after, err = s.read(p)
	}
	return before, after, err
}
