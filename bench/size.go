package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
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
	{"enrollment", bus.EnrollQueue.Filter, func(id string) string { return string(enrollmentNumber(id)) }, []string{"mandate-consumer"}, 1, 0},
	{"refused request", bus.EnrollQueue.Filter, func(id string) string { // the amount is too large: no call
		return strings.Replace(string(enrollmentNumber(id)), `"amount":100`, `"amount":100000`, 1)
	}, []string{"mandate-consumer"}, 1, 0},
	{"message to 1", bus.SendQueue.Filter, func(id string) string { return messageTo(id, 1) }, []string{"mail-consumer", "log-poller"}, 1, 2},
	{"message to 1,000", bus.SendQueue.Filter, func(id string) string { return messageTo(id, 1000) }, []string{"mail-consumer", "log-poller"}, 1000, 1001},
}

// messageTo is a message of typical size; each recipient gets it once.
func messageTo(id string, recipients int) string {
	to := make([]string, recipients)
	for i := range to {
		to[i] = fmt.Sprintf("%s-%d@example.test", id, i)
	}
	return fmt.Sprintf(`{"from":"billing@example.test","to":["%s"],"subject":"Your invoice","content":"%s"}`, strings.Join(to, `","`), strings.Repeat("lorem ipsum ", 40))
}

// footprint is what a request leaves, in bytes.
type footprint struct {
	kind
	requests int
	server   *process
	empty    float64            // memory of the server before
	streams  map[string]float64 // of requests: while they wait; of others: until they are too old
	busy     float64            // memory of the server, when the work is just done
	rest     float64            // and when it has dropped its caches
}

// kept is what stays of a request until it is too old.
func (f *footprint) kept() float64 {
	return f.streams[bus.MandateEvents] + f.streams[bus.MailEvents] + f.streams[bus.MailDeliveries] + f.streams[bus.DeadLetters]
}

// dropsCaches is how long a server keeps what it has read or written in memory; its own
// limit for indexes is two minutes.
const dropsCaches = 150 * time.Second

// Run measures each kind with a server of its own, and prints the table.
func (s *size) Run(ctx context.Context) (err error) {
	if err := within("--requests", s.Requests, 1000, 1_000_000); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "errand-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	build := exec.CommandContext(ctx, "go", "build", "-o", dir, "errand/cmd/mandate-consumer", "errand/cmd/mail-consumer", "errand/cmd/log-poller")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	var found []*footprint
	for _, k := range kinds {
		f := &footprint{kind: k, requests: max(s.Requests/k.per, 10), streams: map[string]float64{}}
		failed := f.measure(ctx, dir)
		if f.server != nil {
			defer func() { err = errors.Join(err, f.server.stop(nil)) }()
		}
		if failed != nil {
			return fmt.Errorf("%s: %w", k.name, failed)
		}
		found = append(found, f)
	}
	fmt.Printf("%d requests of each kind, to fewer of the larger; waiting %v for the servers to drop their caches\n\n", s.Requests, dropsCaches)
	if !pause(ctx, dropsCaches) {
		return context.Cause(ctx)
	}
	for _, f := range found {
		if f.rest, err = f.memory(); err != nil {
			return err
		}
	}
	printFootprints(found)
	printDays(found[0], found[2])
	return nil
}

// measure processes requests, and asks the server what there is: while they wait, and when
// they are done.
func (f *footprint) measure(ctx context.Context, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	server, url, err := serve(dir, "server", self, "server", filepath.Join(dir, strings.ReplaceAll(f.name, " ", "-")))
	if err != nil {
		return err
	}
	f.server = server
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	plan, err := bus.Plan(ctx, js, bus.Limits{MaxPayload: nc.MaxPayload()})
	if err == nil {
		err = bus.Apply(ctx, plan, false, func(bus.Change) {})
	}
	if err != nil {
		return err
	}
	if f.empty, err = f.server.ask("memory"); err != nil {
		return err
	}
	for i := range f.requests {
		if _, err := js.Publish(ctx, f.subject, []byte(f.body(fmt.Sprintf("0190f5fe-7c1a-7b3e-9d52-%012d", i)))); err != nil {
			return err
		}
	}
	if err := f.read(ctx, js, bus.MandateRequests, bus.MailRequests); err != nil {
		return err
	}
	if err := f.process(ctx, dir, url, js); err != nil {
		return err
	}
	if err := f.read(ctx, js, bus.MandateEvents, bus.MailEvents, bus.MailDeliveries, bus.DeadLetters); err != nil {
		return err
	}
	f.busy, err = f.memory()
	return err
}

// memory is what the server needs for one request.
func (f *footprint) memory() (float64, error) {
	now, err := f.server.ask("memory")
	return (now - f.empty) / float64(f.requests), err
}

// read notes the bytes of streams, by request.
func (f *footprint) read(ctx context.Context, js jetstream.JetStream, streams ...string) error {
	for _, name := range streams {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return err
		}
		f.streams[name] = float64(s.CachedInfo().State.Bytes) / float64(f.requests)
	}
	return nil
}

// process has the programs work, one after the other, until all is done.
func (f *footprint) process(ctx context.Context, dir, url string, js jetstream.JetStream) error {
	box := sandbox.New(sandbox.Options{})
	defer box.Close()
	web := httptest.NewServer(box)
	defer web.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("not done within ten minutes"))
	defer cancel()
	for _, program := range f.programs {
		done := func() (bool, error) { return drained(ctx, js) }
		if program == "log-poller" {
			done = func() (bool, error) { return f.reported(ctx, js) }
		}
		p, err := start(dir, program, filepath.Join(dir, program), nil, []string{"NATS_URL=" + url, "ADMIN_ADDR=127.0.0.1:0", "LOG_LEVEL=warn",
			"MANDATE_API_URL=" + web.URL, "MANDATE_API_TOKEN=bench-token", "MANDATE_PORTAL_KEY=bench-portal", "MAIL_API_URL=" + web.URL, "MAIL_API_KEY=bench-key", "POLL_LIMIT=1000"})
		if err != nil {
			return err
		}
		err = until(ctx, p, done)
		if err = errors.Join(err, p.stop(syscall.SIGTERM)); err != nil {
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
		if !pause(ctx, 200*time.Millisecond) {
			return context.Cause(ctx)
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended early: %s", p.cmd.Path, p.logTail())
		default:
		}
	}
}

// drained reports whether no request is left.
func drained(ctx context.Context, js jetstream.JetStream) (bool, error) {
	for _, name := range []string{bus.MandateRequests, bus.MailRequests} {
		s, err := js.Stream(ctx, name)
		if err != nil || s.CachedInfo().State.Msgs > 0 {
			return false, err
		}
	}
	return true, nil
}

// reported reports whether every recipient has its delivery event and every message its summary.
func (f *footprint) reported(ctx context.Context, js jetstream.JetStream) (bool, error) {
	s, err := js.Stream(ctx, bus.MailDeliveries)
	if err != nil {
		return false, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(messages.Delivery.Subject(">", "")))
	if err != nil {
		return false, err
	}
	var events uint64
	for _, count := range info.State.Subjects {
		events += count
	}
	return events >= uint64(f.requests*f.reports), nil
}

// printFootprints prints what one request of each kind leaves.
func printFootprints(found []*footprint) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer func() { _ = w.Flush() }() // fails only when nobody reads
	fmt.Fprint(w, "bytes of one\twaiting\tevents\tdeliveries\tdead letters\tserver's memory at rest\tjust after\t\n")
	for _, f := range found {
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t\n", f.name, f.streams[bus.MandateRequests]+f.streams[bus.MailRequests],
			f.streams[bus.MandateEvents]+f.streams[bus.MailEvents], f.streams[bus.MailDeliveries], f.streams[bus.DeadLetters], f.rest, f.busy)
	}
}

// printDays prints what a number of requests a day comes to.
func printDays(found ...*footprint) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer func() { _ = w.Flush() }() // fails only when nobody reads
	fmt.Fprint(w, "\nGB on each server\t")
	for _, f := range found {
		fmt.Fprintf(w, "%s: disk\tmemory\t", f.name)
	}
	for _, daily := range []int{10_000, 100_000, 1_000_000} {
		for _, days := range []int{7, 30, 90} {
			fmt.Fprintf(w, "\n%d a day, %d days\t", daily, days)
			for _, f := range found {
				all := float64(daily*days) / 1e9
				fmt.Fprintf(w, "%.2f\t%.2f\t", all*f.kept(), all*f.rest)
			}
		}
	}
	fmt.Fprintln(w)
}
