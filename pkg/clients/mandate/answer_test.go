package mandate

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"errand/pkg/clients"
)

// seed adds the fixtures whose names match as a corpus.
func seed(f *testing.F, pattern string) {
	names, err := filepath.Glob("testdata/" + pattern)
	if err != nil || len(names) == 0 {
		f.Fatalf("no fixture %s: %v", pattern, err)
	}
	for _, name := range names {
		body, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
}

func FuzzEnrolled(f *testing.F) {
	seed(f, "enroll.response*.json")
	f.Fuzz(func(t *testing.T, body []byte) {
		if url, _, ok := readEnrolled(body); ok && (url == "" || !json.Valid(body)) {
			t.Errorf("%q is taken for an answer with url %q", body, url)
		}
	})
}

func FuzzTransactionsPage(f *testing.F) {
	seed(f, "transactions.response*.json")
	f.Fuzz(func(t *testing.T, body []byte) {
		page, ok := readPage(body, 1)
		if ok && (page.Number != 1 || page.LastPage < 0 || page.Total < 0 || page.Records == nil) || !ok && page.More || page.More &&
			len(page.Records) == 0 {
			t.Errorf("%q: got %+v, %t, %t", body, page, page.More, ok)
		}
		for _, record := range page.Records {
			if !json.Valid(record) {
				t.Errorf("record %q", record)
			}
		}
	})
}

func FuzzRefusal(f *testing.F) {
	seed(f, "enroll.*4*.json")
	f.Fuzz(func(t *testing.T, body []byte) {
		r := failure(body)
		if r.Complete || r.Envelope != nil {
			t.Errorf("%q: got %+v", body, r)
		}
	})
}

func BenchmarkEnroll(b *testing.B) {
	answer := golden(b, "enroll.response.json")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) }))
	defer server.Close()
	c, err := New(Config{
		URL: server.URL, Token: clients.NewSecret(token), PortalKey: clients.NewSecret(portalKey), ChecksumSecret: clients.NewSecret(signing),
	})
	if err != nil {
		b.Fatal(err)
	}
	e := enrollment(b, "enroll.request.json")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Enroll(b.Context(), e); err != nil {
			b.Fatal(err)
		}
	}
}
