package consumer

import (
	"strings"
	"testing"
)

// While programs are replaced by newer ones, an old one may take what only they understand.
func TestWhatLooksInvalidIsLeftToNewerPrograms(t *testing.T) {
	h := newHarness(t)
	h.Newer = func() bool { return true }
	body := enrollment(map[string]any{"request_id": "a1", "field_of_tomorrow": 1})
	if got := h.deliver(t.Context(), body, 1); !strings.HasPrefix(got, "nak ") {
		t.Errorf("while newer programs are rolled out: got %s, want nak", got)
	}
	h.eventsAre()
	if got := h.deliver(t.Context(), request, 1); got != "+ACK" {
		t.Errorf("a request of today, meanwhile: got %s", got)
	}
	h.eventsAre("a1 succeeded")
}

func TestWhatLooksInvalidIsGivenUpInTheEnd(t *testing.T) {
	h := newHarness(t)
	h.Newer = func() bool { return true }
	h.GiveUpAfter = 0
	if got := h.deliver(t.Context(), enrollment(map[string]any{"request_id": "a1", "field_of_tomorrow": 1}), 1); got != "+ACK" {
		t.Errorf("got %s", got)
	}
	h.eventsAre("a1 failed")
}
