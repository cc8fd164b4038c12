package deliveries

import (
	"context"
	"slices"
	"testing"
	"time"

	"errand/internal/lists/sweep"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// Only a row of a message that was accepted during the call, and that can be of no other,
// proves that it was sent. Any other row that may be of it leaves it unclear, also for a
// poller that learns of it from the events. What is certainly of another call that was
// accepted says nothing.
func TestOnlyARowFromDuringTheCallProvesThatItWasSent(t *testing.T) {
	const to = "x@example.test"
	for name, c := range map[string]struct {
		from string        // the row's sender
		at   time.Duration // when the message was accepted, after the call began
		then func(s *scenario)
		want string
	}{
		"during it":                        {at: 500 * time.Millisecond, want: "accepted, 1 of 1"},
		"ten minutes after it":             {at: 10 * time.Minute, want: "unclear, 0 of 1"},
		"just after it":                    {at: 1500 * time.Millisecond, want: "unclear, 0 of 1"},
		"just before it":                   {at: -time.Second, want: "unclear, 0 of 1"},
		"half an hour after it":            {at: 30 * time.Minute, want: "unclear, 0 of 1"},
		"hours after it":                   {at: 2 * time.Hour, want: "not_sent, 0 of 1"},
		"during it, by another sender":     {at: 500 * time.Millisecond, from: "bounce@elsewhere.test", want: "unclear, 0 of 1"},
		"after it, by another sender":      {at: 10 * time.Minute, from: "bounce@elsewhere.test", want: "unclear, 0 of 1"},
		"another call's, which was taken":  {at: 20*time.Minute + 500*time.Millisecond, then: func(s *scenario) { s.sends("other", to) }, want: "not_sent, 0 of 1"},
		"another call's, which is unknown": {at: 20*time.Minute + 500*time.Millisecond, then: func(s *scenario) { s.loses("other", to) }, want: "unclear, 0 of 1"},
		"another call's, or somebody's":    {at: 20*time.Minute + 1500*time.Millisecond, then: func(s *scenario) { s.sends("other", to) }, want: "unclear, 0 of 1"},
	} {
		t.Run(name, func(t *testing.T) {
			inScenario(t, func(s *scenario) {
				s.started("r", 1, 1)
				began := time.Now()
				s.callsFrom("shop@example.test", "r", 1, 0, to)
				s.waits("r")
				if c.then != nil {
					time.Sleep(20*time.Minute - time.Second)
					c.then(s)
				}
				time.Sleep(max(0, time.Until(began.Add(c.at))))
				if time.Since(began) < 2*time.Hour {
					s.row(to, time.Since(began)-c.at, messages.Delivered).from = c.from
				}
				s.run(time.Minute)
				s.run(2 * time.Hour)
				if got := s.concluded("r", 1); !slices.Equal(got, []string{c.want}) {
					t.Errorf("concluded %q, want %s", got, c.want)
				}
			})
		})
	}
}

// Two calls to one person at once, one of them of unknown fate: a row may be of either.
func TestARowThatMayBeOfTwoCallsLeavesThemUnclear(t *testing.T) {
	inScenario(t, func(s *scenario) {
		s.loses("lost", "x@example.test")
		s.sends("sent", "x@example.test")
		s.row("x@example.test", time.Second, messages.Delivered)
		s.run(time.Minute)
		s.run(2 * time.Hour)
		if got, want := s.concluded("lost", 1), []string{"unclear, 0 of 1"}; !slices.Equal(got, want) {
			t.Errorf("concluded %q, want %q", got, want)
		}
	})
}

// That a call was not sent is concluded only from a log that was watched since before the
// call, and that reaches from before it to long after it. What is not read yet is wanted.
func TestNotSentTakesALogThatWouldShowIt(t *testing.T) {
	const due = time.Hour + 36*time.Second // the call was announced to take 35 s
	for name, c := range map[string]struct {
		change func(s *sweep.Swept, began time.Time)
		want   bool
		wanted bool
	}{
		"it was":                              {want: true},
		"nobody watched before the call":      {change: func(s *sweep.Swept, began time.Time) { s.WatchedSince = began.Add(time.Millisecond) }},
		"it was watched since the call":       {change: func(s *sweep.Swept, began time.Time) { s.WatchedSince = began }, want: true},
		"it is unknown who watched":           {change: func(s *sweep.Swept, _ time.Time) { s.WatchedSince = time.Time{} }},
		"it was not read":                     {change: func(s *sweep.Swept, _ time.Time) { s.Reading = sweep.Reading{} }, wanted: true},
		"it was read too early":               {change: func(s *sweep.Swept, began time.Time) { s.Reading.Began = began.Add(due - 2*time.Second) }, wanted: true},
		"it was read back to after the call":  {change: func(s *sweep.Swept, began time.Time) { s.Reading.Back = began }, wanted: true},
		"it was read back to before the call": {change: func(s *sweep.Swept, began time.Time) { s.Reading.Back = began.Add(-time.Millisecond) }, want: true},
		"it begins after the call":            {change: func(s *sweep.Swept, began time.Time) { s.Reading.Oldest = began }},
		"it begins just before the call":      {change: func(s *sweep.Swept, began time.Time) { s.Reading.Oldest = began.Add(-time.Millisecond) }, want: true},
		"it is empty": {change: func(s *sweep.Swept, _ time.Time) {
			s.Reading.Oldest, s.Reading.Newest, s.CompleteThrough = time.Time{}, time.Time{}, time.Time{}
		}},
		"it has not moved on": {change: func(s *sweep.Swept, began time.Time) {
			s.Reading.Newest = began.Add(due - 2*time.Second)
			s.CompleteThrough = s.Reading.Newest
		}},
		"it was read before it moved on":       {change: func(s *sweep.Swept, began time.Time) { s.Reading.Newest = began.Add(due - 2*time.Second) }, wanted: true},
		"it counts rows that it does not show": {change: func(s *sweep.Swept, _ time.Time) { s.Reading.Missing = true }},
		"it counted more than it showed":       {change: func(s *sweep.Swept, _ time.Time) { s.Reading.Short = true }},
	} {
		t.Run(name, func(t *testing.T) {
			inScenario(t, func(s *scenario) {
				began := time.Now()
				s.loses("r", "x@example.test")
				s.started("ended", 1, 1)
				time.Sleep(time.Until(began)) // both calls begin at once
				s.consumer.put(messages.Log, messages.Sent, "ended.1", &messages.SentBody{Common: messages.Common{RequestID: "ended", At: now()}, Batch: 1, Count: 1,
					Begin: messages.Time{Time: began}, Until: messages.Time{Time: began.Add(35 * time.Second)}, Keys: keysOf("y@example.test")})
				s.ends("ended", messages.Uncertain, 1, 1, 0, messages.Unsettled{Batch: 1, Count: 1, State: messages.Uncertain})
				time.Sleep(time.Until(began.Add(due)))
				swept := s.sweptAt(time.Now())
				if c.change != nil {
					c.change(&swept, began)
				}
				s.swept = func() sweep.Swept { return swept }
				wanted := s.sweep()
				if got := []bool{len(s.concluded("r", 1)) > 0, len(s.consumer.resolved) > 0}; !slices.Equal(got, []bool{c.want, c.want}) {
					t.Errorf("concluded and resolved: %v, want %t", got, c.want)
				}
				if c.wanted != !wanted.IsZero() || c.wanted && !wanted.Equal(began.Add(-time.Minute)) {
					t.Errorf("wanted %v, want since %v: %t", wanted, began, c.wanted)
				}
			})
		})
	}
}

// The row of a call was published, and its event has aged out before somebody took the call
// over: that it is not known any more proves nothing.
func TestNotSentTakesAllEventsSinceTheCall(t *testing.T) {
	for name, c := range map[string]struct {
		kept time.Duration // after the call
		want []string
	}{"kept": {-time.Millisecond, []string{"not_sent, 0 of 1"}}, "aged out": {time.Millisecond, nil}} {
		t.Run(name, func(t *testing.T) {
			inScenario(t, func(s *scenario) {
				s.kept = time.Now().Add(c.kept)
				s.loses("r", "x@example.test")
				s.run(2 * time.Hour)
				if got := s.concluded("r", 1); !slices.Equal(got, c.want) {
					t.Errorf("concluded %q, want %q", got, c.want)
				}
			})
		})
	}
}

// The record of a batch's first call is gone, and what its rows were with it: the later ones
// leave it unclear.
func TestNotSentTakesTheRecordsOfAllCalls(t *testing.T) {
	for attempt, want := range map[int][]string{1: {"not_sent, 0 of 1"}, 2: {"unclear, 0 of 1"}} {
		inScenario(t, func(s *scenario) {
			s.started("r", 1, 1)
			b := &messages.SentBody{Common: messages.Common{RequestID: "r", At: now(), Attempt: attempt}, Batch: 1, Count: 1, Begin: now(), Until: messages.Time{Time: time.Now().Add(35 * time.Second)}}
			b.SetKeys(nil, "", []string{"x@example.test"})
			s.consumer.put(messages.Log, messages.Sent, "r.1", b)
			time.Sleep(time.Second)
			s.waits("r")
			s.run(2 * time.Hour)
			if got := s.concluded("r", 1); !slices.Equal(got, want) {
				t.Errorf("attempt %d: concluded %q, want %q", attempt, got, want)
			}
		})
	}
}

// One poller has a doubt that another one does not have: they do not conclude in turn.
func TestPollersThatDifferDoNotConcludeInTurn(t *testing.T) {
	inScenario(t, func(s *scenario) {
		s.loses("r", "x@example.test")
		s.run(2 * time.Hour)
		first := s.eventsOf(messages.Log, messages.Concluded, "r.1")[0]
		body := *first.Body.(*messages.ConcludedBody)
		body.Outcome = messages.Unclear
		first.Body = &body
		s.events = append(s.events, stored{first.Event, time.Now()})
		s.run(time.Hour)
		if got, want := s.concluded("r", 1), []string{"not_sent, 0 of 1", "unclear, 0 of 1"}; !slices.Equal(got, want) {
			t.Errorf("concluded %q, want %q", got, want)
		}
	})
}

// A log in which our own later calls do not show is no proof.
func TestNotSentTakesALogThatShowsOurOtherCalls(t *testing.T) {
	inScenario(t, func(s *scenario) {
		s.sends("before", "b@example.test")
		s.loses("r", "x@example.test")
		s.sends("one", "y@example.test")
		one := time.Now().Add(-500 * time.Millisecond)
		s.sends("two", "z@example.test")
		s.run(3 * time.Hour)
		if got := s.concluded("r", 1); got != nil {
			t.Errorf("concluded %q while no later call shows", got)
		}
		s.row("y@example.test", time.Since(one), messages.Delivered)
		s.run(time.Minute)
		if got, want := s.concluded("r", 1), []string{"not_sent, 0 of 1"}; !slices.Equal(got, want) {
			t.Errorf("concluded %q, want %q", got, want)
		}
	})
}

// What is concluded or can never be wants nothing to be read again.
func TestOnlyWhatCanBeConcludedIsWanted(t *testing.T) {
	inScenario(t, func(s *scenario) {
		s.loses("concluded", "x@example.test")
		s.started("doubtful", 1, 1)
		s.calls("doubtful", 1, 0, "y@example.test")
		s.ends("doubtful", messages.Uncertain, 1, 1, 0, messages.Unsettled{Batch: 1, Count: 1, State: messages.Uncertain})
		s.row("y@example.test", -2*time.Second, messages.Delivered)
		s.run(2 * time.Hour)
		last := s.sweptAt(time.Now())
		last.Reading.Back = time.Now().Add(-time.Minute)
		s.swept = func() sweep.Swept { return last }
		if wanted := s.sweep(); !wanted.IsZero() {
			t.Errorf("wanted since %v", wanted)
		}
		began := time.Now()
		s.loses("new", "z@example.test")
		if wanted := s.sweep(); !wanted.IsZero() {
			t.Errorf("wanted since %v before it is due", wanted)
		}
		time.Sleep(time.Hour + time.Minute)
		if wanted := s.sweep(); !wanted.IsZero() {
			t.Errorf("wanted since %v before the log has gone on", wanted)
		}
		last.CompleteThrough = time.Now()
		if wanted := s.sweep(); !wanted.Equal(began.Add(-time.Minute)) {
			t.Errorf("wanted since %v, want %v", wanted, began)
		}
	})
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
		if got, want := s.eventsOf(messages.Delivery, messages.Delivered, "first")[0].Body.(*messages.DeliveryBody).EventID, text(idOf(s.rows[0].entry(), messages.Delivered)); got != want {
			t.Error("the first call has the row of the second")
		}
	})
}
