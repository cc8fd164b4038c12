package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"errand/internal/bus"
	"errand/internal/programs"
	"errand/internal/retry"
	"errand/internal/sandbox"
)

// size measures what a request leaves in NATS: bytes of each stream, and memory of the server.
type size struct {
	Requests int `default:"50000" help:"Requests of each kind, 1000 to 1000000."`
}

// kind is one kind of request, and what is done with it.
type kind struct {
	name     string
	subject  string
	body     func(id string) string
	programs []string // one after the other
	per      int      // requests are fewer by this
	reports  int      // delivery events and summaries of each
}

// kinds are what the table is made of.
var kinds = []kind{
	{"enrollment", bus.EnrollQueue.Filter, enrollmentNumber, []string{"mandate-consumer"}, 1, 0},
	{"refused request", bus.EnrollQueue.Filter, func(id string) string { // the amount is too large: no call
		return strings.Replace(enrollmentNumber(id), `"amount":100`, `"amount":100000`, 1)
	}, []string{"mandate-consumer"}, 1, 0},
	{"message to 1", bus.SendQueue.Filter, func(id string) string { return messageTo(id, 1) }, []string{"mail-consumer", "log-poller"}, 1, 2},
	{"message to 1,000", bus.SendQueue.Filter, func(id string) string { return messageTo(id, 1000) },
		[]string{"mail-consumer", "log-poller"}, 1000, 1001},
}

// footprint is what a request leaves, in bytes.
type footprint struct {
	kind
	requests int
	*stage
	empty   float64            // memory of the server before, in MB
	streams map[string]float64 // of requests: while they wait; of others: until they are too old
	busy    float64            // memory of the server, when the work is just done
	rest    float64            // and when it has dropped its caches
}

// dropsCaches is longer than a server keeps in memory what it has read or written: two minutes for indexes.
const dropsCaches = 150 * time.Second

// Run measures each kind with a separate server, and prints the table.
func (s *size) Run(ctx context.Context) (err error) {
	if s.Requests < 1000 || s.Requests > 1_000_000 {
		return &programs.Invalid{Variable: "--requests", Problem: "must be 1000 to 1000000"}
	}
	w, clean, err := build(ctx, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clean()) }()
	var found []*footprint
	for _, k := range kinds {
		f := &footprint{kind: k, requests: max(s.Requests/k.per, 10), streams: map[string]float64{}}
		if f.stage, err = w.open(ctx, strings.ReplaceAll(f.name, " ", "-"), 1); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.close()) }()
		if err := f.measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		found = append(found, f)
	}
	fmt.Printf("%d requests of each kind, to fewer of the larger; waiting %v for the servers to drop their caches\n\n", s.Requests,
		dropsCaches)
	if !retry.Pause(ctx, dropsCaches) {
		return context.Cause(ctx)
	}
	for _, f := range found {
		if f.rest, err = f.of(); err != nil {
			return err
		}
	}
	fmt.Print(footprints(found))
	return nil
}

// measure processes requests, and asks the server what there is while they wait and when they are done.
func (f *footprint) measure(ctx context.Context) (err error) {
	if err := provision(ctx, f.js, f.limits); err != nil {
		return err
	}
	if f.empty, err = f.memory(); err != nil {
		return err
	}
	for i := range f.requests {
		if _, err := f.js.Publish(ctx, f.subject, []byte(f.body(fmt.Sprintf("0190f5fe-7c1a-7b3e-9d52-%012d", i)))); err != nil {
			return err
		}
	}
	if err := f.note(ctx, bus.MandateRequests, bus.MailRequests); err != nil {
		return err
	}
	if err := f.process(ctx); err != nil {
		return err
	}
	if err := f.note(ctx, bus.MandateEvents, bus.MailEvents, bus.MailDeliveries, bus.DeadLetters); err != nil {
		return err
	}
	f.busy, err = f.of()
	return err
}

// of is what the server needs for one request, in bytes.
func (f *footprint) of() (float64, error) {
	now, err := f.memory()
	return (now - f.empty) * 1e6 / float64(f.requests), err
}

// note notes the bytes of streams, by request.
func (f *footprint) note(ctx context.Context, streams ...string) error {
	for _, name := range streams {
		s, err := f.js.Stream(ctx, name)
		if err != nil {
			return err
		}
		f.streams[name] = float64(s.CachedInfo().State.Bytes) / float64(f.requests)
	}
	return nil
}

// process has the programs work, one after the other, until all is done.
func (f *footprint) process(ctx context.Context) error {
	box := sandbox.New(sandbox.Options{})
	defer box.Close()
	web := httptest.NewServer(box)
	defer web.Close()
	f.address = web.URL
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("not done within ten minutes"))
	defer cancel()
	for _, program := range f.programs {
		done := func() (bool, error) { return f.drained(ctx) }
		if program == "log-poller" {
			done = func() (bool, error) { return f.reported(ctx) }
		}
		p, err := f.program(filepath.Join(f.dir, program), "LOG_LEVEL=warn", "MANDATE_PORTAL_KEY=bench-portal", "POLL_LIMIT=1000")
		if err != nil {
			return err
		}
		if err := errors.Join(until(ctx, p, done), p.stop(syscall.SIGTERM)); err != nil {
			return err
		}
	}
	return nil
}

// until waits for something that a program does.
func until(ctx context.Context, p *process, done func() (bool, error)) error {
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if err := alive(ctx, p); err != nil {
			return err
		}
	}
}

// drained reports whether no request is left.
func (f *footprint) drained(ctx context.Context) (bool, error) {
	enrollments, err := requests{}.waiting(ctx, f.js)
	mails, failed := requests{recipients: 1}.waiting(ctx, f.js)
	return enrollments+mails == 0, errors.Join(err, failed)
}

// reported reports whether every recipient has its delivery event and every message its summary.
func (f *footprint) reported(ctx context.Context) (bool, error) {
	info, err := rows{}.info(ctx, f.stage)
	if err != nil {
		return false, err
	}
	var events uint64
	for _, count := range info.State.Subjects {
		events += count
	}
	return events >= uint64(f.requests*f.reports), nil
}

// footprints is a table of what one request of each kind leaves.
func footprints(found []*footprint) string {
	lines := [][]string{{"bytes of one", "waiting", "events", "deliveries", "dead letters", "server's memory at rest", "just after"}}
	for _, f := range found {
		line := []string{f.name}
		for _, bytes := range []float64{f.streams[bus.MandateRequests] + f.streams[bus.MailRequests],
			f.streams[bus.MandateEvents] + f.streams[bus.MailEvents], f.streams[bus.MailDeliveries], f.streams[bus.DeadLetters], f.rest, f.busy} {
			line = append(line, fmt.Sprintf("%.0f", bytes))
		}
		lines = append(lines, line)
	}
	return markdown(lines, 1)
}
