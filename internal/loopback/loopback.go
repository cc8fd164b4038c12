// Package loopback decides what stays on this machine: secrets may travel there without TLS, and pages without a login.
package loopback

import (
	"net/netip"
	"strings"
)

// Is reports whether a host is this machine. A name other than localhost is not: it may resolve elsewhere.
func Is(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}
