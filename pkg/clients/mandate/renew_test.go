package mandate

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"errand/pkg/clients"
)

// carried is what an enrollment brings of secrets.
type carried struct{ Authorization, PortalKey, Checksum string }

func TestRenewedSecretsAreThoseOfTheNextCallOnBothInterfaces(t *testing.T) {
	var got []carried
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var sent struct {
			PortalKey string `json:"portal_key"`
			Checksum  string `json:"checksum"`
		}
		body, _ := io.ReadAll(r.Body) // a list has none
		_ = json.Unmarshal(body, &sent)
		got = append(got, carried{r.Header.Get("Authorization"), sent.PortalKey, sent.Checksum})
		_, _ = io.WriteString(w, `{"url":"https://mandates.example.com/1","data":[]}`)
	}))
	t.Cleanup(web.Close)
	c, err := New(Config{URL: web.URL, V2URL: web.URL, Version: "v2", Token: clients.NewSecret("token-1"),
		PortalKey: clients.NewSecret("portal-1"), ChecksumSecret: clients.NewSecret("checksum-1")})
	if err != nil {
		t.Fatal(err)
	}
	e := Enrollment{OrderNumber: "DD1", Amount: "100"}
	call := func() {
		t.Helper()
		if _, err := c.Enroll(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		for range c.Transactions(t.Context(), Filter{}, 1) { // what it makes of the answer is not the point
			break
		}
	}
	renew := func(token, portal, checksum string, want bool) {
		t.Helper()
		changed, err := c.SetCredentials(clients.NewSecret(token), clients.NewSecret(portal), clients.NewSecret(checksum))
		if err != nil || changed != want {
			t.Fatalf("renew: changed %v, %v; want %v", changed, err, want)
		}
	}
	call()
	renew("token-1", "portal-1", "checksum-1", false)
	renew("token-2", "portal-2", "checksum-2", true)
	if _, err := c.SetCredentials(clients.Secret{}, clients.NewSecret("portal-3"), clients.Secret{}); err == nil {
		t.Error("it can do without a token")
	}
	call()
	signed := func(secret string) string {
		e := e
		e.PortalKey = "any" // it is not signed
		return Checksum(clients.NewSecret(secret), e)
	}
	want := []carried{{"Bearer token-1", "portal-1", signed("checksum-1")}, {Authorization: "Bearer token-1"},
		{"Bearer token-2", "portal-2", signed("checksum-2")}, {Authorization: "Bearer token-2"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
