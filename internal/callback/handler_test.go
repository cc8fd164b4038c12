package callback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/bus"
	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

const (
	secretText = "0123456789abcdef0123456789abcdef"
	formerText = "fedcba9876543210fedcba9876543210"
	signText   = "signing-secret"
)

// inbox is a Handler and what it stored.
type inbox struct {
	Handler
	stored []*messages.CallbackBody
	err    error
}

func newInbox() *inbox {
	in := &inbox{}
	in.Secrets = []clients.Secret{clients.NewSecret(secretText), clients.NewSecret(formerText)}
	in.Checksum = clients.NewSecret(signText)
	in.Store = func(_ context.Context, request string, b *messages.CallbackBody) error {
		if in.err == nil {
			b.RequestID = request
			in.stored = append(in.stored, b)
		}
		return in.err
	}
	return in
}

func (in *inbox) send(method, target, contentType string, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, body)
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	in.ServeHTTP(w, r)
	return w
}

func addressOf(t *testing.T, secret, id string) string {
	t.Helper()
	of, err := ReturnURL("https://callbacks.example.com/mandates/", false, clients.NewSecret(secret))
	if err != nil {
		t.Fatal(err)
	}
	return of(id)
}

func TestACallbackIsStoredAsItWasSent(t *testing.T) {
	in := newInbox()
	for _, c := range []struct {
		method, query, contentType, body string
		want                             messages.CallbackBody
	}{
		{"POST", "", "application/json", `{"status":"3"}`, messages.CallbackBody{ContentType: "application/json", Body: `{"status":"3"}`,
			Encoding: "text", Checksum: "absent"}},
		{"POST", "", "application/x-www-form-urlencoded", "status=3", messages.CallbackBody{ContentType: "application/x-www-form-urlencoded",
			Body: "status=3", Encoding: "text", Checksum: "absent"}},
		{"GET", "status=3", "", "", messages.CallbackBody{Query: "status=3", Checksum: "absent"}},
		{"GET", "", "", "", messages.CallbackBody{Checksum: "absent"}},
		{"GET", "name=Jos\xe9", "", "", messages.CallbackBody{Query: "name=Jos%E9", Checksum: "absent"}},
		{"GET", "name=José", "", "", messages.CallbackBody{Query: "name=José", Checksum: "absent"}},
		{"POST", "", "image/png", "\xff\xfe", messages.CallbackBody{ContentType: "image/png", Body: "//4=", Encoding: "base64",
			Checksum: "unknown"}},
		{"POST", "", "text/plain", "a\x00", messages.CallbackBody{ContentType: "text/plain", Body: "YQA=", Encoding: "base64",
			Checksum: "unknown"}},
		{"POST", "", "application/json", `{"a":`, messages.CallbackBody{ContentType: "application/json", Body: `{"a":`, Encoding: "text",
			Checksum: "unknown"}},
		{"POST", "", "application/json", `{"a":{"checksum":"x"}}`, messages.CallbackBody{ContentType: "application/json",
			Body: `{"a":{"checksum":"x"}}`, Encoding: "text", Checksum: "unknown"}},
	} {
		secret, id := secretText, "order-1"
		if c.method == "GET" { // as made before the secret was replaced
			secret, id = formerText, "MANDATE_REQUESTS-17"
		}
		target := addressOf(t, secret, id)
		if c.query != "" {
			target += "?" + c.query
		}
		if w := in.send(c.method, target, c.contentType, strings.NewReader(c.body)); w.Code != 200 {
			t.Fatalf("%s %q: %d, want 200", c.method, c.body, w.Code)
		}
		got := *in.stored[len(in.stored)-1]
		if len(got.Digest) != 64 {
			t.Errorf("%s %q: digest %q", c.method, c.body, got.Digest)
		}
		c.want.Common, c.want.Method, c.want.Bytes, c.want.Digest = messages.Common{RequestID: id}, c.method, len(c.body), got.Digest
		if got != c.want {
			t.Errorf("%s %q:\n got %+v\nwant %+v", c.method, c.body, got, c.want)
		}
	}
	seen := map[string]bool{}
	for _, b := range in.stored {
		seen[b.Digest] = true
	}
	if len(seen) != len(in.stored) {
		t.Errorf("%d digests for %d different callbacks", len(seen), len(in.stored))
	}
}

func TestTheChecksumOfACallbackIsChecked(t *testing.T) {
	right := mandate.Sign(clients.NewSecret(signText), "10.50", "", "3", "true")
	odd := mandate.Sign(clients.NewSecret(signText), `Zoë <O'Neill> "&" |`)
	for _, c := range []struct {
		contentType, body string
		want              messages.CallbackChecksum
	}{
		{"application/json", `{"a":10.50,"b":null,"c":" 3 ","d":true,"checksum":"` + right + `"}`, "valid"},
		{"application/json", `{"a":"Zo\u00eb \u003cO'Neill\u003e \"\u0026\" |","checksum":"` + odd + `"}`, "valid"},
		{"text/plain", `{"d":true,"c":"3","b":"","a":"10.50","checksum":"` + right + `"}`, "valid"},
		{"application/x-www-form-urlencoded; charset=utf-8", "a=10.50&b=&c=3&d=true&checksum=" + right, "valid"},
		{"application/x-www-form-urlencoded", "a=10.51&b=&c=3&d=true&checksum=" + right, "invalid"},
		{"application/x-www-form-urlencoded", "a=1&a=2&checksum=" + right, "unknown"},
		{"application/json", `{"a":10.5,"b":null,"c":"3","d":true,"checksum":"` + right + `"}`, "invalid"},
		{"application/json", `{"checksum":""}`, "invalid"},
		{"application/json", `[]`, "unknown"},
		{"application/json", `null`, "unknown"},
		{"application/json", `{"a":1}{"b":1}`, "unknown"},
		{"application/json", `{"a":"` + "\xff" + `","checksum":"x"}`, "unknown"},
		{"application/x-www-form-urlencoded", "\x1f\x8b=1", "unknown"},
		{"application/json", `{"a":` + strings.Repeat("[", maxBody-5), "unknown"},
		{"application/json", `{"checksum":"x","a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}", "unknown"},
	} {
		if got := checksum(clients.NewSecret(signText), c.contentType, "", []byte(c.body)); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.contentType, c.body, got, c.want)
		}
	}
	if got := checksum(clients.Secret{}, "", "checksum=x", nil); got != messages.ChecksumUnknown {
		t.Errorf("without a secret: %s, want unknown", got)
	}
}

// unread fails the test when it is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was looked at")
	return 0, io.EOF
}

func TestAForeignTokenIsNotFoundAndNothingElseIsLookedAt(t *testing.T) {
	in := newInbox()
	own := addressOf(t, secretText, "order-1")
	for _, target := range []string{
		"https://h/", "https://h/order-1", "https://h/order-1/", own[:len(own)-1], own + "/", own + "x",
		strings.Replace(own, "order-1", "order-2", 1), strings.Replace(own, "order-1", "Order-1", 1), strings.Replace(own, "order-1", "", 1),
		addressOf(t, "another secret, of 32 characters or more", "order-1"), "https://h/order-1/%00", "https://h//" +
			own[strings.LastIndex(own, "/")+1:],
	} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			if w := in.send(method, target, "", unread{t}); w.Code != 404 {
				t.Errorf("%s %s: %d, want 404", method, target, w.Code)
			}
		}
	}
	if len(in.stored) > 0 || len(in.limits) > 0 {
		t.Errorf("%d stored, %d remembered; want none", len(in.stored), len(in.limits))
	}
	// The ingress may leave out the path of the base, or put another before it.
	for _, target := range []string{"/order-1" + own[strings.LastIndex(own, "/"):], "/a/b/c/order-1" + own[strings.LastIndex(own, "/"):]} {
		if w := in.send("POST", target, "", strings.NewReader(target)); w.Code != 200 {
			t.Errorf("%s: %d, want 200", target, w.Code)
		}
	}
}

func TestWhatCannotBeTakenIsRefused(t *testing.T) {
	own := addressOf(t, secretText, "order-1")
	for _, c := range []struct {
		name, method, target string
		body                 io.Reader
		err                  error
		want                 int
		header, value        string
	}{
		{"another method", "PUT", own, unread{t}, nil, 405, "Allow", "GET, POST"},
		{"a long query", "GET", own + "?" + strings.Repeat("q", maxQuery+1), unread{t}, nil, 414, "", ""},
		{"a large body", "POST", own, strings.NewReader(strings.Repeat("b", maxBody+1)), nil, 413, "", ""},
		{"the largest body", "POST", own, strings.NewReader(strings.Repeat("b", maxBody)), nil, 200, "", ""},
		{"a cut body", "POST", own, io.MultiReader(strings.NewReader("b"), broken{}), nil, 400, "", ""},
		{"as many as are kept", "POST", own, strings.NewReader(""), bus.ErrManyCallbacks, 429, "Retry-After", "5"},
		{"NATS is away", "POST", own, strings.NewReader(""), errors.New("no acknowledgement"), 503, "Retry-After", "5"},
	} {
		in := newInbox()
		in.err = c.err
		var answered []string
		in.Answered = func(request string, status int) { answered = append(answered, fmt.Sprint(request, " ", status)) }
		w := in.send(c.method, c.target, "", c.body)
		if w.Code != c.want || c.header != "" && w.Header().Get(c.header) != c.value ||
			!slices.Equal(answered, []string{fmt.Sprint("order-1 ", c.want)}) {
			t.Errorf("%s: %d %v, answered %v; want %d", c.name, w.Code, w.Header(), answered, c.want)
		}
		if (len(in.stored) > 0) != (c.want == 200) {
			t.Errorf("%s: %d stored", c.name, len(in.stored))
		}
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestOneRequestCannotKeepTheOthersAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInbox()
		taken := 0
		for range 100 {
			if in.send("POST", addressOf(t, secretText, "order-1"), "", strings.NewReader("")).Code == 200 {
				taken++
			}
		}
		if taken != burst {
			t.Errorf("%d of one request at once, want %d", taken, burst)
		}
		if w := in.send("POST", addressOf(t, secretText, "order-2"), "", strings.NewReader("")); w.Code != 200 {
			t.Errorf("another request: %d, want 200", w.Code)
		}
		time.Sleep(3 * time.Second / perRequest)
		for range 5 {
			if in.send("POST", addressOf(t, secretText, "order-1"), "", strings.NewReader("")).Code == 200 {
				taken++
			}
		}
		if taken != burst+3 {
			t.Errorf("%d after three seconds, want %d", taken, burst+3)
		}
	})
}

// slow is a body that comes when it is closed.
type slow struct{ come chan struct{} }

func (s slow) Read([]byte) (int, error) {
	<-s.come
	return 0, io.EOF
}

func TestMemoryIsBoundedHoweverSlowlyCallbacksCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, come := newInbox(), make(chan struct{})
		in.Store = func(context.Context, string, *messages.CallbackBody) error { return nil }
		codes := make(chan int, 2*maxPlaces)
		for i := range 2 * maxPlaces {
			go func() {
				codes <- in.send("POST", addressOf(t, secretText, "order-"+string(rune('a'+i%26))+strings.Repeat("x", i/26)), "", slow{come}).Code
			}()
		}
		synctest.Wait()
		for range maxPlaces {
			if code := <-codes; code != http.StatusServiceUnavailable {
				t.Fatalf("beyond %d: %d, want 503", maxPlaces, code)
			}
		}
		close(come)
		for range maxPlaces {
			if code := <-codes; code != 200 {
				t.Fatalf("one that was slow: %d, want 200", code)
			}
		}
	})
}

func TestAnEventHoldsNothingOfThePayerWhereItMustNot(t *testing.T) {
	in := newInbox()
	in.WithoutPayer = true
	in.send("POST", addressOf(t, secretText, "order-1")+"?name=zqMark", "zqMark/json", strings.NewReader(`{"payer_name":"zqMark"}`))
	data, err := messages.Event{Operation: messages.Callback, State: messages.Received, ID: "order-1", Body: in.stored[0]}.Encode()
	if err != nil || strings.Contains(string(data), "zqMark") || !strings.Contains(string(data), `"bytes":23,`) {
		t.Errorf("%s, %v", data, err)
	}
}

func TestAnAddressThatIsNotSafeIsRefused(t *testing.T) {
	secret := clients.NewSecret(secretText)
	for base, want := range map[string]bool{"https://a.example": true, "https://a.example/b/": true, "http://127.0.0.1:8088": true,
		"http://localhost": true,
		"http://a.example": false, "a.example": false, "https://": false, "ftp://a.example": false, "https://u:p@a.example": false,
		"https://a.example?q": false, "https://a.example#f": false, "https://a b": false,
		"https://a.example/b?": false, "https://a.example/b#": false, "https://:8090": false, "https://a.example/b c": false,
		"https://a.example/%zz": false, "https://a.example/b ": false} {
		if _, err := ReturnURL(base, false, secret); (err == nil) != want {
			t.Errorf("%s: %v", base, err)
		}
	}
	if _, err := ReturnURL("http://a.example", true, secret); err != nil {
		t.Error(err)
	}
}
