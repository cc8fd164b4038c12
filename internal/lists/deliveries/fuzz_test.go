package deliveries

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"errand/internal/lists"
	"errand/internal/lists/sweep"
	"errand/internal/wire/mailkey"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// FuzzRow makes an event of any row of the log: the id is always the same for the same state of the same row and
// differs for another state, and the event fits into a message and contains the row.
func FuzzRow(f *testing.F) {
	f.Add("e1", "a@Example.TEST", "250 2.0.0 OK", `{"envelope_id":"e1"}`, true)
	f.Add("", "\x00@\xff", "550-5.1.1\r\n\u2028", "[1]", false)
	f.Add("e\x00a", "@", "4.7.1", `"`+strings.Repeat("x", 70_000)+`"`, false)
	f.Add("e", "İ@İ", "999 9.9.9", "null", true)
	f.Fuzz(func(t *testing.T, envelope, to, response, raw string, delivered bool) {
		if !json.Valid([]byte(raw)) {
			return
		}
		row := mail.Entry{Raw: []byte(raw), EnvelopeID: envelope, To: to, Response: response, Delivered: delivered}
		status := statusIn(statusOf(row, mail.Entry{Response: response}.Reply()))
		id := idOf(row, status)
		if back, ok := sweep.ParseID(hex.EncodeToString(id[:])); !ok || back != id || idOf(row, status) != id || idOf(row, status^7) == id {
			t.Fatalf("%+v: id %x, back %x", row, id, back)
		}
		if at := strings.LastIndexByte(to, '@') + 1; envelope != "" {
			row.To = to[:at] + strings.ToLower(to[at:])
			if idOf(row, status) != id {
				t.Fatalf("%q: the case of the domain counts", to)
			}
			row.To = to
		}
		e := eventOf(New(Config{}), row)
		body, err := e.Encode()
		if err != nil || len(body) > 512<<10 || strings.ContainsAny(e.Subject(), " *>\r\n") || strings.Count(e.Subject(), ".") != 3 {
			t.Fatalf("%s: %d bytes, %v", e.Subject(), len(body), err)
		}
		var decoded messages.DeliveryBody
		if err := messages.DecodeEvent(body, &decoded); err != nil || decoded.EventID != hex.EncodeToString(id[:]) ||
			!json.Valid(decoded.Entry) || decoded.SMTP.Code < 0 || decoded.SMTP.Code > 599 {
			t.Fatalf("%q: %v", body, err)
		}
	})
}

// FuzzNote learns any note: what can be read means the same when it is written again.
func FuzzNote(f *testing.F) {
	for _, text := range []string{"", "1.0", "1.0?", "1.x", "?", "1", "-1.-1", "1.0??"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, exact, ok := parseNote("r", text)
		if !ok {
			return
		}
		if again, same, ok := parseNote("r", noteOf(at, exact)); !ok || again != at || same != exact {
			t.Fatalf("%q: %+v %t, again %+v %t %t", text, at, exact, again, same, ok)
		}
		l := New(Config{})
		l.calls.add(call{request: "r", batch: 1}, []mailkey.Key{1})
		l.note(lists.Stored{Subject: messages.Subject{State: messages.Delivered, ID: "r"}, ID: strings.Repeat("0f", 16), Recipient: text})
	})
}
