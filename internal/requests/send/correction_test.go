package send

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/pkg/messages"
)

// The batches that were refused before a correction are sent after it, also if the replica
// that is asked for the correction has not got it yet.
func TestACorrectionSendsRefusedBatchesWhateverAReplicaKnows(t *testing.T) {
	log, taken := &historytest.Log{Lag: 1}, &upstream{to: map[string]int{}}
	deliver := func(transport http.RoundTripper, recipients int) messages.Event {
		h, r := handler(t, transport), request(t, log, many(recipients))
		r.History.Corrects, r.History.Published = historytest.Corrects, time.Now()
		ev, err := r.History.Settle(t.Context(), false, func(p history.Prior) (messages.Event, error) {
			r.Prior = p
			return h.Handle(t.Context(), r)
		})
		if err != nil {
			t.Fatal(err)
		}
		return ev
	}
	if ev := deliver(answers(http.StatusUnprocessableEntity), 2500); ev.State != messages.Failed {
		t.Fatalf("%s, want failed", ev.State)
	}
	if ev := deliver(taken, 2501); ev.State != messages.Accepted || len(taken.to) != 2501 {
		t.Errorf("%s, and %d recipients served; want accepted, 2501", ev.State, len(taken.to))
	}
}

// A request that was opened again begins anew: its batches neither wait for what they waited for before, nor count what
// they met.
func TestBatchesOfAReopenedMessageBeginAnew(t *testing.T) {
	for what, c := range map[string]struct {
		batch   string
		named   []int
		unknown bool
	}{
		"corrected, and the first one waits":  {batch: "deferred"},
		"redriven, the first one was to wait": {batch: "deferred", named: []int{1, 2, 3}},
		"in doubt, and accepted by name":      {batch: "deferred", named: []int{1, 2, 3}, unknown: true},
		"its worker died, accepted by name":   {batch: "started", named: []int{1, 2, 3}, unknown: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			log, taken := &historytest.Log{}, &upstream{to: map[string]int{}}
			h, r := handler(t, taken), request(t, log, many(3))
			h.Size = 1
			r.GiveUpAt = time.Now().Add(10 * time.Minute)
			log.Put("mail.send.started.r1", fmt.Appendf(nil, `{"fingerprint":%q,"batches":3,"batch_size":1,"recipients":3}`, r.History.Fingerprint))
			if c.batch == "deferred" {
				log.Put("mail.batch.deferred.r1.1", encoded(t, &messages.BatchBody{Batch: 1, Count: 1, Reason: messages.ReasonNoAnswer,
					HeldCount: 4, AfterUnknown: c.unknown, NotBefore: &messages.Time{Time: time.Now().Add(15 * time.Minute)}}))
			} else {
				log.Put("mail.batch.started.r1.1", encoded(t, &messages.BatchBody{Batch: 1, Count: 1,
					Deadline: &messages.Time{Time: time.Now().Add(-time.Minute)}}))
			}
			was := messages.PriorOutcome{State: messages.Failed, Reason: messages.ReasonCancelled}
			if c.unknown {
				was = messages.PriorOutcome{State: messages.Uncertain, Reason: messages.ReasonInterrupted}
			}
			by := "ann"
			if c.named == nil {
				by = messages.ByCorrection
			}
			log.Put("mail.send.reopened.r1", encoded(t, &messages.ReopenedBody{By: by, Fingerprint: r.History.Fingerprint, BatchSize: 1,
				Was: was, AfterUnknown: c.unknown, Batches: c.named}))
			var err error
			if r.Prior, err = r.History.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
			ev, err := h.Handle(t.Context(), r)
			if err != nil || ev.State != messages.Accepted || len(taken.to) != 3 {
				t.Errorf("%s: %s, %v, and %d were sent the mail; want all 3", what, ev.State, err, len(taken.to))
			}
		})
	}
}

// The first delivery guesses that nothing is known of its request. Batches of the contents that it corrects, or of a message
// that is under way, are then none of its own.
func TestACorrectionIsSentAtOnceThoughABatchOfWhatItCorrectsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, taken := &historytest.Log{}, &upstream{to: map[string]int{}}
		log.Put("mail.send.started.r1", []byte(`{"fingerprint":"other","batches":2,"batch_size":1,"recipients":2}`))
		log.Put("mail.batch.deferred.r1.1", encoded(t, &messages.BatchBody{Batch: 1, Count: 1, Reason: messages.ReasonBusy,
			NotBefore: &messages.Time{Time: time.Now().Add(15 * time.Minute)}}))
		log.Put("mail.send.failed.r1", []byte(`{"fingerprint":"other","reason":"cancelled"}`))
		time.Sleep(time.Second)
		h, r := handler(t, taken), request(t, log, many(3))
		h.Size, h.Parallel, r.GiveUpAt = 1, 1, time.Now().Add(10*time.Minute)
		r.History.Corrects, r.History.Published = historytest.Corrects, time.Now()
		ev, err := r.History.Settle(t.Context(), true, func(p history.Prior) (messages.Event, error) {
			r.Prior = p
			return h.Handle(t.Context(), r)
		})
		if err != nil || ev.State != messages.Accepted || len(taken.to) != 3 {
			t.Errorf("%s, %v, and %d were sent the mail; want all 3", ev.State, err, len(taken.to))
		}
	})
}
