package sink

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/lists/sweep"
	"errand/pkg/messages"
)

// A mark is the same after its event was stored and read, to the millisecond; what is zero stays so.
func TestAMarkIsReadAsItWasStored(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 123_000_000, time.UTC)
	for _, m := range []sweep.Mark{
		{},
		{At: at},
		{At: at, CompleteThrough: at.Add(-time.Minute), Since: at.Add(-48 * time.Hour), Total: 70, New: 3, NewestFirst: true, Scanned: 50},
		{At: at, CompleteThrough: at, Scanned: 25},
		{At: at, CompleteThrough: at, Since: at.Add(-time.Hour), New: 1},
	} {
		e := messages.Event{Operation: messages.Transactions, State: messages.Marked, Body: watermarkOf(m)}
		data, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Contains(data, []byte("since")); got != !m.Since.IsZero() {
			t.Errorf("%s: a time that is not known is written: %t", data, got)
		}
		var w messages.Watermark
		if err := messages.DecodeEvent(data, &w); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if diff := cmp.Diff(m, markOf(w)); diff != "" {
			t.Errorf("%s (-stored +read):\n%s", data, diff)
		}
	}
}

// A watermark of another version, whose order is not known here, is one of a list without order.
func TestAWatermarkWithoutAnOrderIsOfAListWithoutOne(t *testing.T) {
	var w messages.Watermark
	newer := `{"at":"2026-05-01T12:00:00Z","complete_through":"2026-05-01T11:00:00Z","by":"something new"}`
	if err := json.Unmarshal([]byte(newer), &w); err != nil {
		t.Fatal(err)
	}
	if m := markOf(w); m.NewestFirst || !m.Since.IsZero() || m.CompleteThrough.IsZero() {
		t.Errorf("%+v", m)
	}
}
