package access

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/rs/zerolog"

	"errand/internal/loopback"
)

// Handler serves a page to a user who has the role that the page requires.
type Handler func(w http.ResponseWriter, r *http.Request, user User)

// Refusal says why a request is refused. Guard.Refuse shows it.
type Refusal struct {
	Status      int
	Title, Text string
}

func (e *Refusal) Error() string { return e.Text }

// Guard stands before the pages of the console. New makes one.
type Guard struct {
	// Refuse answers a refused request with the refusal's status.
	Refuse func(w http.ResponseWriter, r *http.Request, why *Refusal)

	config Config
	log    zerolog.Logger
	// identify returns the user of a request. Its error is a *Refusal.
	identify func(r *http.Request) (User, error)
	origins  *http.CrossOriginProtection
	token    string // without a login: a request that shows it has all roles that the console grants, others only Read
}

// New returns the guard for a valid configuration. Refused requests are logged as warnings, with the peer's address
// and the reason.
func New(c Config, log zerolog.Logger) (*Guard, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	g := &Guard{config: c, log: log, origins: http.NewCrossOriginProtection()}
	if c.Login == loginNone {
		g.token = rand.Text()
		g.identify = func(r *http.Request) (User, error) {
			roles := []Role{Read}
			if cookie, err := r.Cookie(tokenCookie(r)); err == nil && g.isToken(cookie.Value) {
				roles = allRoles
			}
			return User{c.User, c.granted(roles)}, nil
		}
		return g, nil
	}
	g.identify = g.config.byProxy
	return g, g.origins.AddTrustedOrigin(c.origin())
}

// Wrap serves next behind the checks that need no user: security headers, host name, no request from another site.
// Pages with data also need Allow; only style, script and icon do without.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		err := g.checkHost(r)
		if err == nil {
			err = g.checkSite(r)
		}
		switch {
		case err != nil:
			g.deny(w, r, err)
		case g.isToken(r.URL.Query().Get(tokenParameter)):
			g.keepToken(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Allow serves a page to users who have the role.
func (g *Guard) Allow(role Role, page Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := g.identify(r)
		if err == nil && !user.May(role) {
			err = g.forbidden(user, role)
		}
		if err != nil {
			g.deny(w, r, err)
			return
		}
		page(w, r, user)
	})
}

// deny answers a refused request and logs why. It logs neither path nor query: they may name a person.
func (g *Guard) deny(w http.ResponseWriter, r *http.Request, err error) {
	why, ok := errors.AsType[*Refusal](err)
	if !ok {
		why = &Refusal{Status: http.StatusInternalServerError, Title: "Something went wrong", Text: "The console could not identify you."}
	}
	peer, _, _ := net.SplitHostPort(r.RemoteAddr)
	g.log.Warn().Str("peer", peer).Int("http_status", why.Status).Str("reason", why.Text).Msg("request refused")
	g.Refuse(w, r, why)
}

// Without a login anyone who reaches the console may read, through a proxy too: not every proxy says that it is one. To reveal and
// to act takes a token, which is made at start and which only the terminal of the console shows.
const tokenParameter = "token"

// tokenCookie is named after the port: browsers send a cookie to every port of a host (RFC 6265, 8.5), where another console may
// listen.
func tokenCookie(r *http.Request) string {
	_, port, _ := net.SplitHostPort(r.Host)
	return "errand-token-" + port
}

// Link returns the address at which a browser gets every role that a console without a login grants, or "" if there is a login or
// there are no roles but Read. It is a secret.
func (g *Guard) Link(addr string) string {
	if g.token == "" || len(g.config.granted(allRoles)) < 2 {
		return ""
	}
	return "http://" + addr + "/?" + tokenParameter + "=" + g.token
}

func (g *Guard) isToken(text string) bool {
	return g.token != "" && subtle.ConstantTimeCompare([]byte(text), []byte(g.token)) == 1
}

// keepToken stores the token in a cookie and leads to the same page without it, so that no history and no screenshot has it.
func (g *Guard) keepToken(w http.ResponseWriter, r *http.Request) {
	//nolint:gosec // not Secure: it is served over HTTP, on loopback alone
	http.SetCookie(w, &http.Cookie{Name: tokenCookie(r), Value: g.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	q := r.URL.Query()
	q.Del(tokenParameter)
	http.Redirect(w, r, (&url.URL{Path: r.URL.Path, RawQuery: q.Encode()}).String(), http.StatusSeeOther)
}

// forbidden is the refusal of a user without a role.
func (g *Guard) forbidden(user User, role Role) *Refusal {
	text := user.Name + " needs the role " + string(role) + " for this."
	if g.Link("") != "" {
		text = "Open the console with the address that it printed when it started: it ends in a token, without which you only read."
	}
	return &Refusal{Status: http.StatusForbidden, Title: "Not allowed", Text: text}
}

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
