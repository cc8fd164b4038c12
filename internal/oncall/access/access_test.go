package access

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"errand/internal/programs"

	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"
)

// local is a configuration without a login, proxied one behind a proxy at 10.1.2.3.
func local() Config {
	return Config{Addr: "127.0.0.1:0", Login: loginNone, User: "local", Roles: []string{"read", "reveal", "act"}}
}

func proxied() Config {
	c := local()
	c.Addr, c.Login, c.URL = ":8088", loginProxy, "https://errand.example.com"
	c.Groups = Groups{Read: []string{"support", ""}, Reveal: []string{"privacy"}, Act: []string{"on-call"}}
	c.Proxy = Proxy{Peers: []string{"10.1.2.3", "192.0.2.0/24", "2001:db8::/64"}, UserHeader: "X-Forwarded-User",
		GroupsHeader: "X-Forwarded-Groups"}
	return c
}

// pages is a console of three pages: one for each role. Without a login it was opened with its link.
func pages(t *testing.T, c Config) http.Handler {
	t.Helper()
	guard, h := strangers(t, c)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.AddCookie(&http.Cookie{Name: tokenCookie(r), Value: guard.token})
		h.ServeHTTP(w, r)
	})
}

// strangers are those who come to it without the link.
func strangers(t *testing.T, c Config) (*Guard, http.Handler) {
	t.Helper()
	guard, err := New(c, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	guard.Refuse = func(w http.ResponseWriter, _ *http.Request, why *Refusal) { http.Error(w, why.Text, why.Status) }
	mux := http.NewServeMux()
	for _, role := range allRoles {
		mux.Handle("/"+string(role), guard.Allow(role, func(w http.ResponseWriter, _ *http.Request, user User) {
			_, _ = io.WriteString(w, user.Name)
		}))
	}
	return guard, guard.Wrap(mux)
}

// A proxy that sets the host and adds no header looks like a browser on this machine: its users may only read.
func TestWithoutALoginToRevealAndToActTakesThePrintedLink(t *testing.T) {
	guard, h := strangers(t, local())
	for page, want := range map[string]int{"/read": 200, "/reveal": 403, "/act": 403} {
		for _, cookie := range []string{"", "wrong", "errand-token-8088="} {
			if got := serve(h, request("GET", page+"?token=wrong", map[string]string{"Cookie": cookie})).Code; got != want {
				t.Errorf("%s with the cookie %q: got %d, want %d", page, cookie, got, want)
			}
		}
	}
	link := strings.TrimPrefix(guard.Link("localhost:8088"), "http://localhost:8088")
	opened := serve(h, request("GET", strings.Replace(link, "/?", "/act?x=1&", 1), nil))
	if at := opened.Header().Get("Location"); opened.Code != http.StatusSeeOther || at != "/act?x=1" {
		t.Fatalf("%d, led to %q", opened.Code, at)
	}
	cookie, _, _ := strings.Cut(opened.Header().Get("Set-Cookie"), ";")
	if got := serve(h, request("POST", "/act", map[string]string{"Cookie": cookie})).Code; got != 200 {
		t.Errorf("with the link: got %d", got)
	}
	other := serve(h, request("GET", link, map[string]string{"host": "localhost:8089"})).Header().Get("Set-Cookie")
	if name, _, _ := strings.Cut(cookie, "="); strings.HasPrefix(other, name+"=") {
		t.Errorf("the console at another port of the host replaces the cookie %s", name)
	}
	reading := local()
	reading.Roles = []string{"read"}
	if guard, _ := strangers(t, reading); guard.Link("x") != "" {
		t.Error("a console that only shows has a link")
	}
	if guard, _ := strangers(t, proxied()); guard.Link("x") != "" {
		t.Error("a console with a login has a link")
	}
}

// request is one for a page, as the named headers have it; "peer" and "host" are where it comes from and goes to.
func request(method, target string, headers map[string]string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.Host, r.RemoteAddr = "localhost:8088", "127.0.0.1:50000"
	for name, value := range headers {
		switch name {
		case "peer":
			r.RemoteAddr = value
		case "host":
			r.Host = value
		default:
			r.Header.Set(name, value)
		}
	}
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestSettingsThatWouldLetEverybodyInAreRefusedByName(t *testing.T) {
	for _, test := range []struct {
		what     string
		change   func(*Config)
		variable string
	}{
		{"an address of every interface", func(c *Config) { c.Addr = ":8088" }, "CONSOLE_ADDR"},
		{"an address of every interface, written out", func(c *Config) { c.Addr = "0.0.0.0:8088" }, "CONSOLE_ADDR"},
		{"an address of every interface in IPv6", func(c *Config) { c.Addr = "[::]:8088" }, "CONSOLE_ADDR"},
		{"an address that others reach", func(c *Config) { c.Addr = "10.1.2.3:8088" }, "CONSOLE_ADDR"},
		{"a name that others decide about", func(c *Config) { c.Addr = "localhost.example.com:8088" }, "CONSOLE_ADDR"},
		{"no port", func(c *Config) { c.Addr = "127.0.0.1" }, "CONSOLE_ADDR"},
		{"groups without a login", func(c *Config) { c.Groups.Act = []string{"on-call"} }, "CONSOLE_LOGIN"},
		{"a proxy without a login", func(c *Config) { c.Proxy.Peers = []string{"127.0.0.1"} }, "CONSOLE_LOGIN"},
		{"an unknown role", func(c *Config) { c.Roles = []string{"read", "admin"} }, "CONSOLE_ROLES"},
		{"nobody may read", func(c *Config) { c.Roles = []string{"act"} }, "CONSOLE_ROLES"},
		{"a user without a name", func(c *Config) { c.User = " " }, "CONSOLE_USER"},
		{"no groups", func(c *Config) { *c = proxied(); c.Groups = Groups{} }, "CONSOLE_READ_GROUPS"},
		{"no peers", func(c *Config) { *c = proxied(); c.Proxy.Peers = nil }, "CONSOLE_PROXY_PEERS"},
		{"everybody is the proxy", func(c *Config) { *c = proxied(); c.Proxy.Peers = []string{"0.0.0.0/0"} }, "CONSOLE_PROXY_PEERS"},
		{"a peer's name", func(c *Config) { *c = proxied(); c.Proxy.Peers = []string{"ingress"} }, "CONSOLE_PROXY_PEERS"},
		{"one header for both", func(c *Config) { *c = proxied(); c.Proxy.GroupsHeader = "x-forwarded-user" }, "CONSOLE_PROXY_GROUPS_HEADER"},
		{"no header", func(c *Config) { *c = proxied(); c.Proxy.UserHeader = "" }, "CONSOLE_PROXY_USER_HEADER"},
		{"no URL", func(c *Config) { *c = proxied(); c.URL = "" }, "CONSOLE_URL"},
		{"a URL in the clear", func(c *Config) { *c = proxied(); c.URL = "http://errand.example.com" }, "CONSOLE_URL"},
		{"a URL with a path", func(c *Config) { *c = proxied(); c.URL = "https://example.com/errand" }, "CONSOLE_URL"},
	} {
		c := local()
		test.change(&c)
		_, err := New(c, zerolog.Nop())
		if invalid, ok := errors.AsType[*programs.Invalid](err); !ok || invalid.Variable != test.variable {
			t.Errorf("%s: got error %v, want one that names %s", test.what, err, test.variable)
		}
	}
	for _, c := range []Config{local(), proxied()} {
		if err := c.Validate(); err != nil {
			t.Errorf("login %s: %v", c.Login, err)
		}
	}
}

// As a ConfigMap has them that names every setting.
func TestSettingsThatAreEmptyAreNone(t *testing.T) {
	for _, name := range []string{"CONSOLE_URL", "CONSOLE_READ_GROUPS", "CONSOLE_REVEAL_GROUPS", "CONSOLE_ACT_GROUPS", "CONSOLE_PROXY_PEERS"} {
		t.Setenv(name, "")
	}
	var c Config
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Errorf("without a login: %v; the groups are %q, the peers %q", err, c.Groups, c.Proxy.Peers)
	}
	c.Login, c.URL, c.Proxy.Peers = loginProxy, "https://errand.example.com", []string{"10.1.2.3"}
	if err := c.Validate(); err == nil {
		t.Errorf("with a login for no group, %q: got no error", c.Groups)
	}
}

func TestWithoutALoginOnlyTheMachinesOwnNamesAreServed(t *testing.T) {
	console := pages(t, local())
	for host, want := range map[string]int{
		"localhost": 200, "localhost:9000": 200, "LOCALHOST:9000": 200, "127.0.0.1:8088": 200, "127.9.9.9": 200, "[::1]:8088": 200, "[::1]": 200,
		"evil.example:8088": 421, "evil.example": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example:8088": 421, "10.0.0.1": 421,
		"0.0.0.0:8088": 421, "localhost.": 421, "": 421, "2130706433": 421,
	} {
		if got := serve(console, request("GET", "/read", map[string]string{"host": host})).Code; got != want {
			t.Errorf("Host %q: got %d, want %d", host, got, want)
		}
	}
	for _, header := range []string{"X-Forwarded-For", "X-Forwarded-Host", "Forwarded"} {
		if got := serve(console, request("GET", "/read", map[string]string{header: "for=192.0.2.1"})).Code; got != 403 {
			t.Errorf("behind a proxy that sets %s: got %d, want 403", header, got)
		}
	}
}

func TestOnlyTheProxyNamesTheUser(t *testing.T) {
	console := pages(t, proxied())
	for _, test := range []struct {
		what         string
		peer         string
		user, groups string
		status       [3]int // of the pages for read, reveal and act
	}{
		{"the proxy", "10.1.2.3:40000", "ann", "support", [3]int{200, 403, 403}},
		{"the proxy, of somebody who sees personal data", "10.1.2.3:40000", "ann", "privacy", [3]int{200, 200, 403}},
		{"the proxy, of somebody who acts", "10.1.2.3:40000", "ann", "staff, on-call", [3]int{200, 403, 200}},
		{"the proxy, of somebody who may everything", "10.1.2.3:40000", "ann", "privacy,on-call", [3]int{200, 200, 200}},
		{"the proxy in IPv6 form", "[::ffff:10.1.2.3]:40000", "ann", "support", [3]int{200, 403, 403}},
		{"an address of the proxy's range", "192.0.2.77:40000", "ann", "support", [3]int{200, 403, 403}},
		{"an address of its IPv6 range", "[2001:db8::7]:40000", "ann", "support", [3]int{200, 403, 403}},
		{"the proxy's neighbour", "10.1.2.4:40000", "ann", "support", [3]int{403, 403, 403}},
		{"this machine", "127.0.0.1:40000", "ann", "on-call", [3]int{403, 403, 403}},
		{"no address at all", "@", "ann", "on-call", [3]int{403, 403, 403}},
		{"the proxy, of nobody", "10.1.2.3:40000", "", "support", [3]int{401, 401, 401}},
		{"the proxy, of a name of spaces", "10.1.2.3:40000", "  ", "support", [3]int{403, 403, 403}},
		{"the proxy, of a name that changes a terminal", "10.1.2.3:40000", "ann\x1b[2J", "support", [3]int{403, 403, 403}},
		{"the proxy, of a stranger", "10.1.2.3:40000", "bob", "sales", [3]int{403, 403, 403}},
		{"the proxy, of somebody without groups", "10.1.2.3:40000", "bob", "", [3]int{403, 403, 403}},
		{"the proxy, of somebody in a group without a name", "10.1.2.3:40000", "bob", ",", [3]int{403, 403, 403}},
		{"the proxy, of a group in another spelling", "10.1.2.3:40000", "bob", "Support,on call", [3]int{403, 403, 403}},
	} {
		headers := map[string]string{"peer": test.peer, "host": "errand.example.com"}
		if test.user != "" {
			headers["X-Forwarded-User"] = test.user
		}
		if test.groups != "" {
			headers["X-Forwarded-Groups"] = test.groups
		}
		for i, role := range allRoles {
			if got := serve(console, request("GET", "/"+string(role), headers)).Code; got != test.status[i] {
				t.Errorf("%s, for %s: got %d, want %d", test.what, role, got, test.status[i])
			}
		}
	}
	for _, header := range []string{"X-Forwarded-User", "X-Forwarded-Groups"} {
		r := request("GET", "/read", map[string]string{"peer": "10.1.2.3:40000", "X-Forwarded-User": "ann", "X-Forwarded-Groups": "support"})
		r.Header.Add(header, "on-call")
		if got := serve(console, r).Code; got != 400 {
			t.Errorf("%s twice: got %d, want 400", header, got)
		}
	}
}

func TestTheConsoleGivesNoRoleThatItsSettingsLeaveOut(t *testing.T) {
	c := proxied()
	c.Roles = []string{"read"}
	headers := map[string]string{"peer": "10.1.2.3:40000", "X-Forwarded-User": "ann", "X-Forwarded-Groups": "privacy,on-call"}
	l := local()
	l.Roles = []string{"read"}
	for _, console := range []struct {
		http.Handler
		headers map[string]string
	}{{pages(t, c), headers}, {pages(t, l), nil}} {
		for role, want := range map[Role]int{Read: 200, Reveal: 403, Act: 403} {
			if got := serve(console, request("POST", "/"+string(role), console.headers)).Code; got != want {
				t.Errorf("%s: got %d, want %d", role, got, want)
			}
		}
	}
}

func TestAnotherSiteMayLinkToAPageAndNothingElse(t *testing.T) {
	console := pages(t, local())
	for _, test := range []struct {
		what, method     string
		site, mode, dest string
		origin           string
		want             int
	}{
		{"an address that was typed", "GET", "none", "navigate", "document", "", 200},
		{"a page's own stream", "GET", "same-origin", "cors", "empty", "", 200},
		{"a page's own form", "POST", "same-origin", "navigate", "document", "null", 200},
		{"a tool that is not a browser", "POST", "", "", "", "", 200},
		{"an old browser's own form", "POST", "", "", "", "http://localhost:8088", 200},
		{"a link elsewhere", "GET", "cross-site", "navigate", "document", "", 200},
		{"a form elsewhere", "POST", "cross-site", "navigate", "document", "https://evil.example", 403},
		{"a form of a neighbour", "POST", "same-site", "navigate", "document", "http://localhost:9999", 403},
		{"an old browser's form elsewhere", "POST", "", "", "", "https://evil.example", 403},
		{"an old browser's form of no origin", "POST", "", "", "", "null", 403},
		{"an image elsewhere", "GET", "cross-site", "no-cors", "image", "", 403},
		{"a frame elsewhere", "GET", "cross-site", "navigate", "iframe", "", 403},
		{"a script's fetch elsewhere", "GET", "cross-site", "cors", "empty", "https://evil.example", 403},
		{"a neighbour's script", "GET", "same-site", "no-cors", "script", "", 403},
	} {
		headers := map[string]string{}
		for name, value := range map[string]string{"Sec-Fetch-Site": test.site, "Sec-Fetch-Mode": test.mode, "Sec-Fetch-Dest": test.dest,
			"Origin": test.origin} {
			if value != "" {
				headers[name] = value
			}
		}
		if got := serve(console, request(test.method, "/act", headers)).Code; got != test.want {
			t.Errorf("%s: got %d, want %d", test.what, got, test.want)
		}
	}
}

func TestEveryAnswerHasTheSecurityHeaders(t *testing.T) {
	console := pages(t, local())
	for _, r := range []*http.Request{request("GET", "/read", nil), request("GET", "/nowhere", nil),
		request("GET", "/read", map[string]string{"host": "evil.example"}), request("POST", "/act",
			map[string]string{"Sec-Fetch-Site": "cross-site"})} {
		header := serve(console, r).Header()
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store"} {
			if got := header.Get(name); got != want {
				t.Errorf("%s %s: %s is %q, want %q", r.Host, r.URL.Path, name, got, want)
			}
		}
		policy := header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self';") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s %s: the policy is %q", r.Host, r.URL.Path, policy)
		}
	}
}

func TestListenTakesNoAddressThatOthersReach(t *testing.T) {
	c := local()
	listener, err := c.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	c.Addr = "0.0.0.0:0" // as a name may turn out to mean
	if _, err := c.Listen(t.Context()); err == nil {
		t.Error("listened on every interface without a login")
	}
}
