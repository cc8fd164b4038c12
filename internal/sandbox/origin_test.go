package sandbox

import (
	"net/http"
	"testing"
)

// A page elsewhere can make a browser call this machine, by its address or by a name of the
// page's own; it cannot choose the Host and the Origin that the browser then sends.
func TestOnlyWhoMeansTheSandboxMayControlIt(t *testing.T) {
	s := newSandbox(t, Options{PublicURL: "https://box.example.test/", Hosts: []string{"sandbox.errand.svc"}})
	for _, c := range []struct {
		host, header, value string
		want                int
	}{
		{"127.0.0.1:8085", "", "", 200},
		{"localhost", "", "", 200},
		{"[::1]:8085", "", "", 200},
		{"10.1.2.3:8085", "", "", 200},
		{"Box.example.test", "", "", 200},
		{"sandbox.errand.svc:8085", "", "", 200},
		{"rebound.example.test:8085", "", "", 403},
		{"localhost.example.test", "", "", 403},
		{"127.0.0.1.example.test:8085", "", "", 403},
		{"", "", "", 403},
		{"127.0.0.1:8085", "Origin", "http://127.0.0.1:8085", 200},
		{"127.0.0.1:8085", "Origin", "http://127.0.0.1:9000", 403},
		{"127.0.0.1:8085", "Origin", "https://shop.example.test", 403},
		{"127.0.0.1:8085", "Origin", "null", 403},
		{"127.0.0.1:8085", "Sec-Fetch-Site", "same-origin", 200},
		{"127.0.0.1:8085", "Sec-Fetch-Site", "none", 200}, // typed by a person
		{"127.0.0.1:8085", "Sec-Fetch-Site", "cross-site", 403},
		{"localhost:8085", "Sec-Fetch-Site", "same-site", 403},
	} {
		for method, path := range map[string]string{"POST": "/_sandbox/cycle", "GET": "/_sandbox/oracle", "DELETE": "/_sandbox/faults",
			"PUT": "/_sandbox/settings"} {
			r := request(method, path, "{}")
			if r.Host = c.host; c.header != "" {
				r.Header.Set(c.header, c.value)
			}
			if got := do(s, r).Code; got != c.want {
				t.Errorf("%s %s at %q with %s %q: got %d, want %d", method, path, c.host, c.header, c.value, got, c.want)
			}
		}
	}
}

func TestAPageElsewhereDecidesNoEnrollment(t *testing.T) {
	s := newSandbox(t, Options{})
	r := request("POST", "/enroll/x", "decision=approve")
	r.Header.Set("Origin", "https://shop.example.test")
	if got := do(s, r).Code; got != http.StatusForbidden {
		t.Errorf("got %d, want it forbidden", got)
	}
}
