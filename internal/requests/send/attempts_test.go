package send

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/pkg/messages"
)

// Each batch counts its own submissions. Those of a message are all of them, whatever its last event knew of when a worker died.
func TestAMessageCountsTheSubmissionsOfItsBatches(t *testing.T) {
	for what, before := range map[string][]string{
		"nobody had it":                          nil,
		"a worker died before the first call":    {"send.started.r1"},
		"a worker died behind two":               {"send.started.r1", "batch.accepted.r1.1", "batch.accepted.r1.2"},
		"a worker died during the second":        {"send.started.r1", "batch.accepted.r1.1", "batch.started.r1.2"},
		"one was sent, and the message waited":   {"send.started.r1", "batch.accepted.r1.1", "send.deferred.r1"},
		"a worker died after the message waited": {"batch.accepted.r1.1", "send.deferred.r1", "send.started.r1", "batch.accepted.r1.2"},
	} {
		log := &historytest.Log{}
		r := request(t, log, many(3))
		for _, subject := range before {
			log.Put("mail."+subject, fmt.Appendf(nil, `{"attempt":1,"batches":3,"batch_size":1,"recipients":3,"accepted":1,"fingerprint":%q}`,
				r.History.Fingerprint))
		}
		h := handler(t, &upstream{})
		h.Size = 1
		ev, err := r.History.Settle(t.Context(), false, func(p history.Prior) (messages.Event, error) {
			r.Prior = p
			return h.Handle(context.WithoutCancel(t.Context()), r)
		})
		if err != nil || ev.Body.Head().Attempt != 3 {
			said, _ := json.Marshal(ev.Body)
			t.Errorf("%s: %v %s", what, err, said)
		}
	}
}
