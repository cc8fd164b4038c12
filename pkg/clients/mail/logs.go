package mail

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"errand/internal/wire"
	"errand/pkg/clients"
)

// LogPage is one page of the sending log, newest entries first as far as is known. Entries are added while one reads: those at the end
// of a page come again on the next.
type LogPage struct {
	Entries     []Entry
	TotalRecord int // 0: not given
	Limit       int // records a page, as the upstream says; 0 if not given
	// Date is the answer's Date header: the upstream's clock, in whole seconds; zero if it is missing or unreadable.
	Date time.Time
}

// Entry is one entry of the log. What is missing or of an unexpected type is left empty; Raw holds it all.
type Entry struct {
	Raw        json.RawMessage
	CreatedAt  time.Time
	EnvelopeID string
	From, To   string
	Delivered  bool   // delivered and status.delivered, where they are given, both say so
	Response   string // the receiving server's reply
}

// usualRow is about the size of a row.
const usualRow = 384

type logData struct {
	Data        []json.RawMessage `json:"data"`
	TotalRecord number            `json:"total_record"`
	Limit       number            `json:"limit"`
}

// LogPage reads one page; 1 is the first, limit 0 leaves the number of records a page to the upstream.
func (c *Client) LogPage(ctx context.Context, page, limit int) (found LogPage, err error) {
	values := url.Values{"page": {strconv.Itoa(max(page, 1))}}
	if limit > 0 {
		values.Set("limit", strconv.Itoa(limit))
	}
	var date time.Time
	call := clients.Request{Operation: "logs", Method: http.MethodGet, Path: "/api/v0/logs", Query: values.Encode(), Limit: 32 << 20,
		Expect: int64(limit) * usualRow, Date: &date}
	err = c.upstream.Exchange(ctx, call, func(status int, body []byte) clients.Reading {
		body, rows := cutRows(body)
		return open(status, body, func(data *logData) bool {
			if data == nil || data.Data == nil {
				return false
			}
			if rows != nil {
				data.Data = rows
			}
			found = readLog(data)
			return true
		})
	})
	if err != nil {
		return LogPage{}, err
	}
	found.Date = date
	return found, nil
}

func readLog(data *logData) LogPage {
	found := LogPage{
		Entries:     make([]Entry, len(data.Data)),
		TotalRecord: int(data.TotalRecord),
		Limit:       max(0, int(data.Limit)),
	}
	for i, raw := range data.Data {
		found.Entries[i] = ReadEntry(raw)
	}
	return found
}

type row struct {
	CreatedAt  string `json:"created_at"`
	EnvelopeID string `json:"envelope_id"`
	From       string `json:"from"`
	To         string `json:"to"`
	Delivered  flag   `json:"delivered"`
	Status     status `json:"status"`
}

// ReadEntry reads a row, which is valid JSON, as far as it can be read.
func ReadEntry(raw json.RawMessage) Entry {
	var r row
	if !wire.Object(raw, r.set) {
		r = row{}
		_ = json.Unmarshal(raw, &r) // fields of an unexpected type stay empty and do not hide the others
	}
	delivered := r.Delivered.yes
	if also := r.Status.Delivered; also.given {
		delivered = also.yes && (delivered || !r.Delivered.given)
	}
	return Entry{
		Raw: raw, CreatedAt: instant(r.CreatedAt), EnvelopeID: r.EnvelopeID, From: r.From, To: r.To,
		Delivered: delivered, Response: r.Status.Response,
	}
}

func (r *row) set(key, value []byte) bool {
	switch string(key) {
	case "created_at":
		wire.Text(&r.CreatedAt, value)
	case "envelope_id":
		wire.Text(&r.EnvelopeID, value)
	case "from":
		wire.Text(&r.From, value)
	case "to":
		wire.Text(&r.To, value)
	case "delivered":
		_ = r.Delivered.UnmarshalJSON(value)
	case "status":
		_ = r.Status.UnmarshalJSON(value)
	default:
		return false
	}
	return true
}

// status is the object of that name, as it is or as JSON in a string. Anything else is empty.
type status struct {
	Delivered flag   `json:"delivered"`
	Response  string `json:"response"`
}

func (s *status) UnmarshalJSON(raw []byte) error {
	if raw[0] == '"' {
		var text string
		_ = json.Unmarshal(raw, &text)
		if raw = []byte(text); !json.Valid(raw) {
			raw = []byte("null")
		}
	}
	if *s = (status{}); !wire.Object(raw, s.set) {
		type plain status // without this method
		*s = status{}
		_ = json.Unmarshal(raw, (*plain)(s))
	}
	return nil
}

func (s *status) set(key, value []byte) bool {
	switch string(key) {
	case "delivered":
		_ = s.Delivered.UnmarshalJSON(value)
	case "response":
		wire.Text(&s.Response, value)
	default:
		return false
	}
	return true
}

// flag is a yes or no as number, text or boolean; given is false if it is missing.
type flag struct{ yes, given bool }

func (f *flag) UnmarshalJSON(raw []byte) error {
	switch string(bytes.Trim(raw, `"`)) {
	case "", "null":
	case "1", "true":
		*f = flag{yes: true, given: true}
	default:
		*f = flag{given: true}
	}
	return nil
}

// instant reads an ISO 8601 time; one without a zone is UTC. What cannot be read is the zero time.
func instant(text string) time.Time {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05-0700", "2006-01-02T15:04:05", time.DateTime} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC()
		}
	}
	return time.Time{}
}

// cutRows takes the rows out of a page, which encoding/json would go over twice as often; the rest is as if there were none. Of what
// encoding/json may read otherwise, such as a key in another spelling, nothing is taken. The rows are parts of page.
func cutRows(page []byte) (rest []byte, rows []json.RawMessage) {
	if !json.Valid(page) {
		return page, nil
	}
	var list []byte // the last one of that name counts
	data := func(key, value []byte) bool {
		if string(key) == "data" {
			list = value
		}
		return string(key) == "data"
	}
	if !wire.Object(bytes.TrimSpace(page), data) || list == nil || !wire.Object(list, data) || list[0] != '[' {
		return page, nil
	}
	rows = wire.Elements(list, len(list)/usualRow+1)
	from := cap(page) - cap(list)
	return slices.Concat(page[:from], []byte("[]"), page[from+len(list):]), rows
}
