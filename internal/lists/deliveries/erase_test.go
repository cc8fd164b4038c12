package deliveries

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// The poller that runs meanwhile knows whose rows they are, and publishes them without the row.
func TestRowsOfSomebodyWhoWasErasedArePublishedWithoutThem(t *testing.T) {
	inScenario(t, func(s *scenario) {
		to := people("a", 2)
		s.sends("r", to...)
		first := s.row(to[0], 0, messages.Deferred)
		s.run(2 * time.Minute)
		before, summaries := len(s.events), len(s.summaries("r"))
		s.consumer.put(messages.Send, messages.Erased, "r", &messages.ErasedBody{Common: messages.Common{RequestID: "r", At: now()}})
		first.state = messages.Delivered
		s.row(to[1], 2*time.Minute, messages.Bounced)
		s.run(10 * time.Minute)
		published := 0
		for _, e := range s.events[before:] {
			if e.Operation != messages.Delivery {
				continue
			}
			data, err := e.Encode()
			if published++; err != nil || e.ID != "r" || strings.Contains(string(data), "example") {
				s.Errorf("published %s %s, %v; want nothing of the recipient", e.Subject(), data, err)
			}
		}
		if published != 2 {
			s.Errorf("%d deliveries were published, want the two", published)
		}
		s.interval = 10 * time.Minute
		s.run(80 * time.Hour)
		if n := len(s.summaries("r")); n != summaries {
			s.Errorf("%d more summaries: %q", n-summaries, s.summaries("r"))
		}
	})
}

func TestTheIDsOfARowAreThoseOfAllItsEvents(t *testing.T) {
	t.Parallel()
	for row, e := range map[string]mail.Entry{
		`{"to":"ann@Example.test","envelope_id":"19b77cfb4c0abcdef0","status":{}}`: {EnvelopeID: "19b77cfb4c0abcdef0", To: "ann@Example.test"},
		`{"to":["ann@Example.test"],"envelope_id":"19b77cfb4c0abcdef0"}`:           {EnvelopeID: "19b77cfb4c0abcdef0"},
	} {
		ids := IDsOf(json.RawMessage(row))
		for state := delivered; state < statuses; state++ {
			id := idOf(e, state)
			if !slices.Contains(ids, hex.EncodeToString(id[:])) {
				t.Errorf("the id of %d of %s is not among %q", state, row, ids)
			}
		}
	}
	for _, row := range []string{"", "null", "{}", `{"to":"x"}`} {
		if ids := IDsOf(json.RawMessage(row)); len(ids) > 0 {
			t.Errorf("%s: got %q, want none", row, ids)
		}
	}
}
