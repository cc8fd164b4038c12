package clients

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// echoing opens an upstream that answers 401 and quotes all that it was sent, and more.
func echoing(t *testing.T, more *string, origin Origin) *Upstream {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"message":"%s %s %s"}`, r.Header.Get("X-Key"), *more, "who are you")
	}))
	t.Cleanup(web.Close)
	origin.Field, origin.URL = "URL", web.URL
	u, err := NewUpstream(origin)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func refusal(t *testing.T, u *Upstream) string {
	t.Helper()
	err := u.Exchange(t.Context(), Request{Operation: "x", Method: "GET", Path: "/"}, func(_ int, body []byte) Reading {
		message, fields := ParseError(body)
		return Reading{Message: message, Fields: fields}
	})
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("got %v, want a refusal", err)
	}
	return e.Message
}

func keys(key string) map[string]Secret { return map[string]Secret{"X-Key": NewSecret(key)} }

func TestARenewedKeyIsSentAndNeitherIsTold(t *testing.T) {
	more := "old-key-0001 old-signature-0001 new-key-0002 new-signature-0002"
	u := echoing(t, &more, Origin{Header: keys("old-key-0001"), Secrets: []Secret{NewSecret("old-signature-0001")}})
	if got := refusal(t, u); strings.Contains(got, "old-") || !strings.Contains(got, "new-key") {
		t.Errorf("before: %q", got)
	}
	if err := u.SetCredentials(keys("new-key-0002"), NewSecret("new-signature-0002")); err != nil {
		t.Fatal(err)
	}
	if got := refusal(t, u); strings.Contains(got, "-000") || !strings.Contains(got, "who are you") {
		t.Errorf("after: %q", got)
	}
	if got := u.header.Load().Get("X-Key"); got != "new-key-0002" {
		t.Errorf("it sends %q", got)
	}
	if got := fmt.Sprintf("%v %+v %#v %s", u, u, struct{ U *Upstream }{u}, u); strings.Contains(got, "-000") {
		t.Errorf("printed it is %q", got)
	}
}

// A key that no header can carry is refused, and what was there stays.
func TestARenewalThatCannotBeSentChangesNothing(t *testing.T) {
	more := "old-key-0001"
	u := echoing(t, &more, Origin{Header: keys("old-key-0001")})
	if err := u.SetCredentials(keys("new key")); err == nil || strings.Contains(err.Error(), "new key") {
		t.Errorf("got %v, want an error that does not quote the key", err)
	}
	if got := u.header.Load().Get("X-Key"); got != "old-key-0001" {
		t.Errorf("it sends %q", got)
	}
	if got := refusal(t, u); strings.Contains(got, "old-") {
		t.Errorf("it says %q", got)
	}
}

// A program that runs for years does not remember every key that it ever had.
func TestTheKeysThatAreRememberedAreBounded(t *testing.T) {
	more := ""
	u := echoing(t, &more, Origin{Header: keys("key-first-of-all")})
	for n := range 2 * maxKnown {
		if err := u.SetCredentials(keys(fmt.Sprint("key-number-", n))); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(u.secrets.Load().all); n != maxKnown {
		t.Errorf("%d keys are remembered, want %d", n, maxKnown)
	}
	more = fmt.Sprint("key-number-", maxKnown+1)
	if got := refusal(t, u); strings.Contains(got, "key-number") {
		t.Errorf("one of the last keys is shown: %q", got)
	}
}
