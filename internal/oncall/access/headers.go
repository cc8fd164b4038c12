package access

import (
	"net"
	"net/http"
	"strings"
)

// setHeaders sets what every answer asks of browsers: to load nothing from elsewhere,
// to run nothing that stands in a page, to keep nothing, and to say nothing to other sites.
// What holds no data may set a Cache-Control of its own.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "+
		"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// checkHost refuses requests under a foreign name where nobody logs in: a web site whose
// name was made to point to this machine (DNS rebinding) would otherwise be of the same
// origin. And it refuses a proxy there, which would open the console to its own users.
// With sessions it refuses all names but the one that they are for.
func (g *Guard) checkHost(r *http.Request) error {
	switch {
	case g.config.Login == loginProxy: // the peer is checked, and proxies name hosts as they like
		return nil
	case g.config.Login == loginOIDC && strings.HasSuffix(g.config.origin(), "://"+strings.ToLower(r.Host)):
		return nil
	case g.config.Login == loginOIDC:
		return &Refusal{Status: http.StatusMisdirectedRequest, Title: "Not this console's name", Text: "The console answers under " + g.config.URL + " only."}
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(r.Host, "["), "]")
	}
	if !isLoopback(host) {
		return &Refusal{Status: http.StatusMisdirectedRequest, Title: "Not this console's name",
			Text: "Without a login the console answers to localhost and addresses such as 127.0.0.1 only."}
	}
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host"} {
		if len(r.Header.Values(header)) > 0 {
			return &Refusal{Status: http.StatusForbidden, Title: "Not behind a proxy",
				Text: "The request came through a proxy, and nobody had to log in: set CONSOLE_LOGIN."}
		}
	}
	return nil
}

// checkSite refuses what another site makes a browser do: a change, or anything but
// following a link to a page.
func (g *Guard) checkSite(r *http.Request) error {
	err := g.origins.Check(r)
	site, link := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	if err == nil && (site == "" || site == "same-origin" || site == "none" || link) {
		return nil
	}
	return &Refusal{Status: http.StatusForbidden, Title: "Not from another site", Text: "Another site asked for this. Open the console itself and try again."}
}

// isNavigation reports whether a browser shows the answer as a page: it may be sent to log
// in, whereas a script or a form would lose what it wanted.
func isNavigation(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return r.Method == http.MethodGet && (mode == "navigate" || mode == "" && strings.Contains(r.Header.Get("Accept"), "text/html"))
}
