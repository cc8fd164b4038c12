package access

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"errand/internal/keyfile"
	"errand/internal/loopback"
	"errand/internal/retry"
)

// The paths of the login.
const (
	loginPath    = "/login"
	callbackPath = "/login/callback"
	logoutPath   = "/logout"
)

// OIDC says which OpenID Connect issuer logs users in. The redirect address to register there is
// CONSOLE_URL/login/callback.
type OIDC struct {
	Issuer           string   `env:"CONSOLE_OIDC_ISSUER" placeholder:"URL" help:"Issuer, as its discovery document names it."`
	ClientID         string   `env:"CONSOLE_OIDC_CLIENT_ID" help:"Client id of the console at the issuer."`
	ClientSecret     string   `env:"CONSOLE_OIDC_CLIENT_SECRET" help:"Client secret, if there is one. A flag shows in the process list."`
	ClientSecretFile string   `env:"CONSOLE_OIDC_CLIENT_SECRET_FILE" placeholder:"FILE" help:"File with the secret; read at each login."`
	Scopes           []string `env:"CONSOLE_OIDC_SCOPES" default:"openid,profile,email" help:"Scopes; some issuers need groups too."`
	UserClaim        string   `env:"CONSOLE_OIDC_USER_CLAIM" default:"email" help:"Claim of the ID token that names the user."`
	GroupsClaim      string   `env:"CONSOLE_OIDC_GROUPS_CLAIM" default:"groups" help:"Claim of the ID token that names the user's groups."`
}

func (o OIDC) validate() error {
	u, err := url.Parse(o.Issuer)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !loopback.Is(u.Hostname())):
		return invalid("CONSOLE_OIDC_ISSUER", "must be the issuer's https:// address, such as https://login.example.com/realms/staff")
	case o.ClientID == "":
		return invalid("CONSOLE_OIDC_CLIENT_ID", "must name the client that is registered at the issuer")
	case o.ClientSecret != "" && o.ClientSecretFile != "":
		return invalid("CONSOLE_OIDC_CLIENT_SECRET", "must not be set together with CONSOLE_OIDC_CLIENT_SECRET_FILE")
	case o.UserClaim == "":
		return invalid("CONSOLE_OIDC_USER_CLAIM", "must name a claim, such as email")
	case o.GroupsClaim == "":
		return invalid("CONSOLE_OIDC_GROUPS_CLAIM", "must name a claim, such as groups")
	}
	_, err = o.secret()
	return err
}

func (o OIDC) secret() (string, error) {
	if o.ClientSecretFile == "" {
		return o.ClientSecret, nil
	}
	text, err := keyfile.Read(o.ClientSecretFile)
	if err != nil {
		return "", invalid("CONSOLE_OIDC_CLIENT_SECRET_FILE", err.Error())
	}
	return text, nil
}

type issuer struct {
	config *Config
	client *http.Client

	mu       sync.Mutex
	provider *oidc.Provider // nil until it has answered once
	err      error          // of the last try
	next     time.Time      // when to try again
}

func newIssuer(c *Config) *issuer {
	return &issuer{config: c, client: &http.Client{
		Timeout:       retry.IssuerAnswer,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: retry.AdminIdle},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // would forward the secret
	}}
}

// discover returns the issuer's discovery document, which is fetched once, by one login at a time.
func (i *issuer) discover(ctx context.Context) (*oidc.Provider, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.provider == nil && !time.Now().Before(i.next) {
		var err error
		if i.provider, err = oidc.NewProvider(context.WithoutCancel(ctx), i.config.OIDC.Issuer); err != nil {
			i.err = fmt.Errorf("%.300s", err.Error()) // it may quote a whole page
		}
		i.next = time.Now().Add(retry.IssuerPause)
	}
	if i.provider == nil {
		return nil, &Refusal{Status: http.StatusServiceUnavailable, Title: "Nobody can log in", Login: true, cause: i.err,
			Text: "The login service does not answer as it should. The console's log says more."}
	}
	return i.provider, nil
}

// oauth returns the issuer, and the client's configuration. It sets how the secret is sent, as trying both ways would send a
// code twice, which some issuers take for theft.
func (i *issuer) oauth(ctx context.Context) (*oidc.Provider, *oauth2.Config, error) {
	p, err := i.discover(ctx)
	if err != nil {
		return nil, nil, err
	}
	secret, err := i.config.OIDC.secret()
	if err != nil {
		return nil, nil, err
	}
	var takes struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := p.Claims(&takes); err != nil {
		return nil, nil, notAccepted(err)
	}
	endpoint := p.Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInHeader
	if secret == "" || len(takes.Methods) > 0 && !slices.Contains(takes.Methods, "client_secret_basic") {
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return p, &oauth2.Config{ClientID: i.config.OIDC.ClientID, ClientSecret: secret, Endpoint: endpoint,
		RedirectURL: i.config.origin() + callbackPath, Scopes: i.config.OIDC.Scopes}, nil
}

// pending is a login under way; the browser keeps it in a cookie.
type pending struct {
	State    string    `json:"state"`
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"`
	Return   string    `json:"return"`
	Until    time.Time `json:"until"`
}

// login sends a browser to log in, and then to the first page.
func (g *Guard) login(w http.ResponseWriter, r *http.Request) {
	if err := g.begin(w, r, "/"); err != nil {
		g.deny(w, r, err)
	}
}

func (g *Guard) begin(w http.ResponseWriter, r *http.Request, then string) error {
	_, oauth, err := g.issuer.oauth(oidc.ClientContext(r.Context(), g.issuer.client))
	if err != nil {
		return err
	}
	p := pending{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Return: then, Until: time.Now().Add(retry.Login)}
	if err := g.sessions.set(w, loginCookie, p, retry.Login); err != nil {
		return err
	}
	http.Redirect(w, r, oauth.AuthCodeURL(p.State, oidc.Nonce(p.Nonce), oauth2.S256ChallengeOption(p.Verifier)), http.StatusSeeOther)
	return nil
}

// ReturnPath returns the path and query of a page of this console, "/" for anything else.
func ReturnPath(u *url.URL) string {
	path := u.RequestURI()
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.Contains(path, `\`) || len(path) > 1000 {
		return "/"
	}
	return path
}

// callback serves the browser that the issuer sends back with a code.
func (g *Guard) callback(w http.ResponseWriter, r *http.Request) {
	remove(w, loginCookie)
	login, user, err := g.finish(r)
	until := time.Now().Add(g.config.MaxAge)
	if err == nil {
		err = g.sessions.set(w, sessionCookie, session{user, until}, g.config.MaxAge)
	}
	if err != nil {
		g.deny(w, r, err)
		return
	}
	g.log.Info().Str("user", user.Name).Any("roles", user.Roles).Msg("user logged in")
	http.Redirect(w, r, login.Return, http.StatusSeeOther)
}

// finish checks the browser's cookie and code, and returns the user of the issuer's ID token. The error is a *Refusal,
// or an internal one.
func (g *Guard) finish(r *http.Request) (pending, User, error) {
	var p pending
	query := r.URL.Query()
	if err := g.sessions.get(r, loginCookie, &p); err != nil || !time.Now().Before(p.Until) || !equal(query.Get("state"), p.State) {
		return p, User{}, &Refusal{Status: http.StatusBadRequest, Title: "Not logged in", Login: true, cause: err,
			Text: "This login was started in another browser, took too long, or was already finished. Start again."}
	}
	if iss := query.Get("iss"); iss != "" && iss != g.config.OIDC.Issuer {
		return p, User{}, notAccepted(errors.New("another issuer sent the answer"))
	}
	if said := query.Get("error"); said != "" {
		return p, User{}, &Refusal{Status: http.StatusForbidden, Title: "Not logged in", Login: true,
			cause: fmt.Errorf("the issuer says %.100q", said), Text: "The login service refused you."}
	}
	token, err := g.redeem(oidc.ClientContext(r.Context(), g.issuer.client), query.Get("code"), p)
	if err != nil {
		return p, User{}, err
	}
	claims := map[string]any{}
	if err := token.Claims(&claims); err != nil {
		return p, User{}, notAccepted(err)
	}
	user, err := g.config.byClaims(claims)
	return p, user, err
}

// redeem exchanges the code for an ID token, and checks that it is for this console and this login.
func (g *Guard) redeem(ctx context.Context, code string, p pending) (*oidc.IDToken, error) {
	provider, oauth, err := g.issuer.oauth(ctx)
	if err != nil {
		return nil, err
	}
	answer, err := oauth.Exchange(ctx, code, oauth2.VerifierOption(p.Verifier))
	if wrong, ok := errors.AsType[*oauth2.RetrieveError](err); ok { // its text quotes the answer
		err = fmt.Errorf("the issuer says %.100q to the code, with status %d", wrong.ErrorCode, wrong.Response.StatusCode)
	}
	if err != nil {
		return nil, notAccepted(err)
	}
	raw, _ := answer.Extra("id_token").(string)
	token, err := provider.Verifier(&oidc.Config{ClientID: oauth.ClientID}).Verify(ctx, raw)
	if err != nil {
		return nil, notAccepted(err)
	}
	var party struct {
		Authorized string `json:"azp"`
	}
	switch err := token.Claims(&party); {
	case err != nil:
		return nil, notAccepted(err)
	case !equal(token.Nonce, p.Nonce):
		return nil, notAccepted(errors.New("the ID token is for another login"))
	case party.Authorized != oauth.ClientID && (len(token.Audience) > 1 || party.Authorized != ""):
		return nil, notAccepted(errors.New("the ID token is for another client"))
	}
	return token, nil
}

func equal(got, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

func notAccepted(cause error) error {
	return &Refusal{Status: http.StatusForbidden, Title: "Not logged in", Login: true, cause: cause,
		Text: "The login service's answer was not accepted. The console's log says why."}
}

// byClaims returns the user of an ID token. The error is a *Refusal.
func (c *Config) byClaims(claims map[string]any) (User, error) {
	verified, said := claims["email_verified"] // some issuers give a text
	if c.OIDC.UserClaim == "email" && said && verified != true && verified != "true" {
		return User{}, &Refusal{Status: http.StatusForbidden, Title: "Not authorized",
			Text: "Your e-mail address is not verified: it may belong to another person."}
	}
	name, _ := claims[c.OIDC.UserClaim].(string)
	if name == "" {
		return User{}, notAccepted(fmt.Errorf("the ID token has no claim %s that names the user", c.OIDC.UserClaim))
	}
	var groups []string
	switch found := claims[c.OIDC.GroupsClaim].(type) {
	case string:
		groups = []string{found}
	case []any:
		for _, group := range found {
			if name, ok := group.(string); ok {
				groups = append(groups, name)
			}
		}
	default:
		return User{}, notAccepted(fmt.Errorf("the ID token has no claim %s with the user's groups", c.OIDC.GroupsClaim))
	}
	return c.user(name, groups)
}
