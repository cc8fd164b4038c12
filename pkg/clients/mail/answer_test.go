package mail

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"errand/pkg/clients"
	"errand/pkg/messages"

	"github.com/google/go-cmp/cmp"
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

func FuzzSent(f *testing.F) {
	seed(f, "send.[rbhu]*[a-z0-9].json")
	for _, body := range []string{` {"error":false,"status_code":200,"message":"OK","data":{"total_recipient":2}}`,
		`{"error":true,"error":false,"status_code":204,"data":{"total_recipient":1},"data":{"more":[]}}`,
		`{"error":false,"status_code":200,"data":{"total_recipient":2,"total_recipient":null}}`,
		`{"error":false,"status_code":200,"data":{"total_recipient":2},"data":null}`,
		`{"error":false,"Error":true,"status_code":200,"data":{"total_recipient":2,"Total_Recipient":3}}`,
		`{"error":false,"error":null,"status_code":200,"status_code":"422","data":{"total_recipient":2}}`,
		`{"error":false,"status_code":200,"status_code":{},"data":{"total_recipient":2}}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		accepted := 0
		r := readSent(200, body, &accepted)
		if r.Complete && (accepted < 0 || r.Envelope.Error || !json.Valid(body)) {
			t.Errorf("%q is taken for a success with %d accepted", body, accepted)
		}
		if readSent(422, body, &accepted).Complete {
			t.Errorf("%q under 422 is taken for a success", body)
		}
	})
}

func FuzzLogPage(f *testing.F) {
	seed(f, "logs.*.json")
	f.Fuzz(func(t *testing.T, body []byte) {
		open(200, body, func(data *logData) bool {
			if data == nil {
				return false
			}
			page := readLog(data)
			if len(page.Entries) != len(data.Data) || page.Limit < 0 {
				t.Errorf("%q: got %+v", body, page)
			}
			return true
		})
	})
}

func FuzzEntry(f *testing.F) {
	for _, row := range sampleRows {
		f.Add([]byte(row))
	}
	f.Fuzz(func(t *testing.T, row []byte) {
		if !json.Valid(row) {
			return // what is read was found valid with its page
		}
		if want, got := readPlainly(row), ReadEntry(row); !reflect.DeepEqual(want, got) {
			t.Errorf("%q (-want +got):\n%s", row, cmp.Diff(want, got))
		}
	})
}

func BenchmarkSendAThousand(b *testing.B) {
	answer := golden(b, "send.response.json")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) }))
	defer server.Close()
	c, err := New(Config{URL: server.URL, Key: clients.NewSecret(key)})
	if err != nil {
		b.Fatal(err)
	}
	m, to := encoded(b, notice), slices.Repeat(one, messages.MaxBatch)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Send(b.Context(), m, to); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLogPage(b *testing.B) {
	var one struct {
		Data struct{ Data []json.RawMessage }
	}
	if err := json.Unmarshal(golden(b, "logs.response.json"), &one); err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{100, 1000} {
		rows, err := json.Marshal(slices.Repeat(one.Data.Data, n))
		if err != nil {
			b.Fatal(err)
		}
		body := fmt.Appendf(nil, `{"error":false,"status_code":200,"data":{"total_record":%d,"data":%s}}`, n, rows)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r := open(200, body, func(data *logData) bool { return len(readLog(data).Entries) == n }); !r.Complete {
					b.Fatal("the page is not whole")
				}
			}
		})
	}
}
