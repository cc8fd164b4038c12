package send

import (
	"net/http"
	"testing"
	"testing/synctest"

	"errand/internal/history/historytest"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// broken answers that it failed.
type broken struct{}

func (broken) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusInternalServerError, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// A long message alone begins no hold; an outage does not use all its batches up.
func TestBatchesWaitBehindThoseOfUnknownFate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, log := handler(t, &upstream{to: map[string]int{}}), &historytest.Log{}
		h.Size, h.Parallel = 1, 1
		var err error
		h.Upstream, err = mail.New(mail.Config{URL: "http://127.0.0.1:1", Key: clients.NewSecret("key")}, clients.Transport(broken{}))
		if err != nil {
			t.Fatal(err)
		}
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
		if uncertain > unknownBatches+1 || r.Permit.Hold().Active() {
			t.Errorf("%d of 10 batches are uncertain, held: %q", uncertain, r.Permit.Hold().Why())
		}
	})
}
