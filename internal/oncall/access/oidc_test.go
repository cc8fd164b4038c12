package access

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// loggedInWith is a configuration with a login at a fake issuer.
func loggedInWith(f *fakeIssuer) Config {
	c := proxied()
	c.Login, c.Proxy = loginOIDC, Proxy{}
	c.OIDC = OIDC{Issuer: f.URL, ClientID: "console", ClientSecret: clientSecret, Scopes: []string{"openid", "profile", "email"},
		UserClaim: "email", GroupsClaim: "groups"}
	return c
}

func newBrowser(t *testing.T, f *fakeIssuer) *browser {
	t.Helper()
	return &browser{pages(t, loggedInWith(f)), map[string]string{}}
}

func TestALoginLeadsBackToThePageWithTheRolesOfItsGroups(t *testing.T) {
	f := newFakeIssuer(t)
	b := newBrowser(t, f)
	w := b.login(t, f, "/read?id=DD001")
	if got := w.Header().Get("Location"); w.Code != http.StatusSeeOther || got != "/read?id=DD001" {
		t.Fatalf("after the login: got %d and %q, want the page that was wanted", w.Code, got)
	}
	for page, want := range map[string]int{"/read": 200, "/act": 200, "/reveal": 403} {
		if got := b.open(page).Code; got != want {
			t.Errorf("%s: got %d, want %d", page, got, want)
		}
	}
	if got := b.open("/read").Body.String(); got != "ann@example.com" {
		t.Errorf("the page was served to %q", got)
	}
	for _, c := range w.Result().Cookies() {
		if !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" ||
			!strings.HasPrefix(c.Name, "__Host-") {
			t.Errorf("a cookie that others may read or set: %s", c)
		}
		if c.Name == sessionCookie && c.MaxAge != 3600 {
			t.Errorf("the session's cookie is kept for %d s, want an hour", c.MaxAge)
		}
		if strings.Contains(c.Value, "ann") {
			t.Errorf("the cookie shows whose it is: %s", c)
		}
	}
	if _, kept := b.cookies[loginCookie]; kept {
		t.Error("the login's cookie outlives the login")
	}
}

func TestAnIDTokenThatIsNotForThisLoginIsNotAccepted(t *testing.T) {
	for what, forge := range map[string]func(header, claims map[string]any){
		"of another nonce":              func(_, c map[string]any) { c["nonce"] = "another" },
		"without a nonce":               func(_, c map[string]any) { delete(c, "nonce") },
		"that expired":                  func(_, c map[string]any) { c["exp"] = time.Now().Add(-time.Minute).Unix() },
		"that never expires":            func(_, c map[string]any) { delete(c, "exp") },
		"that is of tomorrow":           func(_, c map[string]any) { c["nbf"] = time.Now().Add(24 * time.Hour).Unix() },
		"for another audience":          func(_, c map[string]any) { c["aud"] = "mailer" },
		"for two, given to the other":   func(_, c map[string]any) { c["aud"], c["azp"] = []string{"console", "mailer"}, "mailer" },
		"for two, given to nobody":      func(_, c map[string]any) { c["aud"] = []string{"console", "mailer"} },
		"given to another":              func(_, c map[string]any) { c["azp"] = "mailer" },
		"of another issuer":             func(_, c map[string]any) { c["iss"] = "https://login.evil.example" },
		"without a signature":           func(h, _ map[string]any) { h["alg"] = "none" },
		"signed with the public key":    func(h, _ map[string]any) { h["alg"] = "HS256" },
		"signed with another key":       func(h, _ map[string]any) { h["kid"] = "2" },
		"without groups":                func(_, c map[string]any) { delete(c, "groups") },
		"with groups of another type":   func(_, c map[string]any) { c["groups"] = 7 },
		"of somebody in no group of us": func(_, c map[string]any) { c["groups"] = []string{"staff", "sales"} },
		"of a group in another case":    func(_, c map[string]any) { c["groups"] = []string{"ON-CALL"} },
		"of an address nobody verified": func(_, c map[string]any) { c["email_verified"] = false },
		"of one, said as a text":        func(_, c map[string]any) { c["email_verified"] = "false" },
		"that names nobody":             func(_, c map[string]any) { delete(c, "email") },
		"that names a number":           func(_, c map[string]any) { c["email"] = 4711 },
	} {
		f := newFakeIssuer(t)
		f.forge = forge
		b := newBrowser(t, f)
		w := b.login(t, f, "/read")
		if _, in := b.cookies[sessionCookie]; w.Code != http.StatusForbidden || in {
			t.Errorf("an ID token %s: got %d, session %t; want 403 and none", what, w.Code, in)
		}
		if got := b.open("/read").Code; got == http.StatusOK {
			t.Errorf("an ID token %s: the page was served", what)
		}
	}
}

func TestOneGroupMayBeATextAndTwoAudiencesBeOurs(t *testing.T) {
	f := newFakeIssuer(t)
	f.forge = func(_, c map[string]any) {
		c["groups"], c["aud"], c["azp"] = "support", []string{"mailer", "console"}, "console"
	}
	b := newBrowser(t, f)
	b.login(t, f, "/read")
	if got := b.open("/read").Code; got != http.StatusOK {
		t.Errorf("got %d, want the page", got)
	}
}

func TestALoginIsFinishedOnceAndInTheBrowserThatBeganIt(t *testing.T) {
	f := newFakeIssuer(t)
	victim, attacker := newBrowser(t, f), newBrowser(t, f)
	attacker.console = victim.console
	code, state := f.authorize(t, attacker.sent(t, f, "/read"))
	callback := func(code, state string) string {
		return "/login/callback?" + url.Values{"code": {code}, "state": {state}}.Encode()
	}
	refused := func(what string, b *browser, w *httptest.ResponseRecorder, want int) {
		t.Helper()
		if _, in := b.cookies[sessionCookie]; w.Code != want || in {
			t.Errorf("%s: got %d, session %t; want %d and none", what, w.Code, in, want)
		}
	}

	refused("an attacker's login in a browser that began none", victim, victim.open(callback(code, state)), 400)
	victim.sent(t, f, "/read")
	refused("an attacker's login in a browser that began its own", victim, victim.open(callback(code, state)), 400)
	_, own := f.authorize(t, victim.sent(t, f, "/read"))
	refused("an attacker's code in the browser's own login", victim, victim.open(callback(code, own)), 403) // PKCE
	_, own = f.authorize(t, victim.sent(t, f, "/read"))
	refused("no state", victim, victim.open(callback("a code", "")), 400)
	own2, _ := f.authorize(t, victim.sent(t, f, "/read"))
	refused("the state of the browser's login before", victim, victim.open(callback(own2, own)), 400)
	_, own = f.authorize(t, victim.sent(t, f, "/read"))
	refused("no code", victim, victim.open(callback("", own)), 403)
	own2, own = f.authorize(t, victim.sent(t, f, "/read"))
	refused("another issuer's answer", victim, victim.open(callback(own2, own)+"&iss=https%3A%2F%2Flogin.evil.example"), 403)
	_, own = f.authorize(t, victim.sent(t, f, "/read"))
	refused("the issuer's refusal", victim, victim.open("/login/callback?error=access_denied&state="+own), 403)

	code, state = f.authorize(t, victim.sent(t, f, "/read"))
	before := victim.cookies[loginCookie]
	victim.open(callback(code, state))
	delete(victim.cookies, sessionCookie)
	refused("the same callback again", victim, victim.open(callback(code, state)), 400)
	victim.cookies[loginCookie] = before
	refused("the same callback again, with its cookie", victim, victim.open(callback(code, state)), 403)
}

func TestALoginLeadsToNoOtherSite(t *testing.T) {
	f := newFakeIssuer(t)
	guard, err := New(loggedInWith(f), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{guard.Allow(Read, nil), map[string]string{}} // without a mux, which would mend paths before
	login := b.console
	whole := guard.Wrap(login)
	for target, want := range map[string]string{
		"/read": "/read", "/requests?state=failed&after=12": "/requests?state=failed&after=12",
		"//evil.example/": "/", "///evil.example": "/", "/\\evil.example": "/%5Cevil.example", "/%5Cevil.example": "/%5Cevil.example",
		"https://evil.example/read": "/read", "/read?then=https://evil.example": "/read?then=https://evil.example",
		"/" + strings.Repeat("a", 1000): "/",
	} {
		r := request("GET", "/", map[string]string{"host": "errand.example.com", "Sec-Fetch-Mode": "navigate"})
		if r.URL, err = url.Parse(target); err != nil {
			t.Fatal(err)
		}
		b.console = login
		code, state := f.authorize(t, b.send(r).Header().Get("Location"))
		b.console = whole
		w := b.open("/login/callback?" + url.Values{"code": {code}, "state": {state}}.Encode())
		if got := w.Header().Get("Location"); got != want {
			t.Errorf("a login for %q leads to %q, want %q", target, got, want)
		}
		clear(b.cookies)
	}
}

func TestTheConsoleAnswersUnderItsOwnNameOnly(t *testing.T) {
	f := newFakeIssuer(t)
	b := newBrowser(t, f)
	for host, want := range map[string]int{"errand.example.com": 303, "ERRAND.example.com": 303, "evil.example": 421,
		"errand.example.com.evil.example": 421,
		"example.com":                     421, "10.1.2.3:8088": 421, "": 421} {
		if got := b.send(request("GET", "/read", map[string]string{"host": host, "Sec-Fetch-Mode": "navigate"})).Code; got != want {
			t.Errorf("Host %q: got %d, want %d", host, got, want)
		}
	}
}

func TestAnIssuerThatIsOutOfOrderIsAskedAgainWithoutHaste(t *testing.T) {
	f := newFakeIssuer(t)
	c := loggedInWith(f)
	synctest.Test(t, func(t *testing.T) {
		guard, err := New(c, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		guard.issuer.client.Transport = direct{f}
		b := &browser{guard.Wrap(guard.Allow(Read, func(http.ResponseWriter, *http.Request, User) {})), map[string]string{}}
		f.answers = false
		for range 3 {
			if got := b.open("/").Code; got != http.StatusServiceUnavailable {
				t.Errorf("while the issuer is out of order: got %d, want 503", got)
			}
		}
		if len(f.asked) != 1 {
			t.Errorf("the issuer was asked %d times, want once", len(f.asked))
		}
		f.answers = true
		time.Sleep(5 * time.Second)
		b.login(t, f, "/")
		if got := b.open("/").Code; got != http.StatusOK {
			t.Errorf("when it works again: got %d, want the page", got)
		}
	})
}

// direct is a transport without a network.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

func TestTheLogSaysWhyAndNoSecret(t *testing.T) {
	f := newFakeIssuer(t)
	var log bytes.Buffer
	guard, err := New(loggedInWith(f), zerolog.New(&log))
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{guard.Wrap(guard.Allow(Read, func(http.ResponseWriter, *http.Request, User) {})), map[string]string{}}
	location := b.sent(t, f, "/find?word=payer@example.com")
	code, state := f.authorize(t, location)
	secrets := []string{clientSecret, code, state, f.codes[code].Get("nonce"), b.cookies[loginCookie], "payer@example.com", "the access token",
		"eyJ"}
	b.open("/login/callback?" + url.Values{"code": {code}, "state": {state}}.Encode())
	secrets = append(secrets, b.cookies[sessionCookie])
	for why, forge := range map[string]func(_, _ map[string]any){
		"for another login":        func(_, c map[string]any) { c["nonce"] = "another" },
		"no claim groups":          func(_, c map[string]any) { delete(c, "groups") },
		"expected audience":        func(_, c map[string]any) { c["aud"] = "mailer" },
		"token is expired":         func(_, c map[string]any) { c["exp"] = 1 },
		"is not in a group":        func(_, c map[string]any) { c["groups"] = "sales" },
		"failed to verify":         func(h, _ map[string]any) { h["kid"] = "2" },
		"different provider":       func(_, c map[string]any) { c["iss"] = "https://login.evil.example" },
		"unexpected signature alg": func(h, _ map[string]any) { h["alg"] = "none" },
	} {
		delete(b.cookies, sessionCookie)
		f.forge = forge
		b.login(t, f, "/")
		if !strings.Contains(log.String(), why) {
			t.Errorf("the log does not say %q", why)
		}
	}
	for _, secret := range secrets {
		if secret == "" || strings.Contains(log.String(), secret) {
			t.Errorf("the log has the secret %q", secret)
		}
	}
	if !strings.Contains(log.String(), `"user":"ann@example.com"`) {
		t.Error("the log does not say who logged in")
	}
}

func TestTheClientSecretIsReadAgainAtEachLogin(t *testing.T) {
	f := newFakeIssuer(t)
	c := loggedInWith(f)
	c.OIDC.ClientSecret, c.OIDC.ClientSecretFile = "", filepath.Join(t.TempDir(), "secret")
	if _, err := New(c, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "CONSOLE_OIDC_CLIENT_SECRET_FILE") {
		t.Errorf("without the file: got error %v", err)
	}
	write := func(secret string) {
		if err := os.WriteFile(c.OIDC.ClientSecretFile, []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("the first secret")
	b := &browser{pages(t, c), map[string]string{}}
	for _, secret := range []string{"the secret before", clientSecret} {
		write(secret)
		w := b.login(t, f, "/read")
		if want := map[bool]int{true: 303, false: 403}[secret == clientSecret]; w.Code != want {
			t.Errorf("with %q: got %d, want %d", secret, w.Code, want)
		}
	}
	if n := len(slices.DeleteFunc(f.asked, func(path string) bool { return path != "/token" })); n != 2 {
		t.Errorf("the issuer got %d codes, want 2: one that is sent twice looks stolen", n)
	}
}

func TestSettingsOfOIDCThatAreWrongAreRefusedByName(t *testing.T) {
	f := newFakeIssuer(t)
	for _, test := range []struct {
		what     string
		change   func(*Config)
		variable string
	}{
		{"no issuer", func(c *Config) { c.OIDC.Issuer = "" }, "CONSOLE_OIDC_ISSUER"},
		{"an issuer in the clear", func(c *Config) { c.OIDC.Issuer = "http://login.example.com" }, "CONSOLE_OIDC_ISSUER"},
		{"no client", func(c *Config) { c.OIDC.ClientID = "" }, "CONSOLE_OIDC_CLIENT_ID"},
		{"two secrets", func(c *Config) { c.OIDC.ClientSecretFile = "/a/file" }, "CONSOLE_OIDC_CLIENT_SECRET"},
		{"no claim of the user", func(c *Config) { c.OIDC.UserClaim = "" }, "CONSOLE_OIDC_USER_CLAIM"},
		{"no claim of the groups", func(c *Config) { c.OIDC.GroupsClaim = "" }, "CONSOLE_OIDC_GROUPS_CLAIM"},
		{"nobody is let in", func(c *Config) { c.Groups = Groups{} }, "CONSOLE_READ_GROUPS"},
		{"an issuer that nobody must log in at", func(c *Config) { c.Login, c.Addr, c.Groups = loginNone, "127.0.0.1:0", Groups{} },
			"CONSOLE_LOGIN"},
	} {
		c := loggedInWith(f)
		test.change(&c)
		if _, err := New(c, zerolog.Nop()); err == nil || !strings.HasPrefix(err.Error(), test.variable+": ") {
			t.Errorf("%s: got error %v, want one that names %s", test.what, err, test.variable)
		}
	}
}
