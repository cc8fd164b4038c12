package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// flood measures what one producer that publishes all it can does to another one, which
// publishes one request of each kind a second.
type flood struct {
	Requests int           `default:"1000000" help:"Enrollments of the flood, 1000 to 10000000."`
	Lists    int           `default:"200" help:"Messages to a list of 100 MB, 1 to 10000."`
	Large    int           `default:"2000" help:"Messages of the largest size that is taken, 1 to 100000."`
	Latency  time.Duration `default:"50ms" help:"Time until the upstream answers, up to 10s."`
	MaxBytes int           `default:"-1" help:"Bytes that each queue may have; -1: no limit."`
	For      time.Duration `default:"1m" help:"How long each of the floods is watched when all is published, 10s to 24h."`
}

// flooded is a system under a flood.
type flooded struct {
	js       jetstream.JetStream
	dir      string
	programs []*process // the server first
	waiting  sync.Map   // when the other's requests were published, by the subject of their outcome
	mu       sync.Mutex // guards what follows, which is of the present stage
	waits    map[string][]time.Duration
	acks     []time.Duration
	refused  map[string]int
}

// others are the requests of the other producer.
var others = []struct{ subject, outcome, body string }{
	{"mandate.enroll.requested", "mandate.enroll.succeeded.", `{"order_number":"%s","amount":100,"payer_id_type":1,"payer_id":"900101011234","payer_name":"Test Payer","payer_email":"payer@example.test","payer_telephone_number":"60190000000","frequency_mode":"MT","application_reason":"Enrollment"}`},
	{"mandate.transactions.requested", "mandate.transactions.listed.", `{"order_number":"%s"}`},
	{"mail.send.requested", "mail.send.accepted.", `{"to":"%s@example.test","subject":"Hello","content":"See you."}`},
	{"mail.account.requested", "mail.account.reported.", `{}`},
}

// Run floods a server and the programs, first with requests, then with long lists.
func (f *flood) Run(ctx context.Context) (err error) {
	if err := cmp.Or(within("--requests", f.Requests, 1000, 10_000_000), within("--lists", f.Lists, 1, 10_000), within("--large", f.Large, 1, 100_000)); err != nil {
		return err
	}
	s := &flooded{}
	if s.dir, err = os.MkdirTemp("", "errand-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	box := sandbox.New(sandbox.Options{Lean: true})
	defer box.Close()
	web := httptest.NewServer(box)
	defer web.Close()
	if err := set(web.URL, f.Latency); err != nil {
		return err
	}
	defer func() {
		for _, p := range slices.Backward(s.programs) {
			err = errors.Join(err, p.stop(syscall.SIGTERM))
		}
	}()
	nc, err := s.start(ctx, web.URL, int64(f.MaxBytes))
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, stop := context.WithCancel(ctx)
	var other sync.WaitGroup
	other.Go(func() { s.other(ctx) })
	defer other.Wait()
	defer stop()
	return errors.Join(
		s.stage(ctx, "nobody else", func() error { pause(ctx, 15*time.Second); return nil }),
		s.stage(ctx, fmt.Sprintf("%d enrollments, while published", f.Requests), func() error { return s.enrollments(f.Requests) }),
		s.stage(ctx, "afterwards", func() error { pause(ctx, f.For); return nil }),
		s.stage(ctx, fmt.Sprintf("%d messages of the largest size", f.Large), func() error { return s.large(int(nc.MaxPayload()), f.Large) }),
		s.stage(ctx, "afterwards", func() error { pause(ctx, f.For); return nil }),
		s.stage(ctx, fmt.Sprintf("%d messages to a list of 100 MB", f.Lists), func() error { return s.lists(ctx, f.Lists) }),
		s.stage(ctx, "afterwards", func() error { pause(ctx, f.For); return nil }))
}

// set sets how long the upstream takes.
func set(url string, latency time.Duration) error {
	r, err := http.NewRequest(http.MethodPut, url+"/_sandbox/settings", strings.NewReader(fmt.Sprintf(`{"latency":%q}`, latency)))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("sandbox: %s", answer.Status)
	}
	return nil
}

// start starts the server, the streams and the programs, and hears the other's outcomes.
func (s *flooded) start(ctx context.Context, upstream string, maxBytes int64) (*nats.Conn, error) {
	names := []string{"mandate-consumer", "mail-consumer", "log-poller"}
	build := []string{"build", "-o", s.dir}
	for _, name := range names {
		build = append(build, "errand/cmd/"+name)
	}
	if out, err := exec.CommandContext(ctx, "go", build...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	server, url, err := serve(s.dir, "server", self, "server", filepath.Join(s.dir, "data"))
	if err != nil {
		return nil, err
	}
	s.programs = append(s.programs, server)
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	if s.js, err = jetstream.New(nc); err != nil {
		return nc, err
	}
	plan, err := bus.Plan(ctx, s.js, bus.Limits{MaxPayload: nc.MaxPayload(), MaxBytesOf: bus.MaxBytes{bus.MandateRequests: maxBytes, bus.MailRequests: maxBytes}})
	if err == nil {
		err = bus.Apply(ctx, plan, false, func(bus.Change) {})
	}
	if err != nil {
		return nc, err
	}
	for _, name := range names {
		p, err := start(s.dir, name, filepath.Join(s.dir, name), nil, []string{"NATS_URL=" + url, "ADMIN_ADDR=127.0.0.1:0", "LOG_LEVEL=warn",
			"MANDATE_API_URL=" + upstream, "MANDATE_API_TOKEN=token", "MANDATE_PORTAL_KEY=portal", "MAIL_API_URL=" + upstream, "MAIL_API_KEY=key"})
		if err != nil {
			return nc, err
		}
		s.programs = append(s.programs, p)
	}
	for _, o := range others {
		_, err := nc.Subscribe(o.outcome+"*", func(m *nats.Msg) {
			if began, ok := s.waiting.LoadAndDelete(m.Subject); ok {
				s.mu.Lock()
				s.waits[o.subject] = append(s.waits[o.subject], time.Since(began.(time.Time)))
				s.mu.Unlock()
			}
		})
		if err != nil {
			return nc, err
		}
	}
	return nc, nil
}

// other publishes as the other producer until ctx ends.
func (s *flooded) other(ctx context.Context) {
	for n := 0; pause(ctx, time.Second); n++ {
		for _, o := range others {
			id := fmt.Sprintf("other-%s-%d", strings.Split(o.subject, ".")[1], n)
			body := strings.Replace(strings.Replace(o.body, "%s", id, 1), "{", fmt.Sprintf(`{"request_id":%q,`, id), 1)
			body = strings.Replace(body, ",}", "}", 1)
			began := time.Now()
			s.waiting.Store(o.outcome+id, began)
			_, err := s.js.Publish(ctx, o.subject, []byte(body))
			s.mu.Lock()
			if s.acks = append(s.acks, time.Since(began)); err != nil {
				s.refused[err.Error()]++
				s.waiting.Delete(o.outcome + id)
			}
			s.mu.Unlock()
		}
	}
}

// stage does something and prints what came of the other's requests meanwhile, and what
// there is at the end.
func (s *flooded) stage(ctx context.Context, name string, do func() error) error {
	s.mu.Lock()
	s.waits, s.acks, s.refused = map[string][]time.Duration{}, nil, map[string]int{}
	s.mu.Unlock()
	began := time.Now()
	err := do()
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Printf("\n%s: %.0f s\n", name, time.Since(began).Seconds())
	open := map[string]int{}
	s.waiting.Range(func(key, _ any) bool {
		open[strings.Join(strings.Split(key.(string), ".")[:2], ".")+".requested"]++
		return true
	})
	for _, o := range others {
		fmt.Printf("  %-32s %3d ended, %3d wait; median %v, longest %v\n", o.subject, len(s.waits[o.subject]), open[o.subject], share(s.waits[o.subject], 0.5), share(s.waits[o.subject], 1))
	}
	fmt.Printf("  acknowledgement of a publish: median %v, longest %v; refused: %v\n", share(s.acks, 0.5), share(s.acks, 1), s.refused)
	for _, stream := range []string{bus.MandateRequests, bus.MandateEvents, bus.MailRequests, bus.MailEvents, bus.MailDeliveries, "OBJ_lists"} {
		if info, err := s.js.Stream(ctx, stream); err == nil {
			fmt.Printf("  %s: %d messages, %d MB\n", stream, info.CachedInfo().State.Msgs, info.CachedInfo().State.Bytes>>20)
		}
	}
	for _, p := range s.programs {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
		for line := range bytes.Lines(status) {
			if bytes.HasPrefix(line, []byte("VmHWM")) || bytes.HasPrefix(line, []byte("VmRSS")) {
				fmt.Printf("  %s %s\n", filepath.Base(p.logFile), bytes.TrimSpace(line))
			}
		}
	}
	return err
}

// share is the duration that a share of all are not longer than.
func share(all []time.Duration, of float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[int(of*float64(len(all)-1))].Round(time.Millisecond)
}

// enrollments publishes small requests as fast as it can.
func (s *flooded) enrollments(n int) error {
	js, err := jetstream.New(s.js.Conn(), jetstream.WithPublishAsyncMaxPending(10_000))
	if err != nil {
		return err
	}
	for i := range n {
		if _, err := js.PublishAsync(messages.Enroll.Requested(), enrollmentNumber(fmt.Sprintf("flood-%d", i)), jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	<-js.PublishAsyncComplete()
	return nil
}

// large publishes messages as large as they may be.
func (s *flooded) large(maxPayload, n int) error {
	body := messageTo("large", 20_000)
	body = body[:len(body)-2] + strings.Repeat("x", maxPayload-(17<<10)-len(body)) + body[len(body)-2:]
	for range n {
		if _, err := s.js.PublishAsync(messages.Send.Requested(), []byte(body), jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	<-s.js.PublishAsyncComplete()
	return nil
}

// lists puts one list and publishes messages to it.
func (s *flooded) lists(ctx context.Context, n int) error {
	bucket, err := s.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: "lists"})
	if err != nil {
		return err
	}
	var list []byte
	for i := 0; len(list) < 100<<20; i++ {
		list = fmt.Appendf(list, "flood-%d@example.test\n", i)
	}
	info, err := bucket.PutBytes(ctx, "flood", list)
	if err != nil {
		return err
	}
	for i := range n {
		body := fmt.Sprintf(`{"request_id":"list-%d","from":"billing@example.test","to_object":{"bucket":"lists","name":"flood","digest":%q},"subject":"Hello","content":"Hello"}`, i, info.Digest)
		if _, err := s.js.Publish(ctx, messages.Send.Requested(), []byte(body)); err != nil {
			return err
		}
	}
	return nil
}
