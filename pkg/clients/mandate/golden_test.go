package mandate

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"errand/pkg/clients"

	"github.com/google/go-cmp/cmp"
)

const (
	token     = "token-of-the-test"
	portalKey = "sandbox-portal"
	signing   = "sandbox-secret"
)

// arrived is one request as the upstream saw it.
type arrived struct {
	Line   string // method and target
	Header map[string]string
	Body   string
}

// fake is an upstream that answers the same to every call and keeps what arrived.
type fake struct {
	*httptest.Server
	arrived []arrived
	status  int
	header  http.Header
	answers [][]byte // one a call, the last one for ever
}

func newFake(t *testing.T, status int, answers ...[]byte) *fake {
	t.Helper()
	f := &fake{status: status, answers: answers}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		header := map[string]string{}
		for name, values := range r.Header {
			if name != "Content-Length" {
				header[name] = values[0]
			}
		}
		f.arrived = append(f.arrived, arrived{r.Method + " " + r.RequestURI, header, string(body)})
		maps.Copy(w.Header(), f.header)
		w.WriteHeader(f.status)
		_, _ = w.Write(f.answers[min(len(f.arrived), len(f.answers))-1])
	}))
	t.Cleanup(f.Close)
	return f
}

// sentHeader is every header a call may have.
var sentHeader = map[string]string{
	"Accept":        "application/json",
	"Authorization": "Bearer " + token,
	"Content-Type":  "application/json",
	"User-Agent":    "errand",
}

func client(t *testing.T, config Config, options ...clients.Option) *Client {
	t.Helper()
	config.Token = clients.NewSecret(token)
	config.PortalKey = clients.NewSecret(portalKey)
	c, err := New(config, append([]clients.Option{clients.Timeout(5 * time.Second)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func golden(t testing.TB, name string) []byte {
	t.Helper()
	body, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func compacted(t testing.TB, body []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, body); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// enrollment is the request of a fixture without what the client fills in.
func enrollment(t testing.TB, name string) Enrollment {
	t.Helper()
	var e Enrollment
	if err := json.Unmarshal(golden(t, name), &e); err != nil {
		t.Fatal(err)
	}
	e.PortalKey, e.Checksum = "", ""
	return e
}

func TestAnEnrollmentIsSentAsTheDocumentShows(t *testing.T) {
	for _, c := range []struct {
		fixture, version, secret, format string
		line                             string
	}{
		{"enroll.request.json", "", signing, "", "POST /v3/mandates"},
		{"enroll.request.json", "v3", signing, "", "POST /v3/mandates"},
		{"enroll.request.json", "v2", signing, "", "POST /api/v2/mandates"},
		{"enroll.request.required.json", "v3", "", "", "POST /v3/mandates"},
		{"enroll.request.fixed2.json", "v3", signing, "fixed2", "POST /v3/mandates"},
	} {
		t.Run(c.fixture+" "+c.version, func(t *testing.T) {
			answer := golden(t, "enroll.response.json")
			v3, v2 := newFake(t, 201, answer), newFake(t, 200, answer)
			called, version := v3, "v3"
			if c.version == "v2" {
				called, version = v2, "v2"
			}
			m := client(t, Config{
				URL: v3.URL, V2URL: v2.URL, Version: c.version, ChecksumSecret: clients.NewSecret(c.secret), AmountFormat: c.format,
			})
			got, err := m.Enroll(t.Context(), enrollment(t, c.fixture))
			if err != nil {
				t.Fatal(err)
			}
			want := []arrived{{c.line, sentHeader, compacted(t, golden(t, c.fixture))}}
			if diff := cmp.Diff(want, called.arrived); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			if n := len(v3.arrived) + len(v2.arrived); n != 1 {
				t.Errorf("%d calls, want 1", n)
			}
			wantAnswer := Enrolled{Version: version, URL: "https://mandate.example.test/intent/DD001", Body: answer}
			if diff := cmp.Diff(wantAnswer, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatARequestBringsIsNotReplaced(t *testing.T) {
	f := newFake(t, 200, golden(t, "enroll.response.json"))
	e := enrollment(t, "enroll.request.json")
	e.PortalKey, e.Checksum = "another-portal", "another-checksum"
	if _, err := client(t, Config{URL: f.URL, ChecksumSecret: clients.NewSecret(signing)}).Enroll(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	var got Enrollment
	if err := json.Unmarshal([]byte(f.arrived[0].Body), &got); err != nil || got.PortalKey != e.PortalKey || got.Checksum != e.Checksum {
		t.Errorf("got %q, %q, %v", got.PortalKey, got.Checksum, err)
	}
}

func TestAServiceBelowAPathIsCalledThere(t *testing.T) {
	f := newFake(t, 200, golden(t, "enroll.response.json"))
	if _, err := client(t, Config{URL: f.URL + "/gateway/"}).Enroll(t.Context(), enrollment(t, "enroll.request.json")); err != nil {
		t.Fatal(err)
	}
	if got, want := f.arrived[0].Line, "POST /gateway/v3/mandates"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
