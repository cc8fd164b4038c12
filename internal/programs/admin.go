package programs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/requests/hold"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// readiness collects the reasons why a program cannot work, and what there is to say while it can.
type readiness struct {
	starting latest              // what the program still waits for; "" when it is running
	checks   list[func() string] // what is wrong; "" if nothing is
	holds    list[operationHold] // while one lasts, the program cannot work
	notes    list[func() string] // what there is to say; "" if nothing
	paused   latest              // which queues are, and until when: the program can still work
	upstream list[func() string] // what the service of a poller's list is at fault for; "" for nothing
	standby  atomic.Bool         // another replica of the poller leads
}

type operationHold struct {
	op   messages.Operation
	hold *hold.Hold
}

// latest is a text that is stored while it is read.
type latest struct{ atomic.Value }

func (l *latest) now() string {
	now, _ := l.Load().(string) // "" before anything is stored
	return now
}

// list is added to while it is read.
type list[T any] struct {
	mu  sync.Mutex
	all []T
}

func (l *list[T]) add(one T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, one)
}

func (l *list[T]) now() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// said is what all of them return but "".
func said(all []func() string) []string {
	out := []string{}
	for _, says := range all {
		if text := says(); text != "" {
			out = append(out, text)
		}
	}
	return out
}

// leads stores whether this replica of a poller leads, or is a standby.
func (r *readiness) leads(yes bool) { r.standby.Store(!yes) }

// says is what /readyz answers while the program can work.
func (r *readiness) says() string {
	first := "ready"
	if r.standby.Load() {
		first = "ready, standby: another replica leads"
	}
	return strings.TrimSpace(strings.Join(slices.Concat([]string{first}, said(r.notes.now()), []string{r.paused.now()}), "\n"))
}

// faults lists what is wrong now, holds last.
func (r *readiness) faults() []string {
	out := r.others()
	for _, held := range r.holds.now() {
		if why := held.hold.Why(); why != "" {
			out = append(out, "held: "+why)
		}
	}
	return out
}

// others lists what is wrong now apart from holds.
func (r *readiness) others() []string {
	return said(append([]func() string{r.starting.now}, r.checks.now()...))
}

// listen listens on addr, the value of setting; its error is an *Invalid with a value to set instead.
func listen(setting, addr, example string) (net.Listener, error) {
	listener, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, &Invalid{setting, fmt.Sprintf("another program listens at %s: of several on one machine, "+
			"give each a different address, such as %s=%s", addr, setting, example)}
	}
	if err != nil {
		return nil, &Invalid{setting, fmt.Sprintf("%v (for example %s)", err, example)}
	}
	return listener, nil
}

// Serve serves on listener until ctx ends and what was begun is answered, or hard ends.
func Serve(ctx, hard context.Context, server *http.Server, listener net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // waited for below
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	err := server.Shutdown(hard)
	if hard.Err() != nil {
		err = server.Close() // the caller knows that hard has ended
	}
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// serveAdmin serves server on addr until the returned function is called.
func serveAdmin(addr string, server *http.Server, log zerolog.Logger) (stop func(), err error) {
	if addr == "" || addr == "off" {
		return func() {}, nil
	}
	listener, err := listen("ADMIN_ADDR", addr, "127.0.0.1:8081, or off")
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.Serve(listener); err != http.ErrServerClosed {
			log.Error().Err(err).Msg("admin server")
		}
	})
	log.Info().Str("addr", listener.Addr().String()).Msg("admin server listens")
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), retry.AdminEnd)
		defer cancel()
		_ = server.Shutdown(ctx)
		wg.Wait()
	}, nil
}

// adminServer serves /healthz (the process is alive), /readyz (it can work, and which queues are paused, or why it cannot),
// and /metrics, without authentication. It closes connections of slow clients.
func adminServer(ready *readiness, metrics prometheus.Gatherer) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if faults := ready.faults(); len(faults) > 0 {
			http.Error(w, strings.Join(faults, "\n"), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, ready.says())
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return &http.Server{Handler: mux, MaxHeaderBytes: 16 << 10,
		ReadTimeout: retry.AdminRead, WriteTimeout: retry.AdminWrite, IdleTimeout: retry.AdminIdle}
}

// status is what a program answers to bus.AskStatus: what /readyz says, with each hold by itself.
func (r *runtime) status() bus.ProgramStatus {
	host, _ := os.Hostname() // "" says as little as a wrong one
	s := bus.ProgramStatus{Program: r.name, Host: host, Version: Version(), Started: messages.Time{Time: r.started},
		Faults: r.ready.others(), Holds: []bus.Hold{}, Notes: said(r.ready.notes.now()),
		Duplicates: r.metrics.transactions.twice(), Standby: r.ready.standby.Load(), Upstream: strings.Join(said(r.ready.upstream.now()), ""),
		SuppressFor: r.suppressFor.Load()}
	if !r.onDemand { // the next call shows whether it is stored now
		s.NotStored = r.publisher.Faults()
	}
	for _, held := range r.ready.holds.now() {
		if why, since := held.hold.Held(); why != "" {
			s.Holds = append(s.Holds, bus.Hold{Operation: held.op, Why: why, Since: messages.Time{Time: since}})
		}
	}
	if nanoseconds := r.metrics.readSince.Load(); nanoseconds != 0 {
		s.ReadThrough = &messages.Time{Time: time.Unix(0, nanoseconds)}
	}
	return s
}
