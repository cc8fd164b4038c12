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
	"errand/internal/retry"
)

// The paths of the login.
const (
	// loginPath logs in, and leads to the console's first page.
	loginPath = "/login"

	callbackPath = "/login/callback"
	logoutPath   = "/logout"
)

// OIDC says which OpenID Connect issuer logs users in, and what it calls them. The address
// to register there is CONSOLE_URL with /login/callback.
type OIDC struct {
	Issuer           string   `name:"issuer" env:"CONSOLE_OIDC_ISSUER" placeholder:"URL" help:"Issuer, as its own configuration names it." group:"access"`
	ClientID         string   `name:"client-id" env:"CONSOLE_OIDC_CLIENT_ID" help:"What the issuer calls the console." group:"access"`
	ClientSecret     string   `name:"client-secret" env:"CONSOLE_OIDC_CLIENT_SECRET" help:"Its secret, if it has one; better given by the environment than as a flag, which the process list shows." group:"access"`
	ClientSecretFile string   `name:"client-secret-file" env:"CONSOLE_OIDC_CLIENT_SECRET_FILE" placeholder:"FILE" help:"File that holds the secret; read again at each login." group:"access"`
	Scopes           []string `name:"scopes" env:"CONSOLE_OIDC_SCOPES" default:"openid,profile,email" help:"What the issuer is asked for; some need groups too." group:"access"`
	UserClaim        string   `name:"user-claim" env:"CONSOLE_OIDC_USER_CLAIM" default:"email" help:"Claim of the ID token that names the user." group:"access"`
	GroupsClaim      string   `name:"groups-claim" env:"CONSOLE_OIDC_GROUPS_CLAIM" default:"groups" help:"Claim of the ID token that names the user's groups." group:"access"`
}

func (o OIDC) validate() error {
	u, err := url.Parse(o.Issuer)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())):
		return &Invalid{"CONSOLE_OIDC_ISSUER", "must be the issuer's https:// address, such as https://login.example.com/realms/staff"}
	case o.ClientID == "":
		return &Invalid{"CONSOLE_OIDC_CLIENT_ID", "name the client that was registered at the issuer for the console"}
	case o.ClientSecret != "" && o.ClientSecretFile != "":
		return &Invalid{"CONSOLE_OIDC_CLIENT_SECRET", "set either it or CONSOLE_OIDC_CLIENT_SECRET_FILE, not both"}
	case o.UserClaim == "":
		return &Invalid{"CONSOLE_OIDC_USER_CLAIM", "must name a claim, such as email"}
	case o.GroupsClaim == "":
		return &Invalid{"CONSOLE_OIDC_GROUPS_CLAIM", "must name a claim, such as groups"}
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
		return "", &Invalid{"CONSOLE_OIDC_CLIENT_SECRET_FILE", err.Error()}
	}
	return text, nil
}

// issuer is the service that users log in with.
type issuer struct {
	config *Config
	client *http.Client

	mu       sync.Mutex
	provider *oidc.Provider // nil until it answered once
	err      error          // of the last try
	next     time.Time      // not before then is it tried again
}

func newIssuer(c *Config) *issuer {
	return &issuer{config: c, client: &http.Client{
		Timeout:       retry.IssuerAnswer,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: retry.AdminIdle},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // it would take the secret along
	}}
}

// discover is the issuer's own configuration. It is asked for until it is there once, and
// by one login at a time.
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
			Text: "The service that users log in with does not answer as it should. The console's log says more."}
	}
	return i.provider, nil
}

// oauth is what the issuer is asked with. It says how the secret is sent: tried out, the
// issuer would get a code twice, which some take for theft.
func (i *issuer) oauth(p *oidc.Provider) (*oauth2.Config, error) {
	secret, err := i.config.OIDC.secret()
	if err != nil {
		return nil, err
	}
	var takes struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := p.Claims(&takes); err != nil {
		return nil, notAccepted(err)
	}
	endpoint := p.Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInHeader
	if secret == "" || len(takes.Methods) > 0 && !slices.Contains(takes.Methods, "client_secret_basic") {
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{ClientID: i.config.OIDC.ClientID, ClientSecret: secret, Endpoint: endpoint,
		RedirectURL: i.config.origin() + callbackPath, Scopes: i.config.OIDC.Scopes}, nil
}

// pending is a login under way, which the browser that began it keeps in a cookie.
type pending struct {
	State    string    `json:"state"`
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"`
	Return   string    `json:"return"`
	Until    time.Time `json:"until"`
}

// login sends a browser to log in that wants no page in particular.
func (g *Guard) login(w http.ResponseWriter, r *http.Request) {
	if err := g.begin(w, r, "/"); err != nil {
		g.deny(w, r, err)
	}
}

// begin sends a browser to log in, and notes where it is to go then.
func (g *Guard) begin(w http.ResponseWriter, r *http.Request, then string) error {
	provider, err := g.issuer.discover(oidc.ClientContext(r.Context(), g.issuer.client))
	if err != nil {
		return err
	}
	oauth, err := g.issuer.oauth(provider)
	if err != nil {
		return err
	}
	a := pending{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Return: then, Until: time.Now().Add(retry.Login)}
	if err := g.sessions.set(w, loginCookie, a, retry.Login); err != nil {
		return err
	}
	http.Redirect(w, r, oauth.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), http.StatusSeeOther)
	return nil
}

// returnPath is the path and query of a page of this console, or that of its first page.
func returnPath(u *url.URL) string {
	path := u.RequestURI()
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.Contains(path, `\`) || len(path) > 1000 {
		return "/"
	}
	return path
}

// callback is where the issuer sends a browser back to, with a code.
func (g *Guard) callback(w http.ResponseWriter, r *http.Request) {
	remove(w, loginCookie)
	a, user, err := g.finish(r)
	until := time.Now().Add(g.config.MaxAge)
	if err == nil {
		err = g.sessions.set(w, sessionCookie, session{user, until}, g.config.MaxAge)
	}
	if err != nil {
		g.deny(w, r, err)
		return
	}
	g.log.Info().Str("user", user.Name).Any("roles", user.Roles).Msg("logged in to the console")
	http.Redirect(w, r, a.Return, http.StatusSeeOther)
}

// finish checks what the browser brought and what the issuer says to it. The error is a
// *Refusal or one of ours.
func (g *Guard) finish(r *http.Request) (pending, User, error) {
	var a pending
	query := r.URL.Query()
	if err := g.sessions.get(r, loginCookie, &a); err != nil || !time.Now().Before(a.Until) || !equal(query.Get("state"), a.State) {
		return a, User{}, &Refusal{Status: http.StatusBadRequest, Title: "Not logged in", Login: true, cause: err,
			Text: "This login was not begun in this browser, took too long, or was finished before. Begin again."}
	}
	if iss := query.Get("iss"); iss != "" && iss != g.config.OIDC.Issuer {
		return a, User{}, notAccepted(errors.New("another issuer sent the answer"))
	}
	if said := query.Get("error"); said != "" {
		return a, User{}, &Refusal{Status: http.StatusForbidden, Title: "Not logged in", Login: true, cause: fmt.Errorf("the issuer says %.100q", said),
			Text: "The service that users log in with did not let you in."}
	}
	token, err := g.redeem(oidc.ClientContext(r.Context(), g.issuer.client), query.Get("code"), a)
	if err != nil {
		return a, User{}, err
	}
	claims := map[string]any{}
	if err := token.Claims(&claims); err != nil {
		return a, User{}, notAccepted(err)
	}
	user, err := g.config.byClaims(claims)
	return a, user, err
}

// redeem gives the code to the issuer for an ID token, and checks that it is one for this
// console and this login.
func (g *Guard) redeem(ctx context.Context, code string, a pending) (*oidc.IDToken, error) {
	provider, err := g.issuer.discover(ctx)
	if err != nil {
		return nil, err
	}
	oauth, err := g.issuer.oauth(provider)
	if err != nil {
		return nil, err
	}
	answer, err := oauth.Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	if wrong, ok := errors.AsType[*oauth2.RetrieveError](err); ok { // its text quotes the whole answer
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
	case !equal(token.Nonce, a.Nonce):
		return nil, notAccepted(errors.New("the ID token is of another login"))
	case len(token.Audience) > 1 && party.Authorized != oauth.ClientID, party.Authorized != "" && party.Authorized != oauth.ClientID:
		return nil, notAccepted(errors.New("the ID token was given to another client"))
	}
	return token, nil
}

func equal(got, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

func notAccepted(cause error) error {
	return &Refusal{Status: http.StatusForbidden, Title: "Not logged in", Login: true, cause: cause,
		Text: "What the service that users log in with said about you was not accepted. The console's log says why."}
}

// byClaims is whom an ID token is about. The error is a *Refusal.
func (c *Config) byClaims(claims map[string]any) (User, error) {
	verified, said := claims["email_verified"] // some issuers give a text
	if c.OIDC.UserClaim == "email" && said && verified != true && verified != "true" {
		return User{}, &Refusal{Status: http.StatusForbidden, Title: "Not authorized", Text: "Your e-mail address was not verified: it might be somebody else's."}
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
