package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"errand/pkg/messages"
)

// listed is a transaction list of so many records, the newest first, whose pages say of it what
// meta makes of the truth.
type listed struct {
	records []map[string]any
	meta    func(map[string]any)
}

func (l *listed) RoundTrip(r *http.Request) (*http.Response, error) {
	number, _ := strconv.Atoi(r.URL.Query().Get("page")) // the first one is not named
	number = max(number, 1)
	last := (len(l.records) + perPage - 1) / perPage
	meta := map[string]any{"current_page": number, "last_page": last, "per_page": perPage, "total": len(l.records)}
	links := map[string]any{"next": nil}
	if number < last {
		links["next"] = "http://127.0.0.1:1/elsewhere"
	}
	l.meta(meta)
	page := l.records[min(len(l.records), (number-1)*perPage):min(len(l.records), number*perPage)]
	body, err := json.Marshal(map[string]any{"data": page, "links": links, "meta": meta})
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)), Request: r}, err
}

// A list is read to its end and without a fault whatever its pages say of their size and number,
// and however large the fields of some records are.
func TestAListIsReadWholeWhateverItsPagesSay(t *testing.T) {
	says := func(name string, value any) func(map[string]any) {
		return func(meta map[string]any) { meta[name] = value }
	}
	for name, c := range map[string]struct {
		meta  func(map[string]any)
		large int // bytes of a field
	}{
		"more a page than it shows":   {says("per_page", 100), 0},
		"one a page":                  {says("per_page", 1), 0},
		"a page that holds all":       {says("per_page", 1e9), 0},
		"a number no list has":        {says("total", json.Number("1000000000000000000")), 0},
		"a number no computer has":    {says("total", strings.Repeat("9", 40)), 0},
		"one record":                  {says("total", 1), 0},
		"the truth, of large records": {func(map[string]any) {}, 30 << 10},
	} {
		runInBubble(t, name, func(t *testing.T, b *bubble) {
			const n = 2*perPage + 10
			list, now := &listed{meta: c.meta}, time.Now()
			for i := range n {
				list.records = append(list.records, map[string]any{"id": fmt.Sprint("tx-", i), "created_at": now.Add(-time.Duration(i) * time.Minute).Format(time.RFC3339),
					"transaction_type": "Enrollment", "status": "0", "status_description": "New", "metadata": strings.Repeat("x", c.large)})
			}
			p := b.transactions()
			p.Transport = list
			b.run(p, 10*time.Minute, nil)
			seen := map[string]bool{}
			events := b.events("mandate.application.new." + messages.Unmatched)
			for _, e := range events {
				seen[decode[messages.TransactionBody](t, e).EventID] = true
			}
			if len(events) != n || len(seen) != n {
				t.Errorf("%d events of %d records, want %d\n%s", len(events), len(seen), n, b.logs)
			}
			if said := b.logs.String(); strings.Contains(said, "sweep: failed") {
				t.Errorf("a sweep failed:\n%s", said)
			}
		})
	}
}
