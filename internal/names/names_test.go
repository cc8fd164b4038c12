package names

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"errand/internal/wire"
	"errand/pkg/messages"
)

func TestAMessageIsFoundByWholeValuesHoweverTheyAreWritten(t *testing.T) {
	for _, c := range []struct {
		op   messages.Operation
		body string
		word string
		want As
	}{
		{messages.Enroll, `{"order_number":"DD 001"}`, "DD001", Order},
		{messages.Enroll, `{"order_number":"dd001"}`, " DD  001", Order},
		{messages.Enroll, `{"order_number":"2026\/001"}`, "2026/001", Order},
		{messages.Enroll, `{"order_number":1001}`, "1001", Order},
		{messages.Enroll, `{"order_number":1.001e3}`, "1001", Order},
		{messages.Enroll, `{"order_number":"DD0011"}`, "DD001", ""},
		{messages.Enroll, `{"order_number":"01001"}`, "1001", ""},
		{messages.Enroll, `{"evidence":[{"mandate":{"order_number":"DD001"}}]}`, "dd001", Order},
		{messages.Enroll, `{"payer_name":"Zo\u00eb  Tan"}`, "zoë tan", Payer},
		{messages.Enroll, `{"payer_name":"Zoe\u0308 Tan"}`, "Zoë Tan", Payer},
		{messages.Enroll, `{"payer_name":"Zoë Tan"}`, "Zoe\u0308 Tan", Payer},
		{messages.Enroll, `{"payer_name":"Zoë Tan"}`, "Zoe Tan", ""},
		{messages.Enroll, `{"payer_name":"Νίκος"}`, "ΝΊΚΟΣ", Payer},
		{messages.Enroll, `{"order_number":"É 1"}`, "e\u03011", Order},
		{messages.Send, `{"to":["zoe\u0308@example.com"]}`, "Zoë@example.com", Recipient},
		{messages.Callback, `{"query":"who=Zoe%CC%88"}`, "Zoë", Callback},
		{messages.Enroll, `{"payer_name":"Tan \u0026 Sons"}`, "Tan & Sons", Payer},
		{messages.Enroll, `{"payer_name":"Tan & Sons Ltd"}`, "Tan & Sons", ""},
		{messages.Enroll, `{"payer_id":900101145678}`, "900101145678", Payer},
		{messages.Enroll, `{"payer_id":"0900101145678"}`, "900101145678", ""},
		{messages.Enroll, `{"payer_id":900101145678}`, "900101-14-5678", Payer},
		{messages.Enroll, `{"payer_telephone_number":"60123456789"}`, "+60 12-345 6789", Payer},
		{messages.Enroll, `{"payer_telephone_number":"+60 (12) 345-6789"}`, "60123456789", Payer},
		{messages.Enroll, `{"payer_telephone_number":"60123456789"}`, "12-345 6789", ""},
		{messages.Enroll, `{"order_number":"2026-000123"}`, "2026000123", ""},
		{messages.Enroll, `{"payer_name":"1-2"}`, "12", ""},
		{messages.Enroll, `{"payer_bank_code":"MB0001"}`, "MB0001", ""},
		{messages.Enroll, `{"enrollment":{"payer_email":"Ann@Example.com"}}`, "ann@example.com", Payer},
		{messages.Enroll, `{"payer_email":"joann@example.com"}`, "ann@example.com", ""},
		{messages.Enroll, `{"payer_email":"ann@example.com.my"}`, "ann@example.com", ""},
		{messages.Enroll, `{"message":"ann@example.com is not known"}`, "ann@example.com", ""},
		{messages.Enroll, `{"reason":"refused"}`, "refused", ""},
		{messages.Send, `{"to":"Joann <joann@example.com>, \u0041nn <ann@EXAMPLE.com>"}`, "ann@example.com", Recipient},
		{messages.Send, `{"to":["joann@example.com","\"ann\"@example.com"]}`, "ann@example.com", Recipient},
		{messages.Send, `{"to":["joann@example.com"]}`, "ann@example.com", ""},
		{messages.Send, `{"invalid":[{"address":"ann at example"}]}`, "Ann at example", Recipient},
		{messages.Send, `{"to":["ann@bücher.example"]}`, "ann@xn--bcher-kva.example", Recipient},
		{messages.Send, `{"headers":{"Reply-To":"Ann <ann@example.com>"}}`, "ann@example.com", Address},
		{messages.Send, `{"headers":{"Cc":"Joann <joann@example.com>, \"Ann, T.\" <ann@example.com>"}}`, "ann@example.com", Address},
		{messages.Send, `{"text":"Dear all, ann@example.com, is away"}`, "ann@example.com", ""},
		{messages.Delivery, `{"entry":{"to":"ann@example.com"}}`, "Ann@example.com", Recipient},
		{messages.Callback, `{"query":"who=ann%40example.com&n=DD+001"}`, "ann@example.com", Callback},
		{messages.Callback, `{"body":"{\"order_number\":\"DD 001\"}","body_encoding":"text"}`, "DD001", Callback},
		{messages.Callback, `{"query":"payer_email=ann%40example.com&to=ben%40example.com"}`, "ann@example.com", Callback},
		{messages.Callback, `{"body":"{\"name\":\"Zo\\u00eb\"}","body_encoding":"text"}`, "zoë", Callback},
		{messages.Callback, `{"body":"` + base64.StdEncoding.EncodeToString([]byte(`data={"id":7}`)) + `","body_encoding":"base64"}`, "7", Callback},
		{messages.Callback, `{"query":"cc=joann%40example.com,ann%40example.com"}`, "ann@example.com", Callback},
		{messages.Callback, `{"query":"order_number=12E40"}`, "12e40", Callback},
		{messages.Callback, `{"query":"who=2026.10"}`, "2026.10", Callback},
		{messages.Callback, `{"body":"Zoë","body_encoding":"text"}`, "zoë", Callback},
		{messages.Callback, `{"body":"Zoë Tan","body_encoding":"text"}`, "zoë", ""},
		{messages.Send, `not JSON, ann@example.com`, "ann@example.com", ""},
		{messages.Enroll, `{"order_number":""}`, "", ""},
	} {
		if got := NewWord(c.word).In(c.op, []byte(c.body)); got != c.want {
			t.Errorf("%q in %s %s: got %q, want %q", c.word, c.op, c.body, got, c.want)
		}
	}
}

// Anybody can send a callback, and whoever publishes requests a dead letter: their depth must not cost more than their length.
func TestNamesOfADeepBodyAreFoundInOneReading(t *testing.T) {
	word := NewWord("DD001")
	fastest := func(depth int) time.Duration {
		body := []byte(strings.Repeat("[", depth) + strings.Repeat("1,", 500_000) + `{"order_number":"DD001"}` + strings.Repeat("]", depth))
		best := time.Hour
		for range 3 {
			begin := time.Now()
			if as := word.In(messages.Enroll, body); as != Order {
				t.Errorf("found as %q", as)
			}
			best = min(best, time.Since(begin))
		}
		return best
	}
	if flat, deep := fastest(1), fastest(9990); deep > 100*flat { // about the same; 300 times if each level reads what is in it
		t.Errorf("a deep body took %v, a flat one %v", deep, flat)
	}
}

// Whatever is named in a body is found, in every form that JSON can write it; no part of a longer value is.
func FuzzNames(f *testing.F) {
	for _, word := range []string{"DD 001", "2026/001", "Zoë", "Tan & Sons", `a"b\c`, "ann@example.com", "900101145678", "\U0001f600", "K",
		"ß"} {
		f.Add(word, "x", uint64(0x5555), uint8(0))
	}
	bodies := []struct{ op, body string }{
		{"mandate.enroll", `{"order_number":%s}`},
		{"mandate.enroll", `{"at":"2026-01-01T00:00:00.000Z","enrollment":{"payer_name":%s,"url":"https://127.0.0.1/"}}`},
		{"mandate.enroll", `{"evidence":[{},{"mandate":{"order_number":%s}}]}`},
		{"mandate.application", `{"transaction": { "payer_id" : %s } }`},
		{"mail.send", `{"invalid":[{"address":"other"},{"address":%s}]}`},
	}
	f.Fuzz(func(t *testing.T, word, more string, escapes uint64, which uint8) {
		if !utf8.ValidString(word) || !utf8.ValidString(more) {
			return // JSON has no other texts
		}
		b := bodies[int(which)%len(bodies)]
		body := fmt.Appendf(nil, b.body, escaped(word, escapes))
		if !json.Valid(body) {
			t.Fatalf("the test writes %s", body)
		}
		w, op := NewWord(word), messages.Operation(b.op)
		if named := strings.TrimSpace(word) != ""; (w.In(op, body) != "") != named {
			t.Errorf("%q in %s: found as %q", word, body, w.In(op, body))
		}
		if !strings.ContainsFunc(more, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) ||
			strings.ContainsAny(word+more, "@<>()\"") { // a display name or a comment is not a part of an address
			return
		}
		for _, longer := range []string{more + word, word + more, more + " " + word, word + "," + more} {
			body := fmt.Appendf(nil, b.body, escaped(longer, escapes))
			if as := w.In(op, body); as != "" {
				t.Errorf("%q in %s: found as %q", word, body, as)
			}
		}
	})
}

// escaped is a text as a JSON string; every bit of escapes says whether a character is escaped.
func escaped(text string, escapes uint64) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		escapes = escapes>>1 | escapes<<63
		plain, _ := wire.Marshal(string(r))
		switch {
		case escapes&1 == 0:
			b.Write(plain[1 : len(plain)-1])
		case r == '/':
			b.WriteString(`\/`)
		case r >= 0x10000:
			fmt.Fprintf(&b, `\u%04x\u%04X`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String() + `"`
}
