package access

import (
	"crypto/subtle"
	"net/http"
	"net/url"
)

// Without a login anyone who reaches the console may read, through a proxy too: not every proxy says that it is one. To reveal and
// to act takes a token, which is made at start and which only the terminal of the console shows.
const (
	tokenParameter = "token"
	tokenCookie    = "errand-token"
)

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
	http.SetCookie(w, &http.Cookie{Name: tokenCookie, Value: g.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
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
