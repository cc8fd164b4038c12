package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// fakeIssuer is an OpenID Connect issuer with one client: "console" with the secret "the client's secret".
type fakeIssuer struct {
	*httptest.Server
	key     *ecdsa.PrivateKey
	codes   map[string]url.Values // what the browser was sent with, by code
	asked   []string              // paths
	answers bool
	// forge changes the ID token before it is signed; a header "alg" of none or HS256 takes the signature's place.
	forge func(header, claims map[string]any)
}

const clientSecret = "the client's secret"

func newFakeIssuer(t *testing.T) *fakeIssuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeIssuer{key: key, codes: map[string]url.Values{}, answers: true, forge: func(_, _ map[string]any) {}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.asked = append(f.asked, r.URL.Path)
	if !f.answers {
		http.Error(w, "out of order", http.StatusBadGateway)
		return
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		f.answer(w, map[string]any{"issuer": f.URL, "authorization_endpoint": f.URL + "/authorize", "token_endpoint": f.URL + "/token",
			"jwks_uri": f.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"}})
	case "/keys":
		size := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.FillBytes(make([]byte, 32))) }
		point, _ := f.key.PublicKey.Bytes()
		f.answer(w, map[string]any{"keys": []any{map[string]any{"kty": "EC", "crv": "P-256", "kid": "1", "alg": "ES256", "use": "sig",
			"x": size(new(big.Int).SetBytes(point[1:33])), "y": size(new(big.Int).SetBytes(point[33:]))}}})
	case "/token":
		f.token(w, r)
	default:
		http.NotFound(w, r)
	}
}

// authorize is what a user agrees to at the address that the console sends to: a code.
func (f *fakeIssuer) authorize(t *testing.T, location string) (code, state string) {
	t.Helper()
	u, err := url.Parse(location)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	for name, want := range map[string]string{"response_type": "code", "client_id": "console",
		"redirect_uri": "https://errand.example.com/login/callback",
		"scope":        "openid profile email", "code_challenge_method": "S256"} {
		if got := query.Get(name); got != want {
			t.Errorf("the issuer is asked with %s %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"state", "nonce", "code_challenge"} {
		if len(query.Get(name)) < 20 {
			t.Errorf("%s is %q, which can be guessed", name, query.Get(name))
		}
	}
	code = rand.Text()
	f.codes[code] = query
	return code, query.Get("state")
}

// token returns an ID token for a code, once.
func (f *fakeIssuer) token(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	asked, known := f.codes[r.PostFormValue("code")]
	delete(f.codes, r.PostFormValue("code"))
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	proven := base64.RawURLEncoding.EncodeToString(sum[:]) == asked.Get("code_challenge")
	if secret, _ = url.QueryUnescape(secret); id != "console" || secret != clientSecret || !known || !proven {
		w.WriteHeader(http.StatusBadRequest)
		f.answer(w, map[string]string{"error": "invalid_grant"})
		return
	}
	header := map[string]any{"alg": "ES256", "kid": "1"}
	claims := map[string]any{"iss": f.URL, "aud": "console", "sub": "4711", "exp": time.Now().Add(time.Minute).Unix(),
		"iat":   time.Now().Unix(),
		"nonce": asked.Get("nonce"), "email": "ann@example.com", "email_verified": true, "groups": []string{"staff", "on-call"}}
	f.forge(header, claims)
	f.answer(w, map[string]any{"access_token": "the access token", "token_type": "Bearer", "id_token": f.sign(header, claims)})
}

func (f *fakeIssuer) sign(header, claims map[string]any) string {
	part := func(v any) string {
		b, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(header) + "." + part(claims)
	if header["alg"] != "ES256" {
		return text + "."
	}
	sum := sha256.Sum256([]byte(text))
	r, s, _ := ecdsa.Sign(rand.Reader, f.key, sum[:])
	return text + "." + base64.RawURLEncoding.EncodeToString(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

func (f *fakeIssuer) answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// browser keeps cookies as one does, and shows pages of one console.
type browser struct {
	console http.Handler
	cookies map[string]string
}

// open is a link to a page, followed.
func (b *browser) open(target string) *httptest.ResponseRecorder {
	return b.send(request("GET", target, map[string]string{"host": "errand.example.com", "Sec-Fetch-Site": "none",
		"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}))
}

func (b *browser) send(r *http.Request) *httptest.ResponseRecorder {
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := serve(b.console, r)
	for _, c := range w.Result().Cookies() {
		if b.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	return w
}

// login opens a page, agrees at the issuer and comes back.
func (b *browser) login(t *testing.T, f *fakeIssuer, page string) *httptest.ResponseRecorder {
	t.Helper()
	code, state := f.authorize(t, b.sent(t, f, page))
	return b.open("/login/callback?" + url.Values{"code": {code}, "state": {state}}.Encode())
}

// sent is where opening a page leads that needs a login.
func (b *browser) sent(t *testing.T, f *fakeIssuer, page string) string {
	t.Helper()
	w := b.open(page)
	location := w.Header().Get("Location")
	if w.Code != http.StatusSeeOther || !strings.HasPrefix(location, f.URL+"/authorize?") {
		t.Fatalf("opening %s without a session: got %d and %q, want to be sent to log in", page, w.Code, location)
	}
	return location
}
