package access

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"
)

// Handler serves a page to a user who has the role that the page requires.
type Handler func(w http.ResponseWriter, r *http.Request, user User)

// Refusal says why a request is refused. Guard.Refuse shows it.
type Refusal struct {
	Status      int
	Title, Text string
	Login       bool // logging in would help: show a link to /login

	cause error // for the log
}

func (e *Refusal) Error() string { return e.Text }
func (e *Refusal) Unwrap() error { return e.cause }

// Guard stands before the pages of the console. New makes one.
type Guard struct {
	// Refuse answers a refused request with the refusal's status. New sets one that writes plain text.
	Refuse func(w http.ResponseWriter, r *http.Request, why *Refusal)

	config Config
	log    zerolog.Logger
	// identify returns the user of a request, and until when that holds. Its error is a *Refusal.
	identify func(r *http.Request) (User, time.Time, error)
	origins  *http.CrossOriginProtection
	token    string  // without a login: a request that shows it has all roles that the console grants, others only Read
	sessions *Sealer // nil without OIDC
	issuer   *issuer // nil without OIDC
}

// New returns the guard for a valid configuration. Refused requests are logged as warnings, with the peer's address
// and the reason. The OIDC issuer is first contacted when a user logs in.
func New(c Config, log zerolog.Logger) (*Guard, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	g := &Guard{Refuse: refuse, config: c, log: log, origins: http.NewCrossOriginProtection()}
	switch c.Login {
	case loginNone:
		g.token = rand.Text()
		g.identify = func(r *http.Request) (User, time.Time, error) {
			roles := []Role{Read}
			if cookie, err := r.Cookie(tokenCookie); err == nil && g.isToken(cookie.Value) {
				roles = allRoles
			}
			return User{c.User, c.granted(roles)}, time.Now().Add(c.MaxAge), nil
		}
		return g, nil
	case loginProxy:
		g.identify = func(r *http.Request) (User, time.Time, error) {
			user, err := c.byProxy(r)
			return user, time.Now().Add(c.MaxAge), err
		}
	default:
		g.sessions, g.issuer = NewSealer(), newIssuer(&g.config)
		g.identify = g.bySession
	}
	return g, g.origins.AddTrustedOrigin(c.origin())
}

func refuse(w http.ResponseWriter, _ *http.Request, why *Refusal) {
	http.Error(w, why.Title+"\n\n"+why.Text, why.Status)
}

// Wrap serves next behind the checks that need no user: security headers, host name, no request from another site.
// Pages with data also need Allow; only style, script and icon do without. With OIDC it serves the login's paths too.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	if g.issuer != nil {
		mux.HandleFunc("GET "+loginPath, g.login)
		mux.HandleFunc("GET "+callbackPath, g.callback)
		mux.HandleFunc("GET "+logoutPath, g.loggedOut)
		mux.HandleFunc("POST "+logoutPath, g.logout)
	}
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
			mux.ServeHTTP(w, r)
		}
	})
}

// LogoutPath is where a form posts to end the session, "" without sessions.
func (g *Guard) LogoutPath() string {
	if g.sessions == nil {
		return ""
	}
	return logoutPath
}

// Allow serves a page to users who have the role. A browser without a session is sent to log in; a script's request is
// refused with 401. The request's context ends with the login.
func (g *Guard) Allow(role Role, page Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, until, err := g.identify(r)
		if err == nil && !user.May(role) {
			err = g.forbidden(user, role)
		}
		if why, ok := errors.AsType[*Refusal](err); ok && why.Login && isNavigation(r) {
			if err = g.begin(w, r, ReturnPath(r.URL)); err == nil {
				return
			}
		}
		if err != nil {
			g.deny(w, r, err)
			return
		}
		ctx, cancel := context.WithDeadline(r.Context(), until)
		defer cancel()
		page(w, r.WithContext(ctx), user)
	})
}

// deny answers a refused request and logs why. It logs neither path nor query: they may name a person.
func (g *Guard) deny(w http.ResponseWriter, r *http.Request, err error) {
	why, ok := errors.AsType[*Refusal](err)
	if !ok {
		why = &Refusal{Status: http.StatusInternalServerError, Title: "Something went wrong", Text: "The console could not identify you."}
	}
	peer, _, _ := net.SplitHostPort(r.RemoteAddr)
	g.log.Warn().Err(why.cause).Str("peer", peer).Int("http_status", why.Status).Str("reason", why.Text).Msg("request refused")
	g.Refuse(w, r, why)
}
