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

// The cookies. Browsers accept a __Host- name only over TLS from this very host, so another host of the domain cannot set it.
const (
	sessionCookie = "__Host-errand"
	loginCookie   = "__Host-errand-login"
)

// session is the content of the session cookie.
type session struct {
	User  User      `json:"user"`
	Until time.Time `json:"until"`
}

// Sealer encrypts what browsers keep, so that only this process can read or make it. The key is made at start and stored
// nowhere: after a restart users log in again, mostly without being asked anything.
type Sealer struct{ aead cipher.AEAD }

// NewSealer returns a sealer with a new key.
func NewSealer() *Sealer {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // 32 bytes are a key
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has the block size that GCM needs
	}
	return &Sealer{aead}
}

// Seal encrypts data for a purpose, as text for a link or a cookie. It does not decrypt for another purpose.
func (s *Sealer) Seal(purpose string, data []byte) string {
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, data, []byte(purpose))) //nolint:gosec // it makes the nonce
}

// Open returns what was sealed for a purpose, or an error for a text that this sealer did not make.
func (s *Sealer) Open(purpose, text string) ([]byte, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	return s.aead.Open(nil, nil, sealed, []byte(purpose))
}

// set stores v in a cookie.
func (s *Sealer) set(w http.ResponseWriter, name string, v any, keep time.Duration) error {
	plain, err := json.Marshal(v)
	if err != nil {
		return err
	}
	http.SetCookie(w, cookie(name, s.Seal(name, plain), int(keep/time.Second)))
	return nil
}

// get reads a cookie into v. It returns an error for a cookie that is missing, sent twice, or not made by this process.
func (s *Sealer) get(r *http.Request, name string, v any) error {
	cookies := r.CookiesNamed(name)
	if len(cookies) != 1 {
		return errors.New("no cookie, or two of the same name")
	}
	plain, err := s.Open(name, cookies[0].Value)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, v)
}

func remove(w http.ResponseWriter, name string) { http.SetCookie(w, cookie(name, "", -1)) }

func cookie(name, value string, maxAge int) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: maxAge, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}
}

// bySession returns the user of a session, and when it ends. The error is a *Refusal.
func (g *Guard) bySession(r *http.Request) (User, time.Time, error) {
	var s session
	if err := g.sessions.get(r, sessionCookie, &s); err != nil || !time.Now().Before(s.Until) {
		return User{}, time.Time{}, &Refusal{Status: http.StatusUnauthorized, Title: "Not logged in", Login: true,
			Text: "Your login has expired. Log in and try again: nothing was done."}
	}
	return s.User, s.Until, nil
}

func (g *Guard) logout(w http.ResponseWriter, r *http.Request) {
	remove(w, sessionCookie)
	http.Redirect(w, r, logoutPath, http.StatusSeeOther)
}

// loggedOut is the page after a logout. It does not redirect to the issuer, which would log the user in again.
func (g *Guard) loggedOut(w http.ResponseWriter, r *http.Request) {
	g.Refuse(w, r, &Refusal{Status: http.StatusUnauthorized, Title: "Not logged in", Login: true,
		Text: "You are logged out of this console. The login service may still know you."})
}
