package messages

import (
	"fmt"
	"strings"
	"testing"

	"errand/internal/wire/mailkey"
)

func BenchmarkDecodeEnroll(b *testing.B) {
	data := []byte(enrollSample)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Decode[EnrollRequest](data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeSendOfAHundredThousandRecipients(b *testing.B) {
	data := []byte(`{"subject":"Hello","content":"Hello there","to":` + manyRecipients(100_000) + `}`)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Decode[SendRequest](data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAHundredThousandRecipients(b *testing.B) {
	r := SendRequest{To: []byte(manyRecipients(100_000))}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for text := range r.Addresses() {
			address, err := ParseRecipient(text)
			if err != nil {
				b.Fatal(err)
			}
			if mailkey.NewSecret("secret").KeyOf(address) != 0 {
				n++
			}
		}
		if n != 100_000 {
			b.Fatalf("got %d recipients, want 100000", n)
		}
	}
}

func BenchmarkLines(b *testing.B) {
	text := strings.Repeat("some.person.with.a.name@subdomain.example.test\n", 10_000)
	b.ReportAllocs()
	for b.Loop() {
		for line, err := range Lines(strings.NewReader(text)) {
			if err != nil || line == "" {
				b.Fatal(line, err)
			}
		}
	}
}

func BenchmarkEncodeOutcome(b *testing.B) {
	e := Event{Operation: Send, State: Accepted, ID: "a", Body: &SendOutcome{Recipients: 1, Accepted: 1, Batches: 1}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}

func manyRecipients(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"recipient-number-%06d.of.the.list@subdomain-%d.example.test"`, i, i%100)
	}
	return "[" + b.String()[1:] + "]"
}
