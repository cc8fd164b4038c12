package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/devkit"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// sweep measures the poller's first reading of a sending log.
type sweep struct {
	Rows   int `default:"200000" help:"Rows of the log, 1000 to 10000000."`
	Limit  int `default:"1000" help:"Rows per page, 1 to 10000."`
	Rounds int `default:"3" help:"Rounds, 1 to 100; the order of the contestants changes with each round."`
}

// swept explains what is compared with the loop over a sending log.
const swept = `errand remembers what it published, looks for the request of each row and stores
a fenced event with headers; the loop stores the rows unchanged, and again after each start. `

// delivered is the subject on which both publish rows without a request.
var delivered = messages.Delivery.Subject("delivered", "unmatched")

// Run measures until all rounds are done or a contestant fails.
func (w *sweep) Run(ctx context.Context) error {
	if err := cmp.Or(within("--rows", w.Rows, 1000, 10_000_000), within("--limit", w.Limit, 1, 10_000), within("--rounds", w.Rounds, 1, 100)); err != nil {
		return err
	}
	t := trial{what: fmt.Sprintf("%d rows, %d per page, no upstream latency", w.Rows, w.Limit), unit: "rows/s", items: w.Rows, rounds: w.Rounds,
		note: swept, limit: time.Minute + time.Duration(w.Rows)*2*time.Millisecond}
	rows, limit := strconv.Itoa(w.Rows), strconv.Itoa(w.Limit)
	return t.run(ctx, "log-poller", []string{"log", "--rows", rows}, func(s *stage, h setup) []contestant {
		s.prepare = func(ctx context.Context, _ string) error { return s.recreate(ctx, bus.MailDeliveries) }
		s.watch = s.published
		return []contestant{
			{name: "errand", path: h.program, env: h.env("MAIL_API_URL="+h.upstream, "MAIL_API_KEY=bench-key", "POLL_LIMIT="+limit), events: 1},
			{name: "loop", path: h.self, args: []string{"copy", "--nats", h.nats, "--upstream", h.upstream, "--rows", rows, "--limit", limit}, events: 1},
		}
	})
}

// published waits until there is one event for each row, and no other.
func (s *stage) published(ctx context.Context, p *process, events int) (time.Duration, error) {
	stream, err := s.js.Stream(ctx, bus.MailDeliveries)
	if err != nil {
		return 0, err
	}
	for {
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(messages.Delivery.Subject(">", "")))
		if err != nil {
			return 0, err
		}
		all := info.State.Subjects[delivered]
		if all > uint64(s.items*events) || len(info.State.Subjects) > 1 {
			return 0, fmt.Errorf("unexpected events: %v", info.State.Subjects)
		}
		if all == uint64(s.items*events) {
			first, err := stream.GetMsg(ctx, 0, jetstream.WithGetMsgSubject(delivered))
			if err != nil {
				return 0, err
			}
			last, err := stream.GetLastMsgForSubject(ctx, delivered)
			if err != nil {
				return 0, err
			}
			return last.Time.Sub(first.Time), nil
		}
		if err := s.wait(ctx, p); err != nil {
			return 0, fmt.Errorf("%d rows were published: %w", all, err)
		}
	}
}

// log is the role of the email service: it has one sending log.
type log struct {
	Rows int `help:"Rows of the log."`

	newest time.Time
}

func (l *log) Run() error {
	l.newest = time.Now().UTC()
	return serveUntilEOF(l)
}

func (l *log) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page, err := strconv.Atoi(r.FormValue("page"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	limit, err := strconv.Atoi(r.FormValue("limit"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = w.Write(devkit.LogPage(l.Rows, page, limit, l.newest)) // fails only when the caller is gone
}

// copier is the contestant: it reads page by page and publishes the rows unchanged.
type copier struct {
	NATS     string `help:"Address of the server."`
	Upstream string `help:"Address of the upstream."`
	Rows     int    `help:"Rows of the log."`
	Limit    int    `help:"Rows per page."`
}

func (c *copier) Run(ctx context.Context) error {
	nc, err := nats.Connect(c.NATS)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1000))
	if err != nil {
		return err
	}
	api, err := mail.New(mail.Config{URL: c.Upstream, Key: clients.NewSecret("key")})
	if err != nil {
		return err
	}
	for page := 1; (page-1)*c.Limit < c.Rows; page++ {
		found, err := api.LogPage(ctx, page, c.Limit)
		if err != nil {
			return err
		}
		for _, row := range found.Entries {
			if _, err := js.PublishAsync(delivered, row.Raw, jetstream.WithStallWait(time.Minute)); err != nil {
				return err
			}
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		<-ctx.Done() // it is measured until it is stopped
	case <-ctx.Done():
	}
	return nil
}
