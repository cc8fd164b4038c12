package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	"errand/internal/retry"
)

// call is one POST that reached a service: what it asked for, and what became of it.
type call struct {
	n        int
	request  string // id
	contents int    // which of the request's contents
	first    string // mail: recipient
	to       []string
	by       *node
	at       time.Time
	fate     string    // the weather that it met, "" without any
	effects  []string  // recipients accepted, or the order number
	effectAt time.Time // zero if it had no effect
	answered bool      // the caller got an answer that says what happened
	trial    bool      // the caller cannot know what came of it
	seen     time.Time // when the caller got its answer, or knew that there is no answer
}

func (c *call) String() string {
	what := fmt.Sprintf("%s calls for %s", c.by.name, c.request)
	if c.contents > 0 {
		what += fmt.Sprintf(" (contents %d)", c.contents)
	}
	if len(c.to) > 0 {
		what += fmt.Sprintf(" to %d from %s", len(c.to), c.first)
	}
	return what
}

// service is one of the two upstreams.
type service struct {
	// read parses a call that would change something.
	read func(body []byte) *call
	// take does what a call asks for, or a part of it, and returns the answer.
	take func(c *call, whole bool) string
	// get answers a read.
	get func(path, query string) (status int, body string)
}

// link is a replica's way to a service: the transport below the real clients.
type link struct {
	*node
	*service
	timeout time.Duration
	flights atomic.Int32 // calls under way
}

var errCut = errors.New("connection reset")

// RoundTrip makes one call.
func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	if err := l.before(ctx, "call", overHTTP); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil { // the transport looks at the clocks right before it writes
		return nil, err
	}
	l.w.underWay(int(l.flights.Add(1)))
	defer l.flights.Add(-1)
	if r.Method == http.MethodGet {
		return l.readCall(ctx, r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	return l.change(ctx, l.read(body))
}

// connected tells the client that it got a connection: from here on its call may have been sent.
func connected(ctx context.Context) {
	if t := httptrace.ContextClientTrace(ctx); t != nil && t.GotConn != nil {
		t.GotConn(httptrace.GotConnInfo{})
	}
}

func (l *link) readCall(ctx context.Context, r *http.Request) (*http.Response, error) {
	h := l.w.drawn(l.name, "GET "+r.URL.Path)
	if l.w.is(unreachable, part(h, 0)) {
		retry.Pause(ctx, time.Second)
		return nil, errCut
	}
	connected(ctx)
	if err := l.takes(ctx, "read", l.w.duration(h)); err != nil {
		return nil, err
	}
	switch {
	case l.w.is(listFails, part(h, 1)):
		return answer(http.StatusServiceUnavailable, "", `{"message":"later"}`), nil
	case l.w.is(held, part(h, 2)):
		return answer(http.StatusForbidden, "", `{"message":"no"}`), nil
	}
	status, body := l.get(r.URL.Path, r.URL.RawQuery)
	return answer(status, "", body), nil
}

// duration is how long an answer takes.
func (w *world) duration(h uint64) time.Duration {
	if w.is(slowService, part(h, 3)) {
		return between(5*time.Second, 28*time.Second, part(h, 0))
	}
	return between(2*time.Millisecond, 300*time.Millisecond, part(h, 0)*part(h, 1))
}

func (l *link) takes(ctx context.Context, what string, d time.Duration) error {
	if !retry.Pause(ctx, d) {
		return context.Cause(ctx)
	}
	return l.after(ctx, what, overHTTP)
}

// change makes a call that changes something, in the weather of the moment.
func (l *link) change(ctx context.Context, c *call) (*http.Response, error) {
	w := l.w
	h := w.drawn("POST", fmt.Sprintf("%s %d %s", c.request, c.contents, c.first))
	c.by, c.at = l.node, time.Now()
	c.fate = w.fateOf(c, h)
	if c.fate == unreachable {
		retry.Pause(ctx, between(time.Millisecond, 5*time.Second, part(h, 1)))
		return nil, errCut
	}
	connected(ctx)
	w.called(c)
	defer func() { c.seen = time.Now() }()
	d := w.duration(w.drawn(l.name, "POST"))
	effect := func(after time.Duration) string { // whatever becomes of the caller
		body := ""
		if after > 0 {
			time.AfterFunc(after, func() { w.effect(c, l.service, true) })
			return body
		}
		return w.effect(c, l.service, c.fate != shortCount)
	}
	quick, status, say, body := d/2, http.StatusOK, "", ""
	switch c.fate {
	case "", shortCount:
	case busy:
		status, c.answered = []int{503, 429, 408, 425}[h>>60&3], true
	case retryAfter:
		status, say, c.answered = http.StatusServiceUnavailable, strconv.Itoa([]int{7, 86400}[h>>60&1]), true
	case held:
		status, c.answered = []int{401, 402, 403, 404}[h>>60&3], true
	case refuses:
		status, c.answered = []int{400, 422}[h>>60&1], true
	case error500:
		c.trial = true
		if status = http.StatusInternalServerError; part(h, 1) < 0.5 {
			effect(quick)
		}
	case cuts:
		c.trial = true
		if part(h, 1) < 0.5 {
			effect(quick)
		}
		if err := l.takes(ctx, "call", d); err != nil {
			return nil, err
		}
		return nil, errCut
	case hangs:
		c.trial = true
		switch x := part(h, 1); {
		case x < 0.3:
			effect(between(0, l.timeout, x/0.3))
		case x < 0.6: // its end is the call's timeout, and the list shows it in time
			effect(l.timeout + between(0, listSettle/3, (x-0.3)/0.3))
		}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	case unreadable:
		c.trial = true
		effect(quick)
		body = "<html>"
	}
	if !retry.Pause(ctx, quick) {
		c.trial = true
		if c.fate == "" || c.fate == shortCount { // it has reached the service
			effect(time.Millisecond)
		}
		return nil, context.Cause(ctx)
	}
	if c.fate == "" || c.fate == shortCount {
		body = effect(0)
	}
	if err := l.takes(ctx, "call", d-quick); err != nil {
		c.trial = true
		return nil, err
	}
	c.answered = true
	return answer(status, say, body), nil
}

func answer(status int, retryAfter, body string) *http.Response {
	r := &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(body)),
		Body: io.NopCloser(bytes.NewReader([]byte(body)))}
	if retryAfter != "" {
		r.Header.Set("Retry-After", retryAfter)
	}
	return r
}

// fateOf is what the weather makes of a call. A poison request meets its own each time.
func (w *world) fateOf(c *call, h uint64) string {
	if p := w.requests[c.request].Poison; p != "" && time.Now().Before(w.clear) {
		return p
	}
	for i, kind := range [...]string{unreachable, busy, retryAfter, error500, hangs, cuts, held, refuses, unreadable} {
		if w.is(kind, part(h*uint64(2*i+3), 3)) {
			return kind
		}
	}
	if len(c.to) > 1 && w.is(shortCount, part(h, 2)) {
		return shortCount
	}
	return ""
}
