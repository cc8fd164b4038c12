package sandbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const secret = "sandbox-secret"

// strictOptions name every credential, so that a wrong one is refused.
func strictOptions() Options {
	return Options{MandateToken: "token-1", PortalKey: "portal-1", ChecksumSecret: secret, MailKey: "key-1", PublicURL: "http://sandbox.test"}
}

func newSandbox(t testing.TB, o Options) *Sandbox {
	t.Helper()
	s := New(o)
	t.Cleanup(s.Close)
	return s
}

// instant makes mail appear in the log at once.
func instant(t testing.TB, s *Sandbox) *Sandbox {
	t.Helper()
	set(t, s, func(v *Settings) { v.LogDelay = 0 })
	return s
}

func set(t testing.TB, s *Sandbox, change func(*Settings)) {
	t.Helper()
	if err := s.Set(change); err != nil {
		t.Fatal(err)
	}
}

// request is a call with every credential.
func request(method, path, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if strings.HasPrefix(path, "/_sandbox/") {
		r.Host = "127.0.0.1"
	}
	r.Header.Set("Authorization", "Bearer token-1")
	r.Header.Set("X-API-Key", "key-1")
	r.Header.Set("Content-Type", "application/json")
	return r
}

func do(s http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// ask makes a call in memory and decodes the answer's JSON.
func ask(t testing.TB, s http.Handler, method, path, body string) (int, map[string]any) {
	t.Helper()
	w := do(s, request(method, path, body))
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatalf("%s %s answered %d with %q: %v", method, path, w.Code, w.Body, err)
	}
	return w.Code, got
}

// must is ask for a call that has to succeed.
func must(t testing.TB, s http.Handler, method, path, body string) map[string]any {
	t.Helper()
	status, got := ask(t, s, method, path, body)
	if status != http.StatusOK {
		t.Fatalf("%s %s %s answered %d %v", method, path, body, status, got)
	}
	return got
}

// fields are the values of a JSON object to be posted.
type fields map[string]any

func (f fields) with(name string, value any) fields {
	f = maps.Clone(f)
	f[name] = value
	return f
}

func (f fields) without(name string) fields {
	f = maps.Clone(f)
	delete(f, name)
	return f
}

func (f fields) String() string {
	body, _ := json.Marshal(f)
	return string(body)
}

func enrollment1() fields {
	return fields{
		"portal_key": "portal-1", "order_number": "DD1", "amount": 100, "payer_id_type": 1, "payer_id": "900101011234",
		"payer_name": "Test Payer", "payer_email": "payer@example.test", "payer_telephone_number": 60190000000,
		"frequency_mode": "MT", "application_reason": "Enrollment for DD1",
	}
}

func message1() fields {
	return fields{"to": []string{"a@example.test"}, "subject": "Notice", "as_html": 0, "content": "Hello"}
}

// many returns n different recipients.
func many(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("r%d@example.test", i)
	}
	return list
}

// dig walks into decoded JSON: names of members, indices of elements.
func dig(t testing.TB, value any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			object, _ := value.(map[string]any)
			value = object[step]
		case int:
			array, _ := value.([]any)
			if step >= len(array) {
				t.Fatalf("no element %d in %v", step, value)
			}
			value = array[step]
		}
	}
	return value
}

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestCallsWithoutTheirCredentialAreRefused(t *testing.T) {
	s := newSandbox(t, strictOptions())
	for path, method := range map[string]string{
		"/v3/mandates": "POST", "/api/v2/mandates": "POST", "/v3/mandates/transactions": "GET",
		"/api/v0/messages": "POST", "/api/v0/logs": "GET", "/api/v0/user": "GET",
	} {
		for name, spoil := range map[string]func(http.Header){
			"missing": func(h http.Header) { h.Del("Authorization"); h.Del("X-API-Key") },
			"wrong":   func(h http.Header) { h.Set("Authorization", "Bearer other"); h.Set("X-API-Key", "other") },
			"empty":   func(h http.Header) { h.Set("Authorization", "Bearer "); h.Set("X-API-Key", "") },
		} {
			r := request(method, path, "{}")
			spoil(r.Header)
			equal(t, path+" with "+name+" credential", do(s, r).Code, http.StatusUnauthorized)
		}
	}
	open := newSandbox(t, Options{})
	equal(t, "any token where none is configured", do(open, request("GET", "/v3/mandates/transactions", "")).Code, http.StatusOK)
	r := request("GET", "/v3/mandates/transactions", "")
	r.Header.Del("Authorization")
	equal(t, "no token where none is configured", do(open, r).Code, http.StatusUnauthorized)
}

func TestCallsOfAWrongShapeAreRefused(t *testing.T) {
	s := newSandbox(t, strictOptions())
	for _, path := range []string{"/v3/mandates", "/api/v0/messages"} {
		r := request("POST", path, "{}")
		r.Header.Set("Content-Type", "text/plain")
		equal(t, path+" as text", do(s, r).Code, http.StatusUnsupportedMediaType)
		for _, body := range []string{"", "[]", "3", "null", "{", `{"a":1}}`, `{"a":}`} {
			equal(t, path+" with body "+body, do(s, request("POST", path, body)).Code, http.StatusBadRequest)
		}
		equal(t, path+" read", do(s, request("GET", path, "")).Code, http.StatusMethodNotAllowed)
	}
	equal(t, "POST of the log", do(s, request("POST", "/api/v0/logs", "{}")).Code, http.StatusMethodNotAllowed)
	equal(t, "unknown mandate path", do(s, request("GET", "/v3/nothing", "")).Code, http.StatusNotFound)
	equal(t, "unknown mail path", do(s, request("GET", "/api/v0/nothing", "")).Code, http.StatusNotFound)
	equal(t, "unknown page", do(s, request("GET", "/nothing", "")).Code, http.StatusNotFound)
}
