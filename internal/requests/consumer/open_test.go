package consumer

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/pkg/messages"
)

func TestARequestGoesByTheIDItNamesElseByItsQueues(t *testing.T) {
	h := newHarness(t)
	const own, atItsTime = "own", "own at its time"
	for _, c := range []struct {
		what, header, body string
		ids                []string
		valid              bool
	}{
		{"the body's", "h1", enrollment(map[string]any{"request_id": "a1"}), []string{"a1", own, atItsTime}, true},
		{"the header's", "h1", enrollment(nil), []string{"h1", own, atItsTime}, true},
		{"none", "", enrollment(nil), []string{own, atItsTime}, true},
		{"a header that does not fit", "h 1", enrollment(nil), []string{own, atItsTime}, true},
		{"a reserved word in the header", "unmatched", enrollment(nil), []string{own, atItsTime}, true},
		{"a queue's own id in the header", "MANDATE_REQUESTS-7", enrollment(nil), []string{own, atItsTime}, true},
		{"a body's that does not fit", "h1", enrollment(map[string]any{"request_id": "a 1"}), []string{own, atItsTime}, false},
		{"a reserved word in the body", "h1", enrollment(map[string]any{"request_id": "unmatched"}), []string{own, atItsTime}, false},
		{"a queue's own id in the body", "h1", enrollment(map[string]any{"request_id": "MAIL_REQUESTS-7"}), []string{own, atItsTime}, false},
		{"another fault, the body's", "h1", enrollment(map[string]any{"request_id": "a1", "amount": "1"}), []string{"a1", own, atItsTime}, false},
		{"another fault, the header's", "h1", enrollment(map[string]any{"amount": "1"}), []string{"h1", own, atItsTime}, false},
		{"a field that nobody knows", "h1", enrollment(map[string]any{"amout": "100"}), []string{"h1", own, atItsTime}, false},
		{"no JSON", "h1", "hello", []string{own, atItsTime}, false},
		{"no object", "h1", `["a1"]`, []string{own, atItsTime}, false},
		{"no body", "h1", "", []string{own, atItsTime}, false},
	} {
		d := h.open(c.header, c.body, 1)
		var got []string
		for _, id := range d.ids {
			got = append(got, h.name(id))
		}
		if diff := cmp.Diff(c.ids, got); diff != "" {
			t.Errorf("%s: ids (-want +got):\n%s", c.what, diff)
		}
		if valid := d.invalid == nil; valid != c.valid {
			t.Errorf("%s: valid %t, want %t: %v", c.what, valid, c.valid, d.invalid)
		}
	}
}

func TestWhatIsNoJSONIsToldApartByItsBytes(t *testing.T) {
	h := newHarness(t)
	sum := sha256.Sum256([]byte("hello"))
	if got, want := h.open("", "hello", 1).digest, hex.EncodeToString(sum[:]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	one, same := h.open("", enrollment(map[string]any{"request_id": "a1"}), 1), h.open("", enrollment(map[string]any{"request_id": "a2"}), 1)
	if one.digest == "" || one.digest != same.digest {
		t.Errorf("the fingerprints of the same request are %s and %s", one.digest, same.digest)
	}
}

func TestGiveUpAtIsBoundByHowLongEventsAreKept(t *testing.T) {
	h := newHarness(t)
	const day = 24 * time.Hour
	for _, c := range []struct {
		named, after, kept, want time.Duration // since it was published; named 0 means that the request names no time
		valid                    bool
	}{
		{0, day, 0, day, true},
		{0, day, 30 * day, day, true},
		{0, day, 30 * time.Hour, 15 * time.Hour, true},
		{0, 30 * day, 0, 7 * day, true},
		{time.Hour, day, 30 * day, time.Hour, true},
		{6 * day, day, 30 * day, 6 * day, true},
		{-time.Hour, day, 30 * day, -time.Hour, true},
		{8 * day, day, 30 * day, day, false}, // newer programs have no longer for it
		{2 * day, day, 2 * day, day, false},
	} {
		h.GiveUpAfter, h.Kept = c.after, func() time.Duration { return c.kept }
		body, near := enrollment(nil), time.Millisecond
		if c.named != 0 {
			body = enrollment(map[string]any{"give_up_at": time.Now().Add(c.named).Format(time.RFC3339)})
			near = 2 * time.Second
		}
		d := h.open("", body, 1)
		if got := d.giveUp.Sub(d.Published); (got-c.want).Abs() > near || (d.invalid == nil) != c.valid {
			t.Errorf("names %v, given up after %v, events kept %v: got %v, %v; want %v, valid %t", c.named, c.after, c.kept, got, d.invalid, c.want,
				c.valid)
		}
	}
}

// Nobody knows what a body names that cannot be read.
func TestAMessageThatMakesTheDecoderPanicGoesByItsQueuesID(t *testing.T) {
	h := newHarness(t)
	h.read = func([]byte) (messages.EnrollRequest, messages.Meta, error) { panic("a payer's data") }
	if d := h.open("h1", enrollment(nil), 1); h.name(d.ids[0]) != "own" {
		t.Errorf("it goes by %q", d.ids)
	}
}
