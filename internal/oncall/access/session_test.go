package access

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

func TestASessionThatWasTamperedWithIsNone(t *testing.T) {
	f := newFakeIssuer(t)
	b, other := newBrowser(t, f), newBrowser(t, f)
	b.login(t, f, "/read")
	good := b.cookies[sessionCookie]
	other.login(t, f, "/read")
	delete(b.cookies, sessionCookie)
	b.sent(t, f, "/read") // another login, which is not finished
	tampered := map[string]string{"another process's": other.cookies[sessionCookie], "nothing": "", "no base64": "%%%",
		"cut": good[:len(good)-4], "a login's": b.cookies[loginCookie]}
	for i := range good { // the last character's lowest bits mean nothing
		if i < len(good)-1 {
			tampered["changed at "+good[:i]] = good[:i] + string(good[i]^1) + good[i+1:]
		}
	}
	for what, value := range tampered {
		b.cookies[sessionCookie] = value
		if got := b.open("/read").Code; got != http.StatusSeeOther {
			t.Errorf("a session that is %s: got %d, want to be sent to log in", what, got)
		}
	}
	b.cookies[sessionCookie] = good
	if got := b.open("/read").Code; got != http.StatusOK {
		t.Errorf("the session itself: got %d", got)
	}
	r := request("GET", "/read", map[string]string{"host": "errand.example.com", "Sec-Fetch-Mode": "navigate"})
	r.AddCookie(&http.Cookie{Name: sessionCookie, Value: good})
	if got := b.send(r).Code; got != http.StatusSeeOther {
		t.Errorf("two sessions: got %d, want to be sent to log in", got)
	}
	b.cookies[loginCookie] = good
	if got := b.open("/login/callback?state=").Code; got != http.StatusBadRequest {
		t.Errorf("a session as a login: got %d, want 400", got)
	}
}

func TestWhatIsNoPageIsRefusedWithoutASession(t *testing.T) {
	f := newFakeIssuer(t)
	b := newBrowser(t, f)
	for _, r := range []*http.Request{
		request("POST", "/act", map[string]string{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate", "Accept": "text/html"}),
		request("GET", "/read", map[string]string{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Accept": "text/event-stream"}),
		request("GET", "/read", map[string]string{"Accept": "*/*"}),
	} {
		r.Host = "errand.example.com"
		if w := b.send(r); w.Code != http.StatusUnauthorized || len(b.cookies) > 0 {
			t.Errorf("%s with %v: got %d and cookies %v, want 401 and none", r.Method, r.Header, w.Code, b.cookies)
		}
	}
	if len(f.asked) > 0 {
		t.Errorf("the issuer was asked for %q", f.asked)
	}
}

func TestALogoutEndsTheSessionAndBeginsNone(t *testing.T) {
	f := newFakeIssuer(t)
	b := newBrowser(t, f)
	b.login(t, f, "/read")
	if b.open("/logout"); b.open("/read").Code != http.StatusOK {
		t.Error("a link logs out; only a form may")
	}
	elsewhere := request("POST", "/logout", map[string]string{"host": "errand.example.com", "Sec-Fetch-Site": "cross-site",
		"Sec-Fetch-Mode": "navigate"})
	if got := b.send(elsewhere).Code; got != http.StatusForbidden {
		t.Errorf("another site's form: got %d, want 403", got)
	}
	w := b.send(request("POST", "/logout", map[string]string{"host": "errand.example.com", "Sec-Fetch-Site": "same-origin",
		"Sec-Fetch-Mode": "navigate"}))
	if got := w.Header().Get("Location"); got != "/logout" || len(b.cookies) > 0 {
		t.Errorf("after a logout: sent to %q with cookies %v", got, b.cookies)
	}
	if w := b.open("/logout"); w.Code != http.StatusUnauthorized || len(b.cookies) > 0 {
		t.Errorf("the page after it: got %d, cookies %v; want 401 and none", w.Code, b.cookies)
	}
}

func TestTheLinkToLogInLeadsToTheFirstPage(t *testing.T) {
	f := newFakeIssuer(t)
	b := newBrowser(t, f)
	if got := b.login(t, f, loginPath).Header().Get("Location"); got != "/" {
		t.Errorf("after the login: sent to %q, want /", got)
	}
	if got := b.open("/read").Code; got != http.StatusOK {
		t.Errorf("after the login: got %d", got)
	}
}

func TestASessionEndsAndSoDoesALoginThatTakesTooLong(t *testing.T) {
	f := newFakeIssuer(t)
	c := loggedInWith(f)
	c.MaxAge = time.Hour
	synctest.Test(t, func(t *testing.T) {
		guard, err := New(c, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		guard.issuer.client.Transport = direct{f}
		var streamed time.Duration
		b := &browser{guard.Wrap(guard.Allow(Read, func(_ http.ResponseWriter, r *http.Request, _ User) {
			if r.URL.Path == "/stream" {
				began := time.Now()
				<-r.Context().Done()
				streamed = time.Since(began)
			}
		})), map[string]string{}}

		code, state := f.authorize(t, b.sent(t, f, "/"))
		before := b.cookies[loginCookie]
		time.Sleep(10*time.Minute + time.Second)
		b.cookies[loginCookie] = before // of a browser that keeps it all the same
		if got := b.open("/login/callback?code=" + code + "&state=" + state).Code; got != http.StatusBadRequest {
			t.Errorf("a login that took 10 minutes: got %d, want 400", got)
		}

		b.login(t, f, "/")
		time.Sleep(20 * time.Minute)
		b.open("/stream")
		if streamed.Round(time.Second) != 40*time.Minute {
			t.Errorf("a stream lasted %v, want until the session's end after 40m", streamed)
		}
		if got := b.open("/").Code; got != http.StatusSeeOther {
			t.Errorf("after the session's end: got %d, want to be sent to log in", got)
		}
	})
}
