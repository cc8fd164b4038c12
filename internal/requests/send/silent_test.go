package send

import (
	"net/http"
	"testing"
	"testing/synctest"

	"errand/internal/history/historytest"
	"errand/pkg/messages"
)

// A long message alone begins no hold; an outage does not use all its batches up.
func TestBatchesWaitBehindThoseOfUnknownFate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, log := handler(t, answers(http.StatusInternalServerError)), &historytest.Log{}
		h.Size, h.Parallel = 1, 1
		r := request(t, log, many(10))
		if _, err := h.Handle(t.Context(), r); !isLater(err) {
			t.Errorf("got %v, want to come back later", err)
		}
		uncertain := 0
		for _, s := range log.States() {
			if s == messages.Uncertain {
				uncertain++
			}
		}
		if uncertain > unknownBatches+1 || r.Permit.Spent() {
			t.Errorf("%d of 10 batches are uncertain, held: %v", uncertain, r.Permit.Spent())
		}
	})
}
