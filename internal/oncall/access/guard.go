package access

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"
)

// Handler serves a page to a user, who is authorized and has the role that the page asks for.
type Handler func(w http.ResponseWriter, r *http.Request, user User)

// Refusal says why a request is not served. It is what Guard.Refuse shows.
type Refusal struct {
	Status      int
	Title, Text string
	// Login is set where it helps to log in: a link to loginPath.
	Login bool

	cause error // for the log
}

func (e *Refusal) Error() string { return e.Text }
func (e *Refusal) Unwrap() error { return e.cause }

// Guard stands before the pages of the console. New makes one.
type Guard struct {
	// Refuse answers a request that is not served, with the refusal's status; with plain
	// text unless it is set.
	Refuse func(w http.ResponseWriter, r *http.Request, why *Refusal)

	config Config
	log    zerolog.Logger
	// identify is who makes a request, and until when that holds. Its error is a *Refusal.
	identify func(r *http.Request) (User, time.Time, error)
	origins  *http.CrossOriginProtection
	sessions *sessions // nil without OIDC
	issuer   *issuer   // nil without OIDC
}

// New returns the guard of a configuration that is valid. Refused requests are logged as
// warnings, with the peer's address and the reason. The issuer of OIDC is first asked for
// its addresses when somebody logs in.
func New(c Config, log zerolog.Logger) (*Guard, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	g := &Guard{Refuse: refuse, config: c, log: log, origins: http.NewCrossOriginProtection()}
	switch c.Login {
	case loginNone:
		g.identify = func(*http.Request) (User, time.Time, error) {
			return User{c.User, c.given(allRoles)}, time.Now().Add(c.MaxAge), nil
		}
		return g, nil
	case loginProxy:
		g.identify = func(r *http.Request) (User, time.Time, error) {
			user, err := c.byProxy(r)
			return user, time.Now().Add(c.MaxAge), err
		}
	default:
		g.sessions, g.issuer = newSessions(), newIssuer(&g.config)
		g.identify = g.bySession
	}
	return g, g.origins.AddTrustedOrigin(c.origin())
}

func refuse(w http.ResponseWriter, _ *http.Request, why *Refusal) {
	http.Error(w, why.Title+"\n\n"+why.Text, why.Status)
}

// Wrap serves next behind what holds for every request, whoever makes it: the security
// headers, the host's name, no request from another site. It knows no user: pages with data
// are made with Allow, and only what says nothing (style, script, icon) without. With OIDC
// it serves the paths of the login too: loginPath, /login/callback and /logout.
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
		if err != nil {
			g.deny(w, r, err)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// LogoutPath is where a form posts to that ends the session, or "" where there is none.
func (g *Guard) LogoutPath() string {
	if g.sessions == nil {
		return ""
	}
	return logoutPath
}

// Allow serves a page to users who have the role. Whoever opens one without a session is
// sent to log in; other requests, such as those of a script, are refused with 401. The request's context ends when the
// login must be made again, and with it a stream of live changes.
func (g *Guard) Allow(role Role, page Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, until, err := g.identify(r)
		if err == nil && !user.May(role) {
			err = &Refusal{Status: http.StatusForbidden, Title: "Not allowed", Text: user.Name + " does not have the role " + string(role) + " that this needs."}
		}
		if why, ok := errors.AsType[*Refusal](err); ok && why.Login && isNavigation(r) {
			if err = g.begin(w, r, returnPath(r.URL)); err == nil {
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

// deny answers a request that is not served, and logs why. It logs neither path nor query.
func (g *Guard) deny(w http.ResponseWriter, r *http.Request, err error) {
	why, ok := errors.AsType[*Refusal](err)
	if !ok {
		why = &Refusal{Status: http.StatusInternalServerError, Title: "Something went wrong", Text: "The console could not find out who you are."}
	}
	peer, _, _ := net.SplitHostPort(r.RemoteAddr)
	g.log.Warn().Err(why.cause).Str("peer", peer).Int("http_status", why.Status).Str("reason", why.Text).Msg("request to the console refused")
	g.Refuse(w, r, why)
}
