package sink

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"errand/pkg/messages"
)

// BenchmarkEncode makes the message of a row.
func BenchmarkEncode(b *testing.B) {
	e := messages.Event{Operation: messages.Delivery, State: messages.Delivered, ID: "order-2026-000123", Body: &messages.DeliveryBody{
		Common: messages.Common{RequestID: "order-2026-000123", At: messages.Time{Time: time.Now()}}, EventID: strings.Repeat("0f", 16),
		Entry: json.RawMessage(`{"created_at":"2026-01-01T00:00:00Z","envelope_id":"018d5f1c2a3b4c5d6e","interface":"api",` +
			`"domain":"example.test","from":"sender@example.test","to":"payer1234@example.test","delivered":1,` +
			`"status":{"delivered":true,"ip":"192.0.2.25","mx":"mx1.example.test","response":"250 2.0.0 OK 4d2"}}`),
		SMTP: messages.SMTP{Code: 250, Enhanced: "2.0.0"}, Match: messages.Match{Confidence: messages.MatchExact, Batch: 3}, Recipient: "3.512"}}
	b.ReportAllocs()
	c := encoder{source: "/errand/test", limit: func() int64 { return 1 << 20 }, message: nats.Msg{Header: nats.Header{}}}
	for b.Loop() {
		if _, err := c.encode(e); err != nil {
			b.Fatal(err)
		}
	}
}
