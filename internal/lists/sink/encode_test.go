package sink

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"errand/pkg/messages"
)

// same holds appendDelivery against encoding/json.
func same(t *testing.T, b messages.DeliveryBody) {
	t.Helper()
	want, err := messages.Event{Operation: messages.Delivery, State: messages.Delivered, ID: "r1", Body: &b}.Encode()
	if err != nil {
		t.Fatalf("%+v: %v", b, err)
	}
	got, err := appendDelivery([]byte("before"), &b)
	if err != nil || !bytes.Equal(got, append([]byte("before"), want...)) {
		t.Errorf("%+v:\ngot  %s, %v\nwant %s", b, got, err, want)
	}
}

// Each field is set by reflection, so that a field which is added to the body and not to appendDelivery is found.
func TestDeliveriesAreEncodedAsByTheStandardLibrary(t *testing.T) {
	var full messages.DeliveryBody
	fill(t, reflect.ValueOf(&full).Elem())
	same(t, messages.DeliveryBody{})
	same(t, full)
	for i := range full.Match.Candidates {
		full.Match.Candidates = full.Match.Candidates[:i]
		same(t, full)
	}
	full.Entry = json.RawMessage(" { \"a b\" :\t[ 1 , \"\\\" c\\\\\" ]\r\n}\n")
	same(t, full)
	full.SMTP.Enhanced = strings.Repeat("\u00e9\"", 400)
	same(t, full)
}

func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch at := v.Addr().Interface().(type) {
	case *messages.Time:
		at.Time = time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.FixedZone("", 8*3600))
		return
	case *json.RawMessage:
		*at = json.RawMessage(`{"to":"a@example.test","n":[1,2.50,null]}`)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(t, field)
		}
	case reflect.String:
		v.SetString("text of " + v.Type().Name())
	case reflect.Int:
		v.SetInt(-7)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	default:
		t.Fatalf("a field of kind %v is not encoded", v.Kind())
	}
}

// FuzzDelivery encodes any texts and any row: what a decoder takes for a row is encoded as by encoding/json.
func FuzzDelivery(f *testing.F) {
	f.Add("r1", "2.0.0", []byte(`{"to":"a@example.test"}`))
	f.Add("<&>\u2028\x7f\x00\"\\", "\xff", []byte(" [ \"\\\\\" , \"\\\"\" , {\"a\" :\n1} ] "))
	f.Add("", "5.1.1", []byte("\"\u2029<\xff\""))
	f.Fuzz(func(t *testing.T, text, enhanced string, row []byte) {
		var entry json.RawMessage
		if json.Unmarshal(row, &entry) != nil {
			return
		}
		same(t, messages.DeliveryBody{Common: messages.Common{RequestID: text}, EventID: text, Entry: entry,
			SMTP:  messages.SMTP{Enhanced: enhanced},
			Match: messages.Match{Confidence: messages.Confidence(text), Candidates: []string{text, enhanced}}})
		b := messages.DeliveryBody{Entry: row} // not trimmed
		same(t, b)
	})
}

// BenchmarkEncode compares the two.
func BenchmarkEncode(b *testing.B) {
	e := messages.Event{Operation: messages.Delivery, State: messages.Delivered, ID: "order-2026-000123", Body: &messages.DeliveryBody{
		Common: messages.Common{RequestID: "order-2026-000123", At: messages.Time{Time: time.Now()}}, EventID: strings.Repeat("0f", 16),
		Entry: json.RawMessage(`{"created_at":"2026-01-01T00:00:00Z","envelope_id":"018d5f1c2a3b4c5d6e","interface":"api",` +
			`"domain":"example.test","from":"sender@example.test","to":"payer1234@example.test","delivered":1,` +
			`"status":{"delivered":true,"ip":"192.0.2.25","mx":"mx1.example.test","response":"250 2.0.0 OK 4d2"}}`),
		SMTP: messages.SMTP{Code: 250, Enhanced: "2.0.0"}, Match: messages.Match{Confidence: messages.MatchExact, Batch: 3}, Recipient: "3.512"}}
	b.Run("standard_library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := e.Encode(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("body", func(b *testing.B) {
		b.ReportAllocs()
		c := encoder{source: "/errand/test", limit: func() int64 { return 1 << 20 }, identify: identify}
		for b.Loop() {
			if err := c.encodeBody(e); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("message", func(b *testing.B) {
		b.ReportAllocs()
		c := encoder{source: "/errand/test", limit: func() int64 { return 1 << 20 }, identify: identify}
		for b.Loop() {
			if _, err := c.encode(e); err != nil {
				b.Fatal(err)
			}
		}
	})
}
