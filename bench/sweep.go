package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/devkit"
	"errand/pkg/messages"
)

// rows are the work of a poller: the first reading of a sending log.
type rows struct {
	items int
	page  int // rows on a page
}

// delivered is the subject on which rows without a request are published.
var delivered = messages.Delivery.Subject(messages.Delivered, messages.Unmatched)

func (rows) prepare(ctx context.Context, s *stage, _ string) error {
	return recreate(ctx, s.js, s.limits)
}

// start reads what was used so far: a poller waits for nobody.
func (rows) start(_ context.Context, s *stage, _ string, contestants ...*process) (reading, error) {
	return s.read(contestants...)
}

func (r rows) finished(ctx context.Context, s *stage) (bool, error) {
	info, err := r.info(ctx, s)
	return err == nil && info.State.Subjects[delivered] >= uint64(r.items), err
}

func (rows) info(ctx context.Context, s *stage) (*jetstream.StreamInfo, error) {
	stream, err := s.js.Stream(ctx, bus.MailDeliveries)
	if err != nil {
		return nil, err
	}
	return stream.Info(ctx, jetstream.WithSubjectFilter(messages.Delivery.Subject(">", "")))
}

// verify makes sure that there is one event for each row, and no other. It returns the time from the first to the last.
func (r rows) verify(ctx context.Context, s *stage, _ int) (time.Duration, error) {
	info, err := r.info(ctx, s)
	if err != nil {
		return 0, err
	}
	if info.State.Subjects[delivered] != uint64(r.items) || len(info.State.Subjects) != 1 {
		return 0, fmt.Errorf("%d rows were published, want %d, on %d subjects, want 1", info.State.Subjects[delivered], r.items, len(info.State.Subjects))
	}
	stream, err := s.js.Stream(ctx, bus.MailDeliveries)
	if err != nil {
		return 0, err
	}
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

// log is the role of the email service when it is asked for its sending log.
type log struct {
	Rows int `help:"Rows of the log."`

	newest time.Time
	calls  atomic.Int64
}

func (l *log) Run() error {
	l.newest = time.Now().UTC()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := http.Server{Handler: l, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }() // ends with Close
	fmt.Println("http://" + listener.Addr().String())
	err = answer(func(string) (any, error) {
		cpu, err := ownCPU()
		return called{Calls: l.calls.Load(), CPU: cpu}, err
	})
	_ = s.Close()
	if closed := <-served; !errors.Is(closed, http.ErrServerClosed) {
		err = errors.Join(err, closed)
	}
	return err
}

func (l *log) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.calls.Add(1)
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
