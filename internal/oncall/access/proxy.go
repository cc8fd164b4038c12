package access

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Proxy says which proxy identifies users, and how.
type Proxy struct {
	Peers        []string `env:"CONSOLE_PROXY_PEERS" placeholder:"CIDR" help:"Addresses of the proxy; only they are served."`
	UserHeader   string   `env:"CONSOLE_PROXY_USER_HEADER" default:"X-Forwarded-User" help:"Header with the user, which the proxy must set."`
	GroupsHeader string   `env:"CONSOLE_PROXY_GROUPS_HEADER" default:"X-Forwarded-Groups" help:"Header with their groups, comma-separated."`
}

func (p Proxy) validate() error {
	if len(p.Peers) == 0 {
		return invalid("CONSOLE_PROXY_PEERS", "must name the proxy's addresses: otherwise anyone could claim to be anyone")
	}
	for _, peer := range p.Peers {
		prefix, err := parsePeer(peer)
		if err != nil {
			return invalid("CONSOLE_PROXY_PEERS", fmt.Sprintf("must be addresses or ranges such as 10.1.2.0/24, got %q", peer))
		}
		if prefix.Bits() == 0 {
			return invalid("CONSOLE_PROXY_PEERS", "must not be every address: anyone could claim to be anyone, got "+peer)
		}
	}
	for variable, header := range map[string]string{"CONSOLE_PROXY_USER_HEADER": p.UserHeader, "CONSOLE_PROXY_GROUPS_HEADER": p.GroupsHeader} {
		if !httpguts.ValidHeaderFieldName(header) {
			return invalid(variable, fmt.Sprintf("is not a valid header name: %q", header))
		}
	}
	if strings.EqualFold(p.UserHeader, p.GroupsHeader) {
		return invalid("CONSOLE_PROXY_GROUPS_HEADER", "must differ from CONSOLE_PROXY_USER_HEADER")
	}
	return nil
}

func parsePeer(peer string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(peer); err == nil {
		return addr.Unmap().Prefix(addr.Unmap().BitLen())
	}
	return netip.ParsePrefix(peer)
}

// trusts reports whether a connection comes from the proxy.
func (p Proxy) trusts(remote string) bool {
	peer, err := netip.ParseAddrPort(remote)
	return err == nil && slices.ContainsFunc(p.Peers, func(trusted string) bool {
		prefix, err := parsePeer(trusted)
		return err == nil && prefix.Contains(peer.Addr().Unmap().WithZone(""))
	})
}

// byProxy returns the user that the proxy names. The error is a *Refusal.
func (c *Config) byProxy(r *http.Request) (User, error) {
	if !c.Proxy.trusts(r.RemoteAddr) {
		return User{}, &Refusal{Status: 403, Title: "Not authorized", Text: "This console is served only through its proxy."}
	}
	names, groups := r.Header.Values(c.Proxy.UserHeader), r.Header.Values(c.Proxy.GroupsHeader)
	if len(names) == 0 {
		return User{}, &Refusal{Status: 401, Title: "Not logged in", Text: "The proxy did not say who you are."}
	}
	if len(names) > 1 || len(groups) > 1 { // the proxy added its header to the browser's
		return User{}, &Refusal{Status: 400, Title: "Not authorized",
			Text: "User or groups were named twice: the proxy must replace what browsers send."}
	}
	var in []string
	if len(groups) == 1 {
		for group := range strings.SplitSeq(groups[0], ",") {
			in = append(in, strings.TrimSpace(group))
		}
	}
	return c.user(names[0], in)
}
