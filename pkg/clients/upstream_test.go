package clients

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestAnOriginIsCheckedAndNamedInTheError(t *testing.T) {
	for _, c := range []struct {
		url     string
		options []Option
		want    string // "" for no error
	}{
		{"https://upstream.example.test", nil, ""},
		{"https://upstream.example.test:8443/below/", nil, ""},
		{"http://127.0.0.1:8080", nil, ""},
		{"http://[::1]:8080", nil, ""},
		{"http://localhost", nil, ""},
		{"http://upstream.example.test", []Option{AllowPlainHTTP()}, ""},
		{"http://upstream.example.test", nil, "allow plain http explicitly"},
		{"http://127.0.0.1.example.test", nil, "allow plain http explicitly"},
		{"http://localhost.example.test", nil, "allow plain http explicitly"},
		{"", nil, "absolute https://"},
		{"upstream.example.test", nil, "absolute https://"},
		{"ftp://upstream.example.test", nil, "absolute https://"},
		{"https://", nil, "absolute https://"},
		{"https://upstream.example.test/ ", nil, "absolute https://"}, // each call would be a 404
		{"https://user:s3cret@upstream.example.test", nil, "no user"},
		{"https://upstream.example.test?key=s3cret", nil, "no user, query"},
		{"https://upstream.example.test/%zz?key=s3cret", nil, "absolute https://"},
		{"https://upstream.example.test", []Option{Timeout(0)}, "Timeout must be positive"},
		{"https://upstream.example.test", []Option{MaxConns(-1)}, "MaxConns must be positive"},
	} {
		_, err := NewUpstream(Origin{Field: "test: URL", URL: c.url}, c.options...)
		got := fmt.Sprint(err)
		if c.want == "" && err != nil || !strings.Contains(got, c.want) {
			t.Errorf("NewUpstream(%q): got %q, want %q", c.url, got, c.want)
		}
		if strings.Contains(got, "s3cret") {
			t.Errorf("NewUpstream(%q) shows a secret: %s", c.url, got)
		}
	}
}

func TestAKeyThatCannotBeSentIsRefused(t *testing.T) {
	for _, key := range []string{"two words", "line\nbreak", "schlüssel"} {
		_, err := NewUpstream(Origin{URL: "https://upstream.example.test", Header: map[string]Secret{"X-Key": NewSecret(key)}})
		if err == nil || strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "X-Key") {
			t.Errorf("key %q: got %v, want an error that names the header only", key, err)
		}
	}
}

func TestNothingPrintsTheKeysOfAnUpstream(t *testing.T) {
	u, err := NewUpstream(Origin{
		URL: "https://upstream.example.test", Header: map[string]Secret{"X-Key": NewSecret("s3cret-key")},
		Secrets: []Secret{NewSecret("s3cret-other")},
	}, Timeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []any{u, struct{ u *Upstream }{u}, []*Upstream{u}} {
		for form, text := range printed(t, value) {
			if strings.Contains(text, "s3cret") {
				t.Errorf("by %s: %s", form, text)
			}
		}
	}
}
