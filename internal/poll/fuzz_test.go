package poll

import (
	"context"
	"encoding/json"
	"iter"
	"math"
	"strings"
	"testing"
	"time"

	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// FuzzRow makes an event of any row of the log: the id is always the same for the same
// state of the same row and differs for another state, and the event fits into a message
// and contains the row.
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
		reply := parseReply(response)
		status := statusOf(row, reply)
		id := idOf(row, status)
		if back, ok := ParseID(id.String()); !ok || back != id || idOf(row, status) != id || idOf(row, status+"x") == id {
			t.Fatalf("%+v: id %s, back %s", row, id, back)
		}
		if at := strings.LastIndexByte(to, '@') + 1; envelope != "" {
			row.To = to[:at] + strings.ToLower(to[at:])
			if idOf(row, status) != id {
				t.Fatalf("%q: the case of the domain counts", to)
			}
			row.To = to
		}
		e := eventOf(row, id, status, reply, time.Now())
		body, err := e.Encode()
		if err != nil || len(body) > 512<<10 || strings.ContainsAny(e.Subject(), " *>\r\n") || strings.Count(e.Subject(), ".") != 3 {
			t.Fatalf("%s: %d bytes, %v", e.Subject(), len(body), err)
		}
		var decoded messages.DeliveryBody
		if err := messages.DecodeEvent(body, &decoded); err != nil || decoded.EventID != id.String() || !json.Valid(decoded.Entry) || decoded.SMTP.Code < 0 || decoded.SMTP.Code > 599 {
			t.Fatalf("%q: %v", body, err)
		}
	})
}

// FuzzEventID reads any Nats-Msg-Id found in the stream: only a real id is accepted.
func FuzzEventID(f *testing.F) {
	for _, text := range []string{"", strings.Repeat("0", 32), strings.Repeat("F", 32), strings.Repeat("g", 32), strings.Repeat("0", 31) + "\xff", "mail.log.watermark.1.1", strings.Repeat("0", 34)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, ok := ParseID(text)
		if ok != (len(text) == 32 && strings.Trim(text, "0123456789abcdefABCDEF") == "") || ok && id.String() != strings.ToLower(text) {
			t.Fatalf("%q: %s %v", text, id, ok)
		}
	})
}

// fixedSink is a sink that has one watermark and one event.
type fixedSink struct {
	Sink
	watermark []byte
	at        time.Time
}

func (k fixedSink) Watermark(context.Context) (w messages.Watermark, err error) {
	return w, messages.DecodeEvent(k.watermark, &w)
}

func (k fixedSink) Learn(context.Context, time.Time, bool) iter.Seq2[StoredEvent, error] {
	return func(yield func(StoredEvent, error) bool) { yield(StoredEvent{ID: ID{1}, At: k.at}, nil) }
}

// FuzzWatermark starts with any watermark: a row of today is never ignored, and a stored
// event is known whatever its time.
func FuzzWatermark(f *testing.F) {
	for _, at := range []string{"2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "x", ""} {
		f.Add([]byte(`{"complete_through":"`+at+`","at":"`+at+`","total_record":-1,"new":1}`), int64(0))
	}
	f.Add([]byte(`null`), int64(math.MaxInt64))
	f.Add([]byte(`{"complete_through":7}`), int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, watermark []byte, second int64) {
		m := &memory{seen: map[ID]stamp{}}
		sink := fixedSink{watermark: watermark, at: time.Unix(second, 0)}
		if err := m.start(t.Context(), sink, time.Time{}); err != nil {
			if m.started {
				t.Fatalf("%q: started in spite of %v", watermark, err)
			}
			return
		}
		for _, o := range []order{unordered, newestFirst} {
			if h := m.horizon(o, time.Minute, false); h.After(time.Now().Add(-time.Minute)) {
				t.Fatalf("%q: ignores every row before %s", watermark, h)
			}
		}
		if m.markedAt.After(time.Now()) {
			t.Fatalf("%q: the next watermark waits for %s", watermark, m.markedAt)
		}
		if err := m.learn(t.Context(), sink, m.reach(unordered, time.Minute, false)); err != nil || !m.knows(ID{1}, time.Now()) || m.knows(ID{2}, time.Now()) {
			t.Fatalf("%q: %v", watermark, err)
		}
	})
}
