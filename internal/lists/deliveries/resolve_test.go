package deliveries

import (
	"context"
	"slices"
	"testing"
	"time"

	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// Only a row of a message that was accepted during the call, and that can be of no other, proves that it was sent.
func TestOnlyARowFromDuringTheCallProvesThatItWasSent(t *testing.T) {
	const to = "x@example.test"
	for name, c := range map[string]struct {
		from string        // the row's sender
		at   time.Duration // when the message was accepted, after the call began; 0: there is no row
		then func(s *scenario)
		want bool
	}{
		"no row":                           {},
		"during it":                        {at: 500 * time.Millisecond, want: true},
		"ten minutes after it":             {at: 10 * time.Minute},
		"just after it":                    {at: 1500 * time.Millisecond},
		"just before it":                   {at: -time.Second},
		"half an hour after it":            {at: 30 * time.Minute},
		"during it, by another sender":     {at: 500 * time.Millisecond, from: "bounce@elsewhere.test"},
		"after it, by another sender":      {at: 10 * time.Minute, from: "bounce@elsewhere.test"},
		"another call's, which was taken":  {at: 20*time.Minute + 500*time.Millisecond, then: func(s *scenario) { s.sends("other", to) }},
		"another call's, which is unknown": {at: 20*time.Minute + 500*time.Millisecond, then: func(s *scenario) { s.loses("other", to) }},
		"of two calls at once":             {at: 500 * time.Millisecond, then: func(s *scenario) { s.sends("other", to) }},
	} {
		t.Run(name, func(t *testing.T) {
			inScenario(t, func(s *scenario) {
				s.started("r", 1, 1)
				began := time.Now()
				if c.then != nil && c.at < time.Minute {
					s.callsFrom("", "other", 1, 0, to)
					time.Sleep(time.Until(began)) // both calls begin at once
				}
				s.callsFrom("shop@example.test", "r", 1, 0, to)
				s.ends("r", messages.Uncertain, 1, 1, 0, messages.Unsettled{Batch: 1, Count: 1, State: messages.Uncertain})
				if c.then != nil && c.at > time.Minute {
					time.Sleep(20*time.Minute - time.Second)
					c.then(s)
				}
				time.Sleep(max(0, time.Until(began.Add(c.at))))
				if c.at != 0 {
					s.row(to, time.Since(began)-c.at, messages.Delivered).from = c.from
				}
				s.run(time.Minute)
				s.run(2 * time.Hour)
				var resolved []string
				for _, r := range s.consumer.resolved {
					resolved = append(resolved, r.RequestID+" "+string(r.Outcome))
				}
				if got := slices.Equal(resolved, []string{"r accepted"}); got != c.want || !got && resolved != nil {
					t.Errorf("resolved %q, want it proven: %t", resolved, c.want)
				}
			})
		})
	}
}

// The service's clock is four seconds ahead, and two calls to one person are four seconds
// apart: the Date of its answers shows whose the rows are.
func TestRowsAreMatchedByOurClock(t *testing.T) {
	inScenario(t, func(s *scenario) {
		const ahead = 4 * time.Second
		s.config.Read = func(context.Context, int, int) (mail.LogPage, error) {
			time.Sleep(100 * time.Millisecond)
			return mail.LogPage{Date: time.Now().Add(ahead).Truncate(time.Second)}, nil
		}
		s.restart()
		for range 5 {
			if _, err := s.log.Page(s.Context(), 1, 100); err != nil {
				t.Fatal(err)
			}
			time.Sleep(770 * time.Millisecond)
		}
		var calls []time.Time
		for _, id := range []string{"first", "second"} {
			calls = append(calls, time.Now())
			s.sends(id, "x@example.test")
			time.Sleep(3 * time.Second)
		}
		for _, at := range calls {
			s.row("x@example.test", time.Since(at)-500*time.Millisecond-ahead, messages.Delivered)
		}
		s.sweep()
		for _, id := range []string{"first", "second"} {
			all := s.eventsOf(messages.Delivery, messages.Delivered, id)
			if len(all) != 1 || all[0].Body.(*messages.DeliveryBody).Match.Confidence != messages.MatchExact {
				t.Fatalf("%s: %d rows, want its own, exactly", id, len(all))
			}
		}
		if got, want := s.eventsOf(messages.Delivery, messages.Delivered,
			"first")[0].Body.(*messages.DeliveryBody).EventID, text(idOf(s.rows[0].entry(), delivered)); got != want {
			t.Error("the first call has the row of the second")
		}
	})
}
