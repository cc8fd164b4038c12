package console

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/oncall/access"
)

func TestWhoLoggedInAtTheConsoleMayLogOutOnEveryPage(t *testing.T) {
	t.Parallel()
	in := installed(t)
	const form = `<form method="post" action="/logout">`
	if page := in.shows("/find", "Find"); strings.Contains(page, form) {
		t.Error("a page offers to log out where nobody logs in")
	}
	guard, err := access.New(access.Config{Addr: "127.0.0.1:0", URL: "https://127.0.0.1:8443", Login: "oidc", User: "local",
		Roles: []string{"read"}, MaxAge: time.Hour,
		Groups: access.Groups{Read: []string{"people"}},
		OIDC: access.OIDC{Issuer: "https://127.0.0.1:1", ClientID: "console", Scopes: []string{"openid"}, UserClaim: "email",
			GroupsClaim: "groups"}}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{watch: in.watch, guard: guard}
	w := httptest.NewRecorder()
	s.show(w, httptest.NewRequestWithContext(t.Context(), "GET", "/find", nil), access.User{Name: "ann"},
		page{Title: "Find", Nav: "/find", Name: "find", Data: findPage{}}, "")
	if !strings.Contains(w.Body.String(), form) {
		t.Errorf("no page offers to log out:\n%s", w.Body)
	}
}
