package sandbox

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// guarded serves only callers that mean this sandbox: any page open in a browser could script it by a form, or by a name
// that it lets point here.
func (s *Sandbox) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !s.isOwnHost(r.Host):
			writeError(w, http.StatusForbidden, errors.New("the Host is not this sandbox: use its address, or name the host with SANDBOX_HOSTS"))
		case foreignOrigin(r):
			writeError(w, http.StatusForbidden, errors.New("the Origin is another one: a page elsewhere may not control the sandbox"))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isOwnHost reports whether a Host header names this sandbox: by an address, which no page has as its name, or by a name of
// the Options.
func (s *Sandbox) isOwnHost(host string) bool {
	name := hostname(host)
	public, _ := url.Parse(s.o.PublicURL) // checked where it is set; none has no host
	named := func(host string) bool { return strings.EqualFold(host, name) }
	return name != "" && (named("localhost") || net.ParseIP(name) != nil || public != nil && named(public.Hostname()) ||
		slices.ContainsFunc(s.o.Hosts, named))
}

// hostname is a Host header without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.Trim(host, "[]")
}

// foreignOrigin reports whether a browser says that another page than ours made the call.
func foreignOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return true
	}
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
			return true
		}
	}
	return false
}
