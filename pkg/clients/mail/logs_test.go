package mail

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"errand/pkg/clients"
	"errand/pkg/messages"

	"github.com/google/go-cmp/cmp"
)

// entries is an answer with n entries from the first on.
func entries(first, n, total, limit int) []byte {
	var rows []string
	for i := range n {
		rows = append(rows, fmt.Sprintf(`{"envelope_id":"%d"}`, first+i))
	}
	return fmt.Appendf(nil, `{"error":false,"status_code":200,"data":{"data":[%s],"total_record":%d,"total_page":99,"limit":%d}}`,
		strings.Join(rows, ","), total, limit)
}

func TestALogPageIsAskedForAndReadAsTheDocumentShows(t *testing.T) {
	f := newFake(t, 200, golden(t, "logs.response.json"))
	got, err := client(t, f, false).LogPage(t.Context(), 3, 250)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]arrived{{"GET /api/v0/logs?limit=250&page=3", sentHeader, ""}}, f.arrived); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	raw := got.Entries[0].Raw
	got.Entries[0].Raw, got.Date = nil, time.Time{}
	want := LogPage{TotalRecord: 1, Limit: 100, Entries: []Entry{{
		CreatedAt: time.Date(2026, 1, 1, 4, 0, 5, 0, time.UTC), EnvelopeID: "19b77cfb4c0abcdef0", From: "sender@example.test",
		To: "payer@example.test", Delivered: true, Response: "250 2.0.0 OK",
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
	if !strings.Contains(string(raw), `"interface": "api"`) || !strings.Contains(string(raw), `"mx"`) {
		t.Errorf("the raw entry lost fields: %s", raw)
	}
}

func TestAPageHasTheUpstreamsTime(t *testing.T) {
	at := time.Date(2026, 1, 31, 23, 59, 60, 0, time.UTC)
	for _, c := range []struct {
		header []string
		want   time.Time
	}{
		{[]string{"Sun, 01 Feb 2026 00:00:00 GMT"}, at},
		{[]string{"Sunday, 01-Feb-26 00:00:00 GMT"}, at}, // the forms of old that RFC 9110 has readers accept
		{[]string{"Sun Feb  1 00:00:00 2026"}, at},
		{[]string{"Sun, 01 Feb 2026 00:00:00 GMT", "Mon, 02 Feb 2026 00:00:00 GMT"}, at},
		{[]string{"Sun, 01 Feb 2026 08:00:00 +0800"}, time.Time{}}, // not in its form: no time rather than a guess
		{[]string{"2026-02-01T00:00:00Z"}, time.Time{}},
		{[]string{"soon"}, time.Time{}},
		{[]string{""}, time.Time{}},
		{nil, time.Time{}},
	} {
		from := answering{200, http.Header{"Date": c.header}, string(golden(t, "logs.response.json"))}
		client, err := New(Config{URL: "http://127.0.0.1:1", Key: clients.NewSecret(key)}, clients.Transport(from))
		if err != nil {
			t.Fatal(err)
		}
		page, err := client.LogPage(t.Context(), 1, 0)
		if err != nil || !page.Date.Equal(c.want) || len(page.Entries) != 1 {
			t.Errorf("Date %q: got %v with %d entries, %v, want %v", c.header, page.Date, len(page.Entries), err, c.want)
		}
	}
}

func TestAnEntryIsReadWhateverItsForm(t *testing.T) {
	for row, want := range map[string]Entry{
		`{"delivered":0,"status":{"delivered":false,"response":"550 no"}}`:    {Response: "550 no"},
		`{"delivered":true,"status":"{\"delivered\":1,\"response\":\"ok\"}"}`: {Delivered: true, Response: "ok"},
		`{"delivered":"1"}`:                                 {Delivered: true},
		`{"delivered":"true"}`:                              {Delivered: true},
		`{"delivered":"no"}`:                                {},
		`{"delivered":false}`:                               {},
		`{"delivered":null,"status":{"delivered":true}}`:    {Delivered: true},
		`{"status":{"delivered":"1"}}`:                      {Delivered: true},
		`{"delivered":1,"status":{"delivered":false}}`:      {},
		`{"delivered":0,"status":{"delivered":true}}`:       {},
		`{"delivered":1,"status":null}`:                     {Delivered: true},
		`{"delivered":1,"status":"queued"}`:                 {Delivered: true},
		`{"delivered":1,"status":7}`:                        {Delivered: true},
		`{"delivered":1,"status":{"response":7}}`:           {Delivered: true},
		`{"envelope_id":7,"to":"x@example.test"}`:           {To: "x@example.test"},
		`{"created_at":"2026-01-01T12:00:05.123+08:00"}`:    {CreatedAt: time.Date(2026, 1, 1, 4, 0, 5, 123e6, time.UTC)},
		`{"created_at":"2026-01-01T12:00:05+0800"}`:         {CreatedAt: time.Date(2026, 1, 1, 4, 0, 5, 0, time.UTC)},
		`{"created_at":"2026-01-01T04:00:05.5"}`:            {CreatedAt: time.Date(2026, 1, 1, 4, 0, 5, 5e8, time.UTC)},
		`{"created_at":"2026-01-01 04:00:05"}`:              {CreatedAt: time.Date(2026, 1, 1, 4, 0, 5, 0, time.UTC)},
		`{"created_at":"yesterday"}`:                        {},
		`{"created_at":1767240005,"from":"y@example.test"}`: {From: "y@example.test"},
		`null`: {}, `7`: {}, `[]`: {}, `"text"`: {},
	} {
		want.Raw = json.RawMessage(row)
		if diff := cmp.Diff(want, ReadEntry(json.RawMessage(row))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row, diff)
		}
	}
	for fixture, want := range map[string]bool{"logs.response.failed.json": false, "logs.response.status-text.json": true} {
		page, err := client(t, newFake(t, 200, golden(t, fixture)), false).LogPage(t.Context(), 1, 0)
		if err != nil || page.Entries[0].Delivered != want || page.Entries[0].Response == "" {
			t.Errorf("%s: got %+v, %v", fixture, page, err)
		}
	}
}

func TestAPageSaysHowManyRecordsThereAre(t *testing.T) {
	for _, c := range []struct{ total, said, limit int }{{0, 100, 100}, {101, 100, 100}, {101, 0, 0}, {101, -1, 0}} {
		f := newFake(t, 200, entries(1, 1, c.total, c.said))
		got, err := client(t, f, false).LogPage(t.Context(), 1, 50)
		if err != nil || got.TotalRecord != c.total || got.Limit != c.limit {
			t.Errorf("%+v: got %d records, %d a page, %v", c, got.TotalRecord, got.Limit, err)
		}
	}
}

func TestALogThatCannotBeReadIsABadAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"no entries":            `{"error":false,"status_code":200,"data":{"total_record":0}}`,
		"entries are null":      `{"error":false,"status_code":200,"data":{"data":null}}`,
		"entries are an object": `{"error":false,"status_code":200,"data":{"data":{}}}`,
		"data is a list":        `{"error":false,"status_code":200,"data":[]}`,
		"no data":               `{"error":false,"status_code":200}`,
		"cut":                   string(golden(t, "logs.response.json")[:200]),
	} {
		f := newFake(t, 200, []byte(answer))
		_, err := client(t, f, false).LogPage(t.Context(), 1, 3)
		var e *clients.Error
		if !errors.As(err, &e) || e.Fate != clients.Unknown || e.Reason != messages.ReasonBadAnswer || e.Operation != "logs" {
			t.Errorf("%s: got %v, want unknown, bad_answer", name, err)
		}
	}
}
