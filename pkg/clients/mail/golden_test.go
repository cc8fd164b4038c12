package mail

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"errand/pkg/clients"

	"github.com/google/go-cmp/cmp"
)

const key = "key-of-the-test"

// arrived is one request as the upstream saw it.
type arrived struct {
	Line   string // method and target
	Header map[string]string
	Body   string
}

// fake is an upstream that keeps what arrived and answers by number of the call, the last answer for ever.
type fake struct {
	*httptest.Server
	arrived []arrived
}

func newFake(t *testing.T, status int, answers ...[]byte) *fake {
	t.Helper()
	f := &fake{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		header := map[string]string{}
		for name, values := range r.Header {
			if name != "Content-Length" {
				header[name] = values[0]
			}
		}
		f.arrived = append(f.arrived, arrived{r.Method + " " + r.RequestURI, header, string(body)})
		w.WriteHeader(status)
		_, _ = w.Write(answers[min(len(f.arrived), len(answers))-1])
	}))
	t.Cleanup(f.Close)
	return f
}

// sentHeader is every header a call may have.
var sentHeader = map[string]string{
	"Accept":       "application/json",
	"Content-Type": "application/json",
	"User-Agent":   "errand",
	"X-Api-Key":    key,
}

func client(t *testing.T, f *fake, headersAsList bool) *Client {
	t.Helper()
	c, err := New(Config{URL: f.URL, Key: clients.NewSecret(key), HeadersAsList: headersAsList}, clients.Timeout(5*time.Second))
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

func encoded(t testing.TB, m Message) Encoded {
	t.Helper()
	e, err := Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var (
	notice  = Message{Subject: "Notice DD001", Content: "100 is due."}
	headers = map[string]string{"X-Order": "DD001", "X-Campaign": "C1"}
	one     = []string{"payer@example.test"}
)

func TestAMessageIsSentAsTheDocumentShows(t *testing.T) {
	withHeaders := notice
	withHeaders.Headers = headers
	full := Message{
		From: "Test Sender <sender@example.test>", ReplyTo: "bounce@example.test",
		UnsubscribeLink: "https://shop.example.test/unsubscribe?id=1&list=2", Subject: "Notice DD001", AsHTML: 1,
		Content: "<p>Dear \"Test Payer\",\n100 is due.</p>", Headers: headers,
	}
	for fixture, c := range map[string]struct {
		message Message
		to      []string
		list    bool
	}{
		"send.request.json":              {full, []string{"payer@example.test", `"Test Payer" <other@example.test>`}, false},
		"send.request.required.json":     {notice, one, false},
		"send.request.headers-list.json": {withHeaders, one, true},
	} {
		f := newFake(t, 200, golden(t, "send.response.json"))
		accepted, err := client(t, f, c.list).Send(t.Context(), encoded(t, c.message), c.to)
		if err != nil || accepted != 2 {
			t.Errorf("%s: got %d, %v, want 2", fixture, accepted, err)
		}
		want := []arrived{{"POST /api/v0/messages", sentHeader, compacted(t, golden(t, fixture))}}
		if diff := cmp.Diff(want, f.arrived); diff != "" {
			t.Errorf("%s (-want +got):\n%s", fixture, diff)
		}
	}
}

func TestAnEncodedMessageServesEveryBatch(t *testing.T) {
	f := newFake(t, 200, golden(t, "send.response.json"))
	c, m := client(t, f, false), encoded(t, notice)
	odd := []string{"é@example.test", `"a\b" <x@example.test>`, "line\nbreak@example.test", "<&>@example.test", "bad\xff@example.test"}
	for _, to := range [][]string{one, odd, one} {
		if _, err := c.Send(t.Context(), m, to); err != nil {
			t.Fatal(err)
		}
	}
	if f.arrived[0].Body != f.arrived[2].Body {
		t.Errorf("the first batch was %s, the same later %s", f.arrived[0].Body, f.arrived[2].Body)
	}
	var got struct {
		Subject string
		To      []string
	}
	if err := json.Unmarshal([]byte(f.arrived[1].Body), &got); err != nil {
		t.Fatal(err)
	}
	odd[4] = "bad\uFFFD@example.test"
	if diff := cmp.Diff(odd, got.To); diff != "" || got.Subject != notice.Subject {
		t.Errorf("%q (-want +got):\n%s", got.Subject, diff)
	}
}
