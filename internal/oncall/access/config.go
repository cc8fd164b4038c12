// Package access decides who may use the console, and for what.
//
//	request ─► Guard.Wrap: security headers, host name, no cross-site requests   guard.go
//	        ─► Guard.Allow(role): who is it?
//	             CONSOLE_LOGIN=none   the configured user, on loopback only; all
//	                                  but Read takes the token printed at start
//	             CONSOLE_LOGIN=proxy  whom the proxy's headers name              proxy.go
//	           do their roles include it?                                        user.go
//	        ─► the page, with its User
//
// Nothing is stored: each request carries what is known about its user. The defaults refuse; a change here needs a
// test of what it must not authorize.
package access

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"errand/internal/loopback"
	"errand/internal/programs"
)

// Who says who a user is.
const (
	loginNone  = "none"
	loginProxy = "proxy"
)

// Config says where the console listens, who may use it, and how it learns who that is.
type Config struct {
	Addr   string   `env:"CONSOLE_ADDR" default:"127.0.0.1:8088" help:"Address of the pages; loopback unless there is a login."`
	URL    string   `env:"CONSOLE_URL" placeholder:"URL" help:"Where browsers reach the console; required with a login."`
	Login  string   `env:"CONSOLE_LOGIN" default:"none" enum:"none,proxy" help:"What identifies users: none, or a proxy."`
	User   string   `env:"CONSOLE_USER" default:"local" help:"Name of the user without a login, for the audit."`
	Roles  []string `env:"CONSOLE_ROLES" default:"read,reveal,act" help:"Roles this console grants: read, reveal (personal data), act."`
	Groups Groups   `embed:""`
	Proxy  Proxy    `embed:"" prefix:"proxy-"`
}

// Groups says which groups have which role. Every role includes Read.
type Groups struct {
	Read   []string `name:"read-groups" env:"CONSOLE_READ_GROUPS" placeholder:"GROUP" help:"Groups that may read; personal data is masked."`
	Reveal []string `name:"reveal-groups" env:"CONSOLE_REVEAL_GROUPS" placeholder:"GROUP" help:"Groups that may also see personal data."`
	Act    []string `name:"act-groups" env:"CONSOLE_ACT_GROUPS" placeholder:"GROUP" help:"Groups that may also redrive, cancel, pause."`
}

func invalid(variable, problem string) error {
	return &programs.Invalid{Variable: variable, Problem: problem}
}

// Validate returns a *programs.Invalid for the first wrong setting, above all for one that would authorize everyone.
func (c *Config) Validate() error {
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return invalid("CONSOLE_ADDR", "must be an address with a port, such as 127.0.0.1:8088")
	}
	if c.Login == loginNone && !loopback.Is(host) {
		return errReachable(c.Addr)
	}
	for _, role := range c.Roles {
		if !slices.Contains(allRoles, Role(role)) {
			return invalid("CONSOLE_ROLES", fmt.Sprintf("must be read, reveal or act, got %q", role))
		}
	}
	if !slices.Contains(c.Roles, string(Read)) {
		return invalid("CONSOLE_ROLES", "must include read: nobody could open a page")
	}
	if c.Login == loginNone { // settings for a login are refused: a person believes that there is one
		switch _, err := userName(c.User); {
		case !c.Groups.empty():
			return invalid("CONSOLE_LOGIN", "must be proxy if groups are set: nobody would have to be a member")
		case len(c.Proxy.Peers) > 0:
			return invalid("CONSOLE_LOGIN", "must be proxy if CONSOLE_PROXY_PEERS is set: the proxy's users would be ignored")
		case err != nil:
			return invalid("CONSOLE_USER", err.Error())
		}
		return nil
	}
	if c.Groups.empty() {
		return invalid("CONSOLE_READ_GROUPS",
			"must name a group, here or in CONSOLE_REVEAL_GROUPS or CONSOLE_ACT_GROUPS: only members are authorized")
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return invalid("CONSOLE_URL", "must be the address for browsers, without a path, such as https://errand.example.com")
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !loopback.Is(u.Hostname())) {
		return invalid("CONSOLE_URL", "must begin with https: personal data would travel in the clear")
	}
	return c.Proxy.validate()
}

// origin is CONSOLE_URL as browsers name it in Origin.
func (c *Config) origin() string { return strings.TrimRight(strings.ToLower(c.URL), "/") }

// Listen listens on the address. Without a login it returns a *programs.Invalid if other machines can reach it.
func (c *Config) Listen(ctx context.Context) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Addr)
	if err != nil {
		return nil, invalid("CONSOLE_ADDR", err.Error())
	}
	if host, _, err := net.SplitHostPort(listener.Addr().String()); c.Login == loginNone && (err != nil || !loopback.Is(host)) {
		_ = listener.Close() // nobody was served
		return nil, errReachable(listener.Addr().String())
	}
	return listener, nil
}

func errReachable(addr string) error {
	return invalid("CONSOLE_ADDR", addr+" can be reached from other machines without a login: use 127.0.0.1, or set CONSOLE_LOGIN")
}
