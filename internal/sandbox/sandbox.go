// Package sandbox is a stateful, scriptable stand-in for the e-mandate service and the outbound email service. It follows
// the rules of their documents, lists and logs what it did as they would, and fails on demand in every way a network can.
//
//	POST /v3/mandates, /api/v2/mandates ─┐              ┌─► transaction list, page to approve, callback
//	POST /api/v0/messages ───────────────┼─ call ─ work ┼─► sending log, quota, page of the mail sent
//	GET  …transactions, …logs, …user ────┘    ▲         └─► oracle: what was really done, and what twice
//	                                    faults and settings under /_sandbox/
//
// It imports nothing from this project but the look of pages: sharing types with the client under test would share its
// mistakes. Where the documents say "not shown", it follows docs/why/adr/0004-sandbox-assumptions.md.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options say who may call the sandbox and what it keeps. The zero value accepts any non-empty token, key and portal key.
type Options struct {
	MandateToken   string // the bearer token of v2 and v3; "" accepts any non-empty one
	PortalKey      string // "" accepts any non-empty one
	ChecksumSecret string // when set, a checksum in a request is verified and callbacks are signed
	MailKey        string // X-API-Key; "" accepts any non-empty one

	PublicURL string         // scheme and host of the URLs in answers; "" takes the Host of each request
	Hosts     []string       // further names under which the control interface may be called
	Location  *time.Location // the zone of dates that do not name theirs; nil is UTC+8
	Seed      uint64         // of all randomness in the sandbox
	Settings  *Settings      // at the start; nil is DefaultSettings

	AllowCallbacks bool              // also to hosts that are not loopback
	Callbacks      http.RoundTripper // sends the callbacks; nil is a transport without proxy

	Logf func(format string, args ...any) // logs faults that fired, callbacks and decisions; nil logs nothing
}

// Sandbox is both upstreams in one, safe for concurrent use. What changes with time is computed when it is read.
type Sandbox struct {
	o        Options
	zone     *time.Location
	settings atomic.Pointer[Settings]
	changing sync.Mutex // held while the settings are changed

	faults   faults
	journal  journal
	registry registry
	outbox   outbox

	control  http.Handler
	callback callbacks

	running   context.Context // ended by Close: delays end, callbacks are not retried
	end       context.CancelFunc
	launching sync.Mutex // held while launching: nothing is launched once running has ended
	inFlight  sync.WaitGroup
}

// New returns an empty sandbox. Close it when done.
func New(o Options) *Sandbox {
	s := &Sandbox{o: o, zone: cmp.Or(o.Location, time.FixedZone("UTC+8", 8*60*60)),
		faults:   faults{fired: map[string]int{}},
		registry: registry{last: map[string]uint32{}, twice: map[string]int{}},
		outbox:   outbox{seed: o.Seed, replies: map[string]int{}, seen: map[mailed]int{}},
	}
	settings := DefaultSettings()
	if o.Settings != nil {
		settings = *o.Settings
	}
	s.settings.Store(&settings)
	s.running, s.end = context.WithCancel(context.Background())
	s.o.PublicURL = strings.TrimRight(o.PublicURL, "/")
	s.callback.client = callbackClient(o.Callbacks)
	s.control = s.guarded(s.controlHandler())
	return s
}

// Close ends the delays of calls, and waits until every callback that was due has been tried once; failed ones are not
// repeated. Close the sandbox before a server that waits for its handlers.
func (s *Sandbox) Close() {
	s.launching.Lock()
	s.end()
	s.launching.Unlock()
	s.inFlight.Wait()
}

// launch runs work in the background; Close waits for it.
func (s *Sandbox) launch(work func()) {
	s.launching.Lock()
	defer s.launching.Unlock()
	if s.running.Err() == nil {
		s.inFlight.Go(work)
	}
}

// endpoints are the upstreams' operations by path.
var endpoints = map[string]struct {
	op   operation
	work func(*Sandbox, *call) answer
}{
	"/v3/mandates":              {opEnroll, (*Sandbox).enroll},
	"/api/v2/mandates":          {opEnroll, (*Sandbox).enroll},
	"/v3/mandates/transactions": {opTransactions, (*Sandbox).transactions},
	"/api/v0/messages":          {opSend, (*Sandbox).send},
	"/api/v0/logs":              {opLogs, (*Sandbox).logs},
	"/api/v0/user":              {opAccount, (*Sandbox).account},
}

// ServeHTTP serves both upstreams, the control interface under /_sandbox/ and the pages.
func (s *Sandbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	endpoint, known := endpoints[path]
	switch {
	case known:
		s.serve(w, r, endpoint.op, endpoint.work)
	case strings.HasPrefix(path, "/api/v0/"):
		refuse(opSend, http.StatusNotFound, "Not found").write(w)
	case strings.HasPrefix(path, "/v3/"), strings.HasPrefix(path, "/api/"):
		refuse(opEnroll, http.StatusNotFound, "no such resource").write(w)
	case strings.HasPrefix(path, "/_sandbox/"):
		s.control.ServeHTTP(w, r)
	default:
		s.servePages(w, r)
	}
}

// base is the base URL of links in answers.
func (s *Sandbox) base(r *http.Request) string {
	if s.o.PublicURL != "" {
		return s.o.PublicURL
	}
	return "http://" + r.Host
}

func (s *Sandbox) logf(format string, args ...any) {
	if s.o.Logf != nil {
		s.o.Logf(format, args...)
	}
}

// shutdownGrace is how long Serve waits for calls under way when it stops.
const shutdownGrace = 5 * time.Second

// Serve serves a new sandbox on addr until ctx ends, which is not an error. ready is called with it and its base URL once calls
// are accepted.
func Serve(ctx context.Context, addr string, o Options, ready func(s *Sandbox, url string)) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	s := New(o)
	defer s.Close()
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	ready(s, "http://"+listener.Addr().String())
	select {
	case err := <-served:
		return fmt.Errorf("sandbox: %w", err)
	case <-ctx.Done():
	}

	s.Close() // so that no call waits in a delay
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err = server.Shutdown(grace); errors.Is(err, context.DeadlineExceeded) {
		err = server.Close() // cuts off the remaining callers; this is not an error
	}
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, failed)
	}
	return err
}
