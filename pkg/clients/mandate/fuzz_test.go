package mandate

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

// FuzzAnswer gives any answer under any status: only a 2xx that holds a url counts as
// enrolled; what is known of any other is one of four fates, given without a word of
// the answer where it is printed, and with its words cut where they belong to an event.
func FuzzAnswer(f *testing.F) {
	for _, body := range []string{`{"url":"https://example.test/enroll/1","order_number":"DD001"}`, `{"url":""}`, `{"url":7}`,
		`{"url":"x","url":""}`, "", "null", "[]", "\xff", `{"message":"zqMark\u0000\r\n"}`,
		`{"errors":{"payer_id":["zqMark"]}}`, `{"error":"` + strings.Repeat("zqMark", 200) +
			`"}`, strings.Repeat("[", 20_000), `{"message":1e999}`} {
		for _, status := range []int{200, 201, 204, 301, 400, 401, 402, 403, 404, 408, 422, 425, 429, 500, 503, 599} {
			f.Add(uint16(status), body, "Retry-After", "99999999999999999999")
		}
	}
	f.Add(uint16(200), `{"url":"u"}`, "Content-Encoding", "gzip")
	f.Add(uint16(503), "", "Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT")
	f.Add(uint16(429), "", "Retry-After", "-1")
	f.Fuzz(func(t *testing.T, status uint16, body, name, value string) {
		const mark = "zqMark"
		from := answering{200 + int(status)%400, http.Header{name: {value}}, body}
		c, err := New(Config{URL: "http://127.0.0.1:1", Token: clients.NewSecret(token), PortalKey: clients.NewSecret(portalKey)},
			clients.Transport(from))
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Enroll(t.Context(), Enrollment{OrderNumber: "DD001", Amount: "100", PayerIDType: "1", PayerID: json.RawMessage(`"9"`),
			PayerTelephoneNumber: json.RawMessage(`"9"`)})
		if err == nil {
			if from.status > 299 || got.URL == "" || !json.Valid(got.Body) || strings.EqualFold(name, "Content-Encoding") && value != "" &&
				!strings.EqualFold(value, "identity") && http.CanonicalHeaderKey(name) == name {
				t.Fatalf("%+v counts as enrolled: %+v", from, got)
			}
			return
		}
		var failed *clients.Error
		if !errors.As(err, &failed) || failed.Fate == clients.Success || failed.Fate == clients.Busy && from.status < 400 ||
			failed.Fate == clients.Refused && (from.status < 400 || from.status > 499) {
			t.Fatalf("%+v: %T %v", from, err, err)
		}
		if strings.Contains(err.Error(), mark) || failed.RetryAfter < 0 || failed.RetryAfter > 24*time.Hour {
			t.Fatalf("%+v: %v, again after %v", from, err, failed.RetryAfter)
		}
		texts := []string{failed.Message}
		for field, said := range failed.Fields {
			texts = append(append(texts, field), said...)
		}
		for _, text := range texts {
			if !utf8.ValidString(text) || utf8.RuneCountInString(text) > 500 || strings.ContainsAny(text, "\r\n\x00") {
				t.Fatalf("%+v: text %q", from, text)
			}
		}
	})
}
