package transactions

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/history"
	"errand/internal/mandates"
	"errand/pkg/messages"
)

var (
	kualaLumpur = time.FixedZone("+08", 8*60*60)
	local       = &mandates.Times{Zone: kualaLumpur}
	inUTC       = &mandates.Times{Zone: time.UTC}
)

// A record has the kind, states, order number and time that the service wrote, however it did.
func TestARecordIsReadWhateverItsShape(t *testing.T) {
	soon := time.Now().In(kualaLumpur).Add(23 * time.Hour).Truncate(time.Second)
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, kualaLumpur)
	for raw, want := range map[string]Record{
		`{"id":"TX1","transaction_type":"Enrollment","created_at":"2026-05-01 12:00:00","order_number":"DD1","status":3,` +
			`"status_description":"Approved","mandate":{"order_number":"DD1","status":"3","status_description":"Active"}}`: {
			Status: "approved", MandateStatus: "active", Order: "DD1", At: at, names: []string{"DD1"}},
		`{"id":7,"transaction_type":"Deduction","order_number":"DD1-1","status":"2","mandate":{"order_number":"DD1"}}`: {
			Kind: messages.Deduction, Status: "status_2", Order: "DD1", names: []string{"DD1"}},
		`{"order_number":1234567890123456789012345,"mandate":null}`: {Order: "1234567890123456789012345",
			names: []string{"1234567890123456789012345"}},
		`{"order_number":"DD1","mandate":{"order_number":77}}`:                                  {Order: "77", names: []string{"77", "DD1"}},
		`{"order_number":"dd 1","mandate":{"order_number":"DD1"}}`:                              {Order: "DD1", names: []string{"DD1"}},
		`{"order_number":"DD1","mandate":{"order_number":"  "}}`:                                {Order: "DD1", names: []string{"DD1"}},
		`{"order_number":"","mandate":{"order_number":"DD1"}}`:                                  {Order: "DD1", names: []string{"DD1"}},
		`{"order_number":["DD1"],"mandate":["DD1"]}`:                                            {},
		`{"mandate":"DD1","transaction_type":["Deduction"],"created_at":5}`:                     {},
		`{"transaction_type":" DEDUCTION ","order_number":"DD1-1"}`:                             {Kind: messages.Deduction, Order: "DD1-1"},
		`{"transaction_type":"deduction","order_number":"DD1-1","mandate":{"order_number":""}}`: {Kind: messages.Deduction, Order: "DD1-1"},
		`{"transaction_type":"Refund","status":-3}`:                                             {},
		`{"status":99,"status_description":null}`:                                               {Status: "status_99"},
		`{"status":"3.0","status_description":""}`:                                              {},
		`{"status":3,"status_description":" Under   REVIEW! "}`:                                 {Status: "under_review"},
		`{"status":4,"status_description":"…!"}`:                                                {Status: "status_4"},
		`{"status":4,"status_description":"拒否"}`:                                                {Status: "status_4"},
		`{"status_description":"refusé (R03)"}`:                                                 {Status: "refus_r03"},
		`{"status_description":"Erased"}`:                                                       {Status: "status_erased"},
		`{"status_description":"turn"}`:                                                         {Status: "turn"},
		`{"status_description":"unmatched"}`:                                                    {Status: "unmatched"},
		`{"status_description":"a.b>c*"}`:                                                       {Status: "a_b_c"},
		`{"status_description":"` + strings.Repeat("very long ", 50) +
			`"}`: {Status: messages.State(strings.Repeat("very_long_", 7)[:64])},
		`{"created_at":"2026-05-01T12:00:00+08:00"}`:                           {At: at},
		`{"created_at":"2026-05-01T04:00:00.000000Z"}`:                         {At: at},
		`{"created_at":"2026-02-30 12:00:00"}`:                                 {},
		`{"created_at":"` + soon.Format(time.DateTime) + `"}`:                  {At: soon},
		`{"created_at":"` + soon.Add(2*time.Hour).Format(time.DateTime) + `"}`: {}, // it would be new for a day, or for ever
		`{"created_at":"01/05/2026"}`:                                          {},
		`null`:                                                                 {}, `5`: {}, `"DD1"`: {}, `[{"id":"TX1"}]`: {},
		`{}`: {},
		`{"a":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`: {},
	} {
		if want.Kind == "" {
			want.Kind = messages.Application
		}
		if want.Status == "" {
			want.Status = messages.Unknown
		}
		got := read(json.RawMessage(raw), local)
		if got.Kind != want.Kind || got.Status != want.Status || got.MandateStatus != want.MandateStatus || got.Order != want.Order ||
			!got.At.Equal(want.At) ||
			!slices.Equal(got.names, want.names) {
			t.Errorf("%.200s:\n got %+v\nwant %+v", raw, got, want)
		}
	}
}

// A record is the same one in another state, and another one of another kind. One without an id is known by its bytes.
func TestARecordIsKnownByItsKindAndID(t *testing.T) {
	id := func(raw string) string { r := read(json.RawMessage(raw), inUTC); return fmt.Sprint(r.key) }
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"id":"1","status":1}`, `{"id":1,"status":3}`, true},
		{`{"id":"1","transaction_type":"Enrollment"}`, `{"id":"1","transaction_type":"application"}`, true},
		{`{"id":"1","transaction_type":"Deduction"}`, `{"id":"1","transaction_type":"DEDUCTION"}`, true},
		{`{"id":"1","transaction_type":"Deduction"}`, `{"id":"1","transaction_type":"Enrollment"}`, false},
		{`{"id":"1"}`, `{"id":"2"}`, false},
		{`{"id":" ","amount":1}`, `{"id":" ","amount":2}`, false},
		{`{"id":null,"amount":1}`, `{"id":null,"amount":2}`, false},
		{`{"amount":1}`, `{"amount":1}`, true},
		{`null`, `5`, false},
	} {
		if got := id(c.a) == id(c.b); got != c.same {
			t.Errorf("%s and %s are the same record: %t, want %t", c.a, c.b, got, c.same)
		}
	}
}

// An event has the record, or as much of it as it may have and the servers take.
func TestAnEventHasTheRecordWithinBounds(t *testing.T) {
	const most = 64 << 10
	large := strings.Repeat("x", most)
	for _, c := range []struct {
		raw          string
		withoutPayer bool
		want         string
	}{
		{`{"id":"1", "payer_name":"P","new":[1]}`, false, `{"id":"1", "payer_name":"P","new":[1]}`},
		{`{"id":"1","payer_name":"P","status":3,"created_at":"x","mandate":{"id":"M","order_number":"DD1"}}`, true,
			`{"created_at":"x","mandate":{"order_number":"DD1"},"status":3}`},
		{`{"id":"1","status":3,"metadata":"` + large + `"}`, false, `{"id":"1","status":3}`},
		{`{"id":"` + large + `","status":3}`, false, `{}`},
		{`{"status":"` + large + `"}`, true, `{}`},
		{`null`, false, `{}`}, {`"text"`, false, `{}`}, {`[1]`, false, `{}`}, {`7`, true, `{}`}, {``, false, `{}`}, {`{"id":`, false, `{}`},
	} {
		r := read(json.RawMessage(c.raw), inUTC)
		id := join(r.key, r.state)
		e := r.event(id, messages.TransactionMatch{Confidence: messages.MatchExact, Candidates: []string{"r1"}}, time.Now(), c.withoutPayer)
		body, _ := e.Body.(*messages.TransactionBody)
		for len(body.Transaction) > most && history.Abridge(body) { // as the sink does
		}
		if string(body.Transaction) != c.want || e.ID != "r1" || body.RequestID != "r1" || body.Match.Candidates != nil {
			t.Errorf("%.80s: %.200s, %+v, want %s", c.raw, body.Transaction, body.Match, c.want)
		}
		if data, err := e.Encode(); err != nil || len(data) > most+4096 || body.EventID != hex.EncodeToString(id[:]) ||
			!bytes.Contains(data, []byte(body.EventID)) {
			t.Errorf("%.80s: %d bytes, %v", c.raw, len(data), err)
		}
		two := messages.TransactionMatch{Confidence: messages.MatchAmbiguous, Candidates: []string{"r1", "r2"}}
		e = r.event(id, two, time.Now(), c.withoutPayer)
		if body, _ := e.Body.(*messages.TransactionBody); e.ID != messages.Unmatched || body.RequestID != "" || len(body.Match.Candidates) != 2 {
			t.Errorf("%.80s: of several requests it is of %q, %+v", c.raw, e.ID, body.Match)
		}
	}
}
