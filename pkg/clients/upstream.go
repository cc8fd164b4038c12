package clients

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"errand/internal/loopback"
	"errand/pkg/clients/internal/direct"
)

// Origin is where a service is and what every call to it carries.
type Origin struct {
	Field   string            // the name of the address in error messages
	URL     string            // scheme, host and, if the service is not at the root, a path
	Header  map[string]Secret // sent with every call
	Prefix  string            // put before each value of Header
	Secrets []Secret          // further secrets, removed from what the upstream says
	Hidden  []string          // names of members of its answers whose values are secret, in every request
}

// Call is what an observer learns of each call.
type Call struct {
	Operation  string
	Fate       Fate
	Status     int
	Duration   time.Duration // includes the wait for a connection
	RetryAfter time.Duration
}

// Upstream makes calls to one origin and to no other. It is safe for concurrent use.
type Upstream struct {
	settings
	base    *url.URL
	prefix  string
	header  atomic.Pointer[http.Header] // shared by the calls, so never changed in place
	secrets atomic.Pointer[secrets]
	reports bool // the transport reports every connection it got; before that nothing was sent

	renewing sync.Mutex
}

// Format shows the origin and nothing of the keys, for every verb.
func (u *Upstream) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, "upstream "+u.base.Scheme+"://"+u.base.Host)
}

type settings struct {
	timeout   time.Duration
	transport http.RoundTripper
	wrap      func(http.RoundTripper) http.RoundTripper
	observe   func(Call)
	underWay  *atomic.Int64
	wait      func(context.Context) error
	maxConns  int
	plainHTTP bool
}

// Option changes how calls are made.
type Option func(*settings)

// Timeout bounds one call from the wait for a connection to the end of the answer; 30 s if not given. An earlier deadline of the
// context counts.
func Timeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// Transport replaces the transport, for instance by NewTransport with another TLS configuration. It must neither change the
// request, whose header all calls share, nor send a POST twice. If it is not an *http.Transport it should report to
// net/http/httptrace: otherwise the fate of a call that got no connection is unknown.
func Transport(t http.RoundTripper) Option { return func(s *settings) { s.transport = t } }

// Wrap wraps the transport, to watch calls, each with its context. The wrapper must pass on the request unchanged, and the
// answer with a body that reads the same.
func Wrap(f func(http.RoundTripper) http.RoundTripper) Option {
	return func(s *settings) { s.wrap = f }
}

// Observe calls f with every call when it is over, from the goroutine that made it.
func Observe(f func(Call)) Option { return func(s *settings) { s.observe = f } }

// UnderWay keeps in n how many calls are under way, the wait for a connection included. A call that has taken a third of
// Timeout is no longer counted: calls that hang do not show how much there is to do.
func UnderWay(n *atomic.Int64) Option { return func(s *settings) { s.underWay = n } }

// WaitToRead calls f before each GET, which is made if f returns nil; its fate is Busy otherwise. Neither Timeout nor Observe
// counts the wait. A POST does not wait here: its caller must wait before announcing it.
func WaitToRead(f func(context.Context) error) Option { return func(s *settings) { s.wait = f } }

// MaxConns is how many connections are kept open for the next call; 64 if not given. Set it to the number of calls made at a time.
func MaxConns(n int) Option { return func(s *settings) { s.maxConns = n } }

// AllowPlainHTTP permits an http:// origin that is not on this machine: keys and payer data then travel unencrypted.
func AllowPlainHTTP() Option { return func(s *settings) { s.plainHTTP = true } }

// NewUpstream checks the origin and the options; an error names the field and what to do.
func NewUpstream(origin Origin, options ...Option) (*Upstream, error) {
	s := settings{timeout: 30 * time.Second, maxConns: 64, underWay: new(atomic.Int64)}
	for _, option := range options {
		option(&s)
	}
	if s.timeout <= 0 {
		return nil, fmt.Errorf("clients: Timeout must be positive")
	}
	if s.maxConns <= 0 {
		return nil, fmt.Errorf("clients: MaxConns must be positive")
	}
	base, err := parseOrigin(origin, s.plainHTTP)
	if err != nil {
		return nil, err
	}
	if s.transport == nil {
		s.transport = NewTransport(s.maxConns, nil)
	}
	configured, reports := s.transport.(*http.Transport)
	if reports {
		s.transport = direct.New(configured, watched)
	}
	if s.wrap != nil {
		s.transport = s.wrap(s.transport)
	}
	u := &Upstream{settings: s, base: base, prefix: origin.Prefix, reports: reports}
	u.secrets.Store(newSecrets(nil, origin.Hidden...))
	if err := u.SetCredentials(origin.Header, origin.Secrets...); err != nil {
		return nil, err
	}
	return u, nil
}

// maxKnown is how many secrets are removed from what the upstream says; one that was replaced so long ago is no longer valid.
const maxKnown = 64

// SetCredentials replaces Header and Secrets of the origin for the calls that begin from now on; an error, which names the header, changes
// nothing. What was secret before stays so: the answer to a call under way may quote it.
func (u *Upstream) SetCredentials(header map[string]Secret, further ...Secret) error {
	u.renewing.Lock()
	defer u.renewing.Unlock()
	h := http.Header{
		"Accept":       {"application/json"},
		"Content-Type": {"application/json"},
		"User-Agent":   {"errand"},
	}
	known := slices.Clone(further)
	for name, value := range header {
		if !value.sendable() {
			return fmt.Errorf("clients: the value for header %s holds spaces or characters that cannot be sent", name)
		}
		h.Set(name, u.prefix+value.Reveal())
		known = append(known, value)
	}
	before := u.secrets.Load()
	for _, old := range before.all {
		if !slices.ContainsFunc(known, old.Equal) && len(known) < maxKnown {
			known = append(known, old)
		}
	}
	u.secrets.Store(newSecrets(known, before.fields...)) // first, so that no call carries what is not removed from its answer
	u.header.Store(&h)
	return nil
}

// ErrPlainHTTP is in the error for an http:// origin that is not on this machine, where AllowPlainHTTP is not given.
var ErrPlainHTTP = errors.New("keys would travel unencrypted: use https:// or allow plain http explicitly")

// parseOrigin never quotes the address: it may hold a password.
func parseOrigin(origin Origin, plainHTTP bool) (*url.URL, error) {
	u, err := url.Parse(origin.URL)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Contains(u.Path, " "):
		return nil, fmt.Errorf("%s is not an absolute https:// address", origin.Field)
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("%s must hold scheme, host and path only: no user, query or fragment", origin.Field)
	case u.Scheme == "http" && !plainHTTP && !loopback.Is(u.Hostname()):
		return nil, fmt.Errorf("%s is plain http:// to host %q, %w", origin.Field, u.Hostname(), ErrPlainHTTP)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/")}, nil
}

// NewTransport is the transport of this package: HTTP/1.1 only, maxConns connections kept open, config for TLS (nil: the
// system's authorities). Over its own connections, an answer that came before its call is told apart from one to the call, and
// no call begins after its deadline.
func NewTransport(maxConns int, config *tls.Config) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:     config,
		TLSHandshakeTimeout: 10 * time.Second,
		Protocols:           protocols,
		MaxIdleConnsPerHost: maxConns,
		// Shorter than any common server's patience (5 s and more): a POST that meets the server's close on its way is a call of unknown
		// fate, a new connection costs milliseconds.
		IdleConnTimeout:        4 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		// Bodies are small, and what was not asked for compressed is not guessed at.
		DisableCompression: true,
	}
}
