// Package access decides who may use the console, and for what.
//
//	a request ─► Guard.Wrap: security headers, host, no cross-site request
//	          ─► Guard.Allow(role): who is it (nobody logs in | a proxy says it | a session of OIDC), may they
//	          ─► the page, with its User
//
// Nothing is stored: what is known of a user comes with each request.
package access

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The kinds of login.
const (
	loginNone  = "none"
	loginProxy = "proxy"
	loginOIDC  = "oidc"
)

// Config says where the console listens, who may use it, and how it learns who that is.
type Config struct {
	Addr   string        `name:"addr" env:"CONSOLE_ADDR" default:"127.0.0.1:8088" help:"Address of the pages. Without a login it must be one that only this machine can reach." group:"access"`
	URL    string        `name:"url" env:"CONSOLE_URL" placeholder:"URL" help:"Address under which browsers reach the console, such as https://errand.example.com; needed with a login." group:"access"`
	Login  string        `name:"login" env:"CONSOLE_LOGIN" default:"none" enum:"none,proxy,oidc" help:"How the console learns who somebody is: none (whoever reaches this machine's own address is authorized), proxy (a proxy in front names user and groups) or oidc (OpenID Connect)." group:"access"`
	User   string        `name:"user" env:"CONSOLE_USER" default:"local" help:"Name of whoever uses the console without a login, for the audit." group:"access"`
	Roles  []string      `name:"roles" env:"CONSOLE_ROLES" default:"read,reveal,act" help:"Roles that the console gives at all: read, reveal (personal data) and act." group:"access"`
	MaxAge time.Duration `name:"session" env:"CONSOLE_SESSION" default:"1h" help:"How long a login lasts, and a page's stream of live changes; then it is made again." group:"access"`
	Groups Groups        `embed:""`
	Proxy  Proxy         `embed:"" prefix:"proxy-"`
	OIDC   OIDC          `embed:"" prefix:"oidc-"`
}

// Groups says which groups' members have which role. Whoever has any role may read.
type Groups struct {
	Read   []string `name:"read-groups" env:"CONSOLE_READ_GROUPS" placeholder:"GROUP" help:"Groups that may read, with personal data masked." group:"access"`
	Reveal []string `name:"reveal-groups" env:"CONSOLE_REVEAL_GROUPS" placeholder:"GROUP" help:"Groups that may also see personal data; each time is audited." group:"access"`
	Act    []string `name:"act-groups" env:"CONSOLE_ACT_GROUPS" placeholder:"GROUP" help:"Groups that may also redrive, cancel, pause and the like." group:"access"`
}

// Invalid is a setting that is wrong. It names the variable and says what would break.
type Invalid struct{ Variable, Problem string }

func (e *Invalid) Error() string { return e.Variable + ": " + e.Problem }

// Validate returns an *Invalid for the first setting that is wrong, above all for one that
// would let everybody in.
func (c *Config) Validate() error {
	if err := c.validateAddr(); err != nil {
		return err
	}
	for _, role := range c.Roles {
		if !slices.Contains(allRoles, Role(role)) {
			return &Invalid{"CONSOLE_ROLES", fmt.Sprintf("%q is none of read, reveal and act", role)}
		}
	}
	if !slices.Contains(c.Roles, string(Read)) {
		return &Invalid{"CONSOLE_ROLES", "without read nobody could open a page"}
	}
	if c.MaxAge < time.Minute || c.MaxAge > 12*time.Hour {
		return &Invalid{"CONSOLE_SESSION", "must be 1m to 12h: whoever leaves a group keeps its role for as long"}
	}
	if c.Login == loginNone {
		return c.validateNone()
	}
	if c.Groups.empty() {
		return &Invalid{"CONSOLE_READ_GROUPS", "name a group, here or in CONSOLE_REVEAL_GROUPS or CONSOLE_ACT_GROUPS: nobody else is authorized"}
	}
	if err := c.validateURL(); err != nil {
		return err
	}
	if c.Login == loginOIDC {
		return c.OIDC.validate()
	}
	return c.Proxy.validate()
}

// validateAddr refuses an address that others can reach while nobody has to log in.
func (c *Config) validateAddr() error {
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return &Invalid{"CONSOLE_ADDR", "is no address with a port, such as 127.0.0.1:8088"}
	}
	if c.Login == loginNone && !isLoopback(host) {
		return errReachable(c.Addr)
	}
	return nil
}

// validateNone refuses settings of a login where there is none: somebody believes there is.
func (c *Config) validateNone() error {
	if !c.Groups.empty() {
		return &Invalid{"CONSOLE_LOGIN", "groups are given, and nobody would have to be in one: set it to proxy or oidc"}
	}
	if len(c.Proxy.Peers) > 0 {
		return &Invalid{"CONSOLE_LOGIN", "CONSOLE_PROXY_PEERS is given, and the proxy's users would not be asked for: set it to proxy"}
	}
	if c.OIDC.Issuer != "" {
		return &Invalid{"CONSOLE_LOGIN", "CONSOLE_OIDC_ISSUER is given, and nobody would have to log in there: set it to oidc"}
	}
	if _, err := userName(c.User); err != nil {
		return &Invalid{"CONSOLE_USER", err.Error()}
	}
	return nil
}

func (c *Config) validateURL() error {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return &Invalid{"CONSOLE_URL", "must be what browsers go to, without a path, such as https://errand.example.com"}
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		return &Invalid{"CONSOLE_URL", "must begin with https: sessions and personal data would travel in the clear"}
	}
	return nil
}

// origin is CONSOLE_URL as browsers name it in Origin.
func (c *Config) origin() string { return strings.TrimRight(strings.ToLower(c.URL), "/") }

// Listen listens on the address. Without a login it returns an *Invalid if that turns out
// to be one that others can reach.
func (c *Config) Listen(ctx context.Context) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Addr)
	if err != nil {
		return nil, &Invalid{"CONSOLE_ADDR", err.Error()}
	}
	if host, _, err := net.SplitHostPort(listener.Addr().String()); c.Login == loginNone && (err != nil || !isLoopback(host)) {
		_ = listener.Close() // nobody was served
		return nil, errReachable(listener.Addr().String())
	}
	return listener, nil
}

func errReachable(addr string) error {
	return &Invalid{"CONSOLE_ADDR", addr + " can be reached from other machines, and nobody would have to log in: listen on 127.0.0.1, or set CONSOLE_LOGIN"}
}

// isLoopback reports whether a host is this machine by its own address. A name is not: what
// it means is decided elsewhere.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}
