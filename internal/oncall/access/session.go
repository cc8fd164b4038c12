package access

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// The cookies. Browsers take one of such a name only from this host, over TLS and for every
// path, so that no other host of the domain can set it.
const (
	sessionCookie = "__Host-errand"
	loginCookie   = "__Host-errand-login"
)

// session is what the session's cookie holds.
type session struct {
	User  User      `json:"user"`
	Until time.Time `json:"until"`
}

// sessions seals what cookies hold, so that nobody but this process can read or make it.
// The key is made at start and kept nowhere: after a restart everybody logs in again, which
// the issuer mostly does without asking.
type sessions struct{ aead cipher.AEAD }

func newSessions() *sessions {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // 32 bytes are a key
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has the block size of GCM
	}
	return &sessions{aead}
}

// set has the browser keep v in a cookie for a while. What is sealed for one cookie does
// not open as another.
func (s *sessions) set(w http.ResponseWriter, name string, v any, keep time.Duration) error {
	plain, err := json.Marshal(v)
	if err != nil {
		return err
	}
	sealed := s.aead.Seal(nil, nil, plain, []byte(name)) //nolint:gosec // it makes a nonce itself
	http.SetCookie(w, cookie(name, base64.RawURLEncoding.EncodeToString(sealed), int(keep/time.Second)))
	return nil
}

// get reads a cookie into v. It returns an error for one that is missing, that came twice,
// or that this process did not make.
func (s *sessions) get(r *http.Request, name string, v any) error {
	cookies := r.CookiesNamed(name)
	if len(cookies) != 1 {
		return errors.New("there is no cookie, or two of one name")
	}
	sealed, err := base64.RawURLEncoding.DecodeString(cookies[0].Value)
	if err != nil {
		return err
	}
	plain, err := s.aead.Open(nil, nil, sealed, []byte(name))
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, v)
}

// remove has the browser forget a cookie.
func remove(w http.ResponseWriter, name string) { http.SetCookie(w, cookie(name, "", -1)) }

func cookie(name, value string, maxAge int) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: maxAge, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}
}

// bySession is whose session a request belongs to. The error is a *Refusal.
func (g *Guard) bySession(r *http.Request) (User, time.Time, error) {
	var s session
	if err := g.sessions.get(r, sessionCookie, &s); err != nil || !time.Now().Before(s.Until) {
		return User{}, time.Time{}, &Refusal{Status: http.StatusUnauthorized, Title: "Not logged in", Login: true,
			Text: "Your login has ended. Log in, then try again: nothing was done."}
	}
	return s.User, s.Until, nil
}

// logout ends a session.
func (g *Guard) logout(w http.ResponseWriter, r *http.Request) {
	remove(w, sessionCookie)
	http.Redirect(w, r, logoutPath, http.StatusSeeOther)
}

// loggedOut is the page after a logout. It leads nobody to the issuer by itself, which
// would log in again.
func (g *Guard) loggedOut(w http.ResponseWriter, r *http.Request) {
	g.Refuse(w, r, &Refusal{Status: http.StatusUnauthorized, Title: "Not logged in", Login: true,
		Text: "You are logged out of this console. The service that you logged in with may still know you."})
}
