package bus

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/messages"
)

// FuzzDeadLetter dead-letters a message with any headers: the dead letter can always be written, is small enough to be
// stored, keeps the bytes, takes over nothing that the server would obey, and says nothing twice.
func FuzzDeadLetter(f *testing.F) {
	f.Add("X-Own", "kept", "nats-expected-stream", "X", []byte("body"))
	f.Add("X Spaced", "v", "\u00fc", "\r\nNats-Rollup: all", []byte{0, 0xff})
	f.Add("ERRAND-reason", "forged", "NATS-TTL", "1s", []byte{})
	f.Add("", "", "a:b", "\x00", []byte("{}"))
	f.Add("X", strings.Repeat("v", 60<<10), "Y", strings.Repeat("w", 5000), []byte("{}"))
	f.Add("X", strings.Repeat("v", 65_200), "Y", "", []byte("{}"))
	f.Add("Nats-Msg-Id", strings.Repeat("\u202e", 3000), "Z\u017fort", "v", []byte("{}"))
	f.Fuzz(func(t *testing.T, name, value, other, more string, data []byte) {
		header := nats.Header{name: {value, more}, other: {more}, "Nats-Msg-Id": {value}}
		why := DeadLetter{RequestID: "r1", Operation: messages.Send, Reason: messages.ReasonInvalidRequest, Message: more, Final: 7}
		d := letter(&Request{Subject: "mail.send.requested", Header: header, Data: data, Stream: MailRequests}, why)
		if !bytes.Equal(d.Data, data) || d.Subject != "dead.mail.send.requested" {
			t.Fatalf("got %q on %s", d.Data, d.Subject)
		}
		size := len("NATS/1.0\r\n\r\n")
		for got, values := range d.Header {
			for _, v := range values {
				size += len(got) + len(v) + len(": \r\n")
			}
			low := strings.ToLower(got)
			ours := strings.HasPrefix(got, "Errand-") || got == nats.MsgIdHdr
			if (strings.HasPrefix(low, "nats-") || strings.HasPrefix(low, "errand-")) != ours || !ours && !slices.Equal(values, header[got]) {
				t.Fatalf("header %q: %q", got, values)
			}
			if ours && (len(values) != 1 || !utf8.ValidString(values[0]) || utf8.RuneCountInString(values[0]) > 500 ||
				strings.ContainsAny(values[0], "\r\n\x00")) {
				t.Fatalf("header %q: %q", got, values)
			}
			if strings.ContainsAny(got, " \t\r\n:") || got == "" {
				t.Fatalf("header %q cannot be written", got)
			}
		}
		if size > 65535 || d.Header.Get(nats.MsgIdHdr) != "dead.mail.send.r1.7" || d.Header.Get("Errand-Reason") != "invalid_request" {
			t.Fatalf("%d bytes of headers: %.300v", size, d.Header)
		}
	})
}

// FuzzAcknowledgement reads any answer to one write and to one of several: only one that names a stream and a sequence,
// and no error, counts as stored, a refusal ends the wait, and a foreign or late one changes nothing.
func FuzzAcknowledgement(f *testing.F) {
	for _, data := range []string{"", "null", "{}", `{"stream":"S","seq":7}`, `{"stream":"S","seq":-1}`, `{"stream":"","seq":1}`,
		`{"stream":"S","duplicate":true}`, `{"error":{"code":503}}`, `{"stream":"S","error":{"err_code":10071}}`, `{"stream":7}`, "\xff",
		`{"stream":"S","seq":}`, `{"stream":"S","seq":07}`, `{"stream":"S","seq":99999999999999999999}`} {
		for _, token := range []string{"1", "2.0", "2.1"} {
			f.Add([]byte(data), token)
		}
	}
	for _, token := range []string{"zzzzzzzzzzzzzzzzzz", "-1", "1.0", "2", "2.2", "2.-1", "2.00", "3.1.1", "2.zzzzzzzzzzzzzzzzzz"} {
		f.Add([]byte(`{"stream":"S","seq":7}`), token)
	}
	f.Fuzz(func(t *testing.T, data []byte, token string) {
		var said struct {
			Stream    string
			Seq       uint64
			Duplicate bool
			Error     *jetstream.APIError
		}
		readable := json.Unmarshal(data, &said) == nil
		good := readable && said.Stream != "" && said.Seq > 0 && said.Error == nil

		all := newAcks("in.")
		defer all.timer.Stop()
		one, several := all.take("S", true), all.Begin("S", 2, false, new(uint64))
		all.receive(&nats.Msg{Subject: "in." + token, Data: data})
		all.receive(&nats.Msg{Subject: "in." + token, Data: data})
		seen := 0
		for _, got := range append(slices.Clone(one.results), several.results...) {
			if !errors.Is(got, errUnanswered) {
				seen++
				if (got == nil) != good {
					t.Fatalf("%q counts as %v", data, got)
				}
			}
		}
		if seen > 1 || one.left+several.left != 3-seen || seen == 0 && (token == "1" || token == "2.0" || token == "2.1") {
			t.Fatalf("%q to %q: %d answers, left %d and %d", data, token, seen, one.left, several.left)
		}
		refusal := seen > 0 && readable && said.Error != nil
		if ends := len(one.done)+len(several.done) > 0; ends != (refusal || one.left == 0) {
			t.Fatalf("%q to %q: ends the wait %v", data, token, ends)
		}
	})
}

// FuzzMessageOfAnEvent encodes events with any texts in them: the body is read back as it
// was written, and no header holds a control character or more than is allowed.
func FuzzMessageOfAnEvent(f *testing.F) {
	f.Add("said", "trace", "state", 1)
	f.Add("a\r\nNats-Rollup: all\u2028\u202e\xff\x00", "00-\r\nX: y", "\xff", -1)
	f.Add(strings.Repeat("\u00e9\"\\<", 900), strings.Repeat("t", 9000), "", 600)
	f.Fuzz(func(t *testing.T, text, parent, state string, attempt int) {
		body := &messages.FailedBody{Common: messages.Common{RequestID: "r1", At: messages.Time{Time: time.Now()}, Attempt: attempt},
			Reason:  messages.ReasonRefused,
			Message: text, Fields: map[string][]string{text: {text, parent}}, OrderNumber: parent, Fingerprint: "f"}
		e := messages.Event{Operation: messages.Enroll, State: messages.Failed, ID: "r1", Body: body}
		data, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		var back messages.FailedBody
		if err := messages.DecodeEvent(data, &back); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		again, err := messages.Event{Operation: messages.Enroll, State: messages.Failed, ID: "r1", Body: &back}.Encode()
		if err != nil || !bytes.Equal(data, again) {
			t.Fatalf("%q becomes %q, %v", data, again, err)
		}
		if utf8.RuneCountInString(back.Message) > 500 || strings.ContainsAny(back.Message, "\r\n\x00\u2028") {
			t.Fatalf("message %q", back.Message)
		}
		h := nats.Header{}
		e.Headers(h, text, parent)
		for name, values := range h {
			if len(values) != 1 || utf8.RuneCountInString(values[0]) > 500 || strings.ContainsAny(values[0], "\r\n\x00\u2028") {
				t.Fatalf("%s: %q", name, values)
			}
		}
	})
}
