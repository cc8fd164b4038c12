// Package direct makes HTTP/1.1 calls in the goroutine that asks for them.
//
//	RoundTrip -> a quiet connection kept from before, or a new one -> write, in one packet -> read
//	         \-> net/http: proxies, long bodies, other methods and protocols
//
// [http.Transport] has two goroutines for each connection, and wakes four times for a call: half of its CPU time. Nothing else
// differs: requests are written and answers are read by net/http's own code, and [httptrace] hears the same.
package direct

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// longest is the longest body, in bytes, that is written without reading at the same time. It fits the buffers of any
// connection, so that a service which answers before it has read the whole call cannot block both sides.
const longest = 32 << 10

// Transport makes calls over connections of its own, as its http.Transport is configured, and leaves to that what it cannot do.
type Transport struct {
	*http.Transport
	able bool // nothing is configured that it cannot do

	mu       sync.Mutex
	idle     map[string][]*conn // by scheme and host; the one that was used last is the last
	sweeping bool               // a timer waits to close what was not used
}

// New makes calls as t would, which must not be changed afterwards. Every connection goes through watch, below TLS.
func New(t *http.Transport, watch func(net.Conn) net.Conn) *Transport {
	t = t.Clone()
	if dial := t.DialContext; dial != nil {
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return watch(c), nil
		}
	}
	only := new(http.Protocols)
	only.SetHTTP1(true)
	able := t.DialContext != nil && t.Protocols != nil && *t.Protocols == *only && t.DialTLSContext == nil &&
		t.MaxConnsPerHost == 0 && !t.DisableKeepAlives && t.DisableCompression && t.ExpectContinueTimeout == 0 && t.ResponseHeaderTimeout == 0
	return &Transport{Transport: t, able: able, idle: map[string][]*conn{}}
}

// takes reports whether the call is made here.
func (t *Transport) takes(r *http.Request) bool {
	if !t.able || r.Method != http.MethodPost && r.Method != http.MethodGet || r.ContentLength < 0 || r.ContentLength > longest ||
		strings.ContainsFunc(r.URL.Host, func(c rune) bool { return c >= utf8.RuneSelf }) {
		return false
	}
	if t.Proxy == nil {
		return true
	}
	proxy, err := t.Proxy(r)
	return proxy == nil && err == nil
}

// RoundTrip makes a call. One of which nothing was written, because a connection that was kept is gone, is made again; of
// one that was written only a GET is, and only before any answer.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.takes(r) {
		return t.Transport.RoundTrip(r)
	}
	trace := httptrace.ContextClientTrace(r.Context())
	if trace == nil {
		trace = new(httptrace.ClientTrace)
	}
	for {
		c, err := t.connect(r, trace)
		if err != nil {
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, err
		}
		response, err := c.call(r, trace)
		if err == nil || !c.reused || r.Context().Err() != nil || c.wrote > 0 && (r.Method != http.MethodGet || c.heard) {
			return response, err
		}
		again := *r
		if r.GetBody != nil {
			if again.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
		r = &again
	}
}

// CloseIdleConnections closes what is not in use.
func (t *Transport) CloseIdleConnections() {
	t.Transport.CloseIdleConnections()
	t.closeIdle(func(*conn) bool { return true })
}

// connect returns a connection that nothing was written to since its last answer.
func (t *Transport) connect(r *http.Request, trace *httptrace.ClientTrace) (*conn, error) {
	host := r.URL.Scheme + "://" + r.URL.Host
	if trace.GetConn != nil {
		trace.GetConn(r.URL.Host)
	}
	c := t.kept(host)
	if c == nil {
		var err error
		if c, err = t.dial(r.Context(), r.URL.Scheme, r.URL.Hostname(), r.URL.Port()); err != nil {
			return nil, err
		}
		c.host = host
	}
	if trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: c.Conn, Reused: c.reused})
	}
	return c, nil
}

// kept returns a connection from before; nil if there is none. One that something came on since its last answer, if only
// its end, is closed: what comes before a call cannot be its answer.
func (t *Transport) kept(host string) *conn {
	for {
		t.mu.Lock()
		idle := t.idle[host]
		if len(idle) == 0 {
			t.mu.Unlock()
			return nil
		}
		c := idle[len(idle)-1]
		t.idle[host] = idle[:len(idle)-1]
		t.mu.Unlock()
		if !t.old(c) && c.quiet() {
			c.reused = true
			return c
		}
		_ = c.Close()
	}
}

func (t *Transport) old(c *conn) bool {
	return t.IdleConnTimeout > 0 && time.Since(c.freed) >= t.IdleConnTimeout
}

func (t *Transport) dial(ctx context.Context, scheme, host, port string) (*conn, error) {
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	below, err := t.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: below, transport: t, line: &line{Conn: below}}
	c.line.raw = descriptor(below)
	if scheme == "https" {
		if c.Conn, err = t.secure(ctx, c.line, host); err != nil {
			_ = below.Close()
			return nil, err
		}
	}
	c.from = bufio.NewReader(limited{c})
	c.to = bufio.NewWriter(counted{c})
	return c, nil
}

// secure returns a connection over TLS whose handshake is done.
func (t *Transport) secure(ctx context.Context, below net.Conn, host string) (net.Conn, error) {
	config := t.TLSClientConfig.Clone()
	if config == nil {
		config = new(tls.Config)
	}
	if config.ServerName == "" {
		config.ServerName = host
	}
	limited, cancel := ctx, func() {}
	if t.TLSHandshakeTimeout > 0 {
		limited, cancel = context.WithTimeout(ctx, t.TLSHandshakeTimeout)
	}
	defer cancel()
	c := tls.Client(below, config)
	err := c.HandshakeContext(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = os.ErrDeadlineExceeded // of the handshake, not of the call
	}
	return c, err
}

// keep has the connection wait for another call, unless enough do.
func (t *Transport) keep(c *conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	most := t.MaxIdleConnsPerHost
	if most == 0 {
		most = http.DefaultMaxIdleConnsPerHost
	}
	if len(t.idle[c.host]) >= most {
		return false
	}
	c.freed = time.Now()
	t.idle[c.host] = append(t.idle[c.host], c)
	if !t.sweeping && t.IdleConnTimeout > 0 {
		t.sweeping = true
		time.AfterFunc(t.IdleConnTimeout, t.sweep)
	}
	return true
}

// sweep closes what was not used for too long, and comes back while anything is left.
func (t *Transport) sweep() {
	t.closeIdle(t.old)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sweeping = len(t.idle) > 0; t.sweeping {
		time.AfterFunc(t.IdleConnTimeout/4, t.sweep)
	}
}

// closeIdle closes idle connections.
func (t *Transport) closeIdle(which func(*conn) bool) {
	var done []*conn
	t.mu.Lock()
	for host, idle := range t.idle {
		t.idle[host] = slices.DeleteFunc(idle, func(c *conn) bool {
			ends := which(c)
			if ends {
				done = append(done, c)
			}
			return ends
		})
		if len(t.idle[host]) == 0 {
			delete(t.idle, host)
		}
	}
	t.mu.Unlock()
	for _, c := range done { // over TLS it says so, and may wait until that is taken
		_ = c.Close()
	}
}
