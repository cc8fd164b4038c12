package mail

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"errand/pkg/clients"
)

// answering is an upstream that gives one answer to everything.
type answering struct {
	status int
	header http.Header
	body   string
}

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: a.status, Header: a.header, ContentLength: -1, Body: io.NopCloser(strings.NewReader(a.body)),
		Request: r}, nil
}

// FuzzAnswer gives any answer under any status to the three operations: only an envelope
// without error under a 2xx counts; what is known of any other is one of the fates, given
// without a word of the answer where it is printed. A page of the log is read whole.
func FuzzAnswer(f *testing.F) {
	row := `{"created_at":"2026-01-01T00:00:00Z","envelope_id":"e","to":"zqMark@example.test","delivered":1,"status":"{\"delivered\":true}"}`
	for _, body := range []string{`{"error":false,"status_code":200,"data":{"total_recipient":1}}`,
		`{"error":false,"status_code":200,"data":{"total_recipient":-1}}`, `{"error":false,"status_code":200,"data":{"total_recipient":1e3}}`,
		`{"error":true,"status_code":200,"data":{"total_recipient":1}}`, `{"error":false,"status_code":422,"data":{"total_recipient":1}}`,
		`{"error":true,"status_code":1e999,"message":"zqMark"}`, `{"error":"no","status_code":"429"}`, "", "null", "[]", "\xff",
		`{"error":false,"status_code":200,"data":{"data":[` + row +
			`,null,7,"x"],"total_record":9e99,"limit":-1}}`, `{"error":false,"status_code":200,"data":{"data":null}}`,
		`{"error":true,"message":{"to":["zqMark"]},"data":{}}`, strings.Repeat("[", 20_000)} {
		for _, status := range []int{200, 204, 301, 400, 401, 403, 422, 429, 500, 503} {
			f.Add(uint16(status), body, "99999999999999999999")
		}
	}
	f.Fuzz(func(t *testing.T, status uint16, body, after string) {
		from := answering{200 + int(status)%400, http.Header{"Retry-After": {after}}, body}
		c, err := New(Config{URL: "http://127.0.0.1:1", Key: clients.NewSecret(key)}, clients.Transport(from))
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := c.Send(t.Context(), encoded(t, notice), one)
		judged(t, from, err)
		if err == nil && accepted < 0 {
			t.Fatalf("%+v: %d accepted", from, accepted)
		}
		page, err := c.LogPage(t.Context(), 1, 10)
		judged(t, from, err)
		if err == nil && page.Limit < 0 {
			t.Fatalf("%+v: %+v", from, page)
		}
		account, err := c.Account(t.Context())
		judged(t, from, err)
		if err == nil && !json.Valid(account) {
			t.Fatalf("%+v: %s", from, account)
		}
	})
}

func judged(t *testing.T, from answering, err error) {
	t.Helper()
	if err == nil {
		var envelope struct{ Error any }
		if bad := json.Unmarshal([]byte(strings.ToValidUTF8(from.body, "?")), &envelope); from.status > 299 || bad != nil ||
			envelope.Error == true {
			t.Fatalf("%+v counts as a success", from)
		}
		return
	}
	var failed *clients.Error
	if !errors.As(err, &failed) || failed.Fate == clients.Success || strings.Contains(err.Error(), "zqMark") || failed.RetryAfter < 0 ||
		failed.RetryAfter > 24*time.Hour {
		t.Fatalf("%+v: %T %v", from, err, err)
	}
	if !utf8.ValidString(failed.Message) || utf8.RuneCountInString(failed.Message) > 500 || strings.ContainsAny(failed.Message, "\r\n\x00") {
		t.Fatalf("%+v: message %q", from, failed.Message)
	}
}
