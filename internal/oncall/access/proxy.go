package access

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Proxy says which proxy in front names the users, and how.
type Proxy struct {
	Peers        []string `name:"peers" env:"CONSOLE_PROXY_PEERS" placeholder:"CIDR" help:"Addresses of the proxy, such as 10.1.2.3 or 10.1.2.0/24; nobody else is served." group:"access"`
	UserHeader   string   `name:"user-header" env:"CONSOLE_PROXY_USER_HEADER" default:"X-Forwarded-User" help:"Header in which the proxy names the user. It must replace what browsers send." group:"access"`
	GroupsHeader string   `name:"groups-header" env:"CONSOLE_PROXY_GROUPS_HEADER" default:"X-Forwarded-Groups" help:"Header in which the proxy names the user's groups, separated by commas." group:"access"`
}

func (p Proxy) validate() error {
	if len(p.Peers) == 0 {
		return &Invalid{"CONSOLE_PROXY_PEERS", "name the proxy's addresses: whoever else could reach the console would choose who they are"}
	}
	for _, peer := range p.Peers {
		prefix, err := parsePeer(peer)
		if err != nil {
			return &Invalid{"CONSOLE_PROXY_PEERS", peer + " is no address or range such as 10.1.2.0/24"}
		}
		if prefix.Bits() == 0 {
			return &Invalid{"CONSOLE_PROXY_PEERS", peer + " is everybody, who could choose who they are"}
		}
	}
	for variable, header := range map[string]string{"CONSOLE_PROXY_USER_HEADER": p.UserHeader, "CONSOLE_PROXY_GROUPS_HEADER": p.GroupsHeader} {
		if header == "" || strings.ContainsFunc(header, func(r rune) bool { return r != '-' && r != '_' && !isAlphanumeric(r) }) {
			return &Invalid{variable, "is no name of a header"}
		}
	}
	if strings.EqualFold(p.UserHeader, p.GroupsHeader) {
		return &Invalid{"CONSOLE_PROXY_GROUPS_HEADER", "is the header of the user's name"}
	}
	return nil
}

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
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

// byProxy is who the proxy says that makes the request. The error is a *Refusal.
func (c *Config) byProxy(r *http.Request) (User, error) {
	if !c.Proxy.trusts(r.RemoteAddr) {
		return User{}, &Refusal{Status: 403, Title: "Not authorized", Text: "The console is reached through its proxy only."}
	}
	names, groups := r.Header.Values(c.Proxy.UserHeader), r.Header.Values(c.Proxy.GroupsHeader)
	if len(names) == 0 {
		return User{}, &Refusal{Status: 401, Title: "Not logged in", Text: "The proxy did not say who you are."}
	}
	if len(names) > 1 || len(groups) > 1 { // a proxy that adds its own to a browser's: who is to be believed?
		return User{}, &Refusal{Status: 400, Title: "Not authorized", Text: "User or groups were named twice: the proxy must replace what browsers send."}
	}
	var in []string
	if len(groups) == 1 {
		for group := range strings.SplitSeq(groups[0], ",") {
			in = append(in, strings.TrimSpace(group))
		}
	}
	return c.user(names[0], in)
}
