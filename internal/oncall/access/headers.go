package access

import (
	"net"
	"net/http"
	"strings"

	"errand/internal/loopback"
)

// setHeaders forbids browsers to load anything from elsewhere, to run inline scripts, to cache, and to send a referrer.
// An answer without data may replace Cache-Control.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "+
		"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// checkHost refuses host names that are not the console's. Without a login these are all but loopback, as a site whose
// name resolves to this machine (DNS rebinding) would otherwise have the same origin, and requests through a proxy, which
// would open the console to its users.
func (g *Guard) checkHost(r *http.Request) error {
	if g.config.Login == loginProxy { // its peer is checked, and a proxy may use any host name
		return nil
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(r.Host, "["), "]")
	}
	if !loopback.Is(host) {
		return &Refusal{Status: http.StatusMisdirectedRequest, Title: "Wrong host name",
			Text: "Without a login the console only answers at localhost and loopback addresses such as 127.0.0.1."}
	}
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host"} {
		if len(r.Header.Values(header)) > 0 {
			return &Refusal{Status: http.StatusForbidden, Title: "Not behind a proxy",
				Text: "The request came through a proxy, and there is no login: set CONSOLE_LOGIN."}
		}
	}
	return nil
}

// checkSite refuses requests that another site makes a browser send, but for following a link to a page.
func (g *Guard) checkSite(r *http.Request) error {
	err := g.origins.Check(r)
	site := r.Header.Get("Sec-Fetch-Site")
	link := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	if err == nil && (site == "" || site == "same-origin" || site == "none" || link) {
		return nil
	}
	return &Refusal{Status: http.StatusForbidden, Title: "Not from another site",
		Text: "Another site sent this. Open the console and try again."}
}
