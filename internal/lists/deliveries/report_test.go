package deliveries

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/lists/sweep"
	"errand/pkg/messages"
)

// Ten recipients get their rows one after the other, every 20 seconds, and pollers are
// replaced: a request has at most one summary a minute, and the last one is right.
func TestSummariesOfARequestAreAMinuteApart(t *testing.T) {
	inScenario(t, func(s *scenario) {
		to := people("a", 10)
		s.sends("r", to...)
		for n, address := range to {
			s.row(address, time.Duration(n*20)*time.Second+500*time.Millisecond, messages.Deferred)
			s.run(10 * time.Second)
			if n%2 == 0 {
				s.rows[n].state = messages.Delivered
			}
			s.run(10 * time.Second)
		}
		s.rows[3].state = messages.Bounced
		s.rows[5].state = messages.Unknown
		s.run(3 * time.Minute)
		s.run(3 * time.Minute)
		all := s.summaries("r")
		if len(all) < 4 || len(all) > 6 {
			s.Errorf("%d summaries in 7 minutes: %q", len(all), all)
		}
		if want := "10 of 10: 5 delivered, 3 deferred, 1 bounced, 1 unknown, 0 queued, final false"; all[len(all)-1] != want {
			s.Errorf("the last one is %s, want %s", all[len(all)-1], want)
		}
		s.interval = 10 * time.Minute
		s.run(68 * time.Hour)
		if n := len(s.summaries("r")); n != len(all) {
			s.Errorf("%d summaries while nothing happened", n-len(all))
		}
		s.row("stranger@example.test", 0, messages.Delivered) // so that the log is complete up to today
		s.run(time.Minute)
		s.run(10 * time.Hour)
		s.run(time.Hour)
		want := append(all, "10 of 10: 5 delivered, 3 deferred, 1 bounced, 1 unknown, 0 queued, final true")
		if diff := cmp.Diff(want, s.summaries("r")); diff != "" {
			s.Errorf("after three days (-want +got):\n%s", diff)
		}
		s.rows[1].state = messages.Delivered
		s.run(10 * time.Minute)
		if n := len(s.summaries("r")); n != len(want) {
			s.Errorf("%d summaries after the final one", n-len(want))
		}
	})
}

// A summary is final when all recipients are delivered or bounced and the request has ended, not before.
func TestASummaryIsFinalWhenTheRequestHasEndedAndEveryRecipientIsSettled(t *testing.T) {
	inScenario(t, func(s *scenario) {
		s.started("r", 4, 2)
		s.calls("r", 1, 0, people("a", 2)...)
		accepted := 2
		s.consumer.put(messages.Batch, messages.Accepted, "r.1", &messages.BatchBody{Common: messages.Common{RequestID: "r", At: now()},
			Batch: 1, Count: 2, Accepted: &accepted})
		s.row("a0@example.test", 500*time.Millisecond, messages.Delivered)
		s.row("a1@example.test", 500*time.Millisecond, messages.Bounced)
		s.run(3 * time.Minute)
		s.calls("r", 2, 2, people("b", 2)...)
		s.ends("r", messages.Partial, 4, 2, 3)
		s.run(2 * time.Minute)
		s.row("b0@example.test", 2*time.Minute+500*time.Millisecond, messages.Delivered)
		s.run(2 * time.Minute)
		want := []string{"2 of 4: 1 delivered, 0 deferred, 1 bounced, 0 unknown, 0 queued, final false",
			"3 of 4: 1 delivered, 0 deferred, 1 bounced, 0 unknown, 1 queued, final false",
			"3 of 4: 2 delivered, 0 deferred, 1 bounced, 0 unknown, 0 queued, final true"}
		if diff := cmp.Diff(want, s.summaries("r")); diff != "" {
			s.Errorf("summaries (-want +got):\n%s", diff)
		}
	})
}

// known is what a Log knows.
type known struct {
	Counts map[string][statuses]int
	Notes  map[string]request
	Proven map[place]bool
	Open   map[string]int
	Rows   map[uint64]held
}

func knownTo(l *Log) known {
	k := known{map[string][statuses]int{}, map[string]request{}, map[place]bool{},
		map[string]int{}, map[uint64]held{}}
	for _, g := range l.calls.generations {
		maps.Copy(k.Rows, g.rows)
		for n, r := range g.requests {
			id := string(g.id(uint32(n)))
			r.changed = false
			k.Counts[id], k.Notes[id] = g.counts(&r), r
			for n := range 4 {
				k.Proven[place{id, 1, n}] = stateAt(&l.calls, place{id, 1, n}).proven
			}
		}
	}
	for id, u := range l.open {
		for _, b := range u.batches {
			k.Open[messages.BatchID(id, b.Batch)] = b.Count
		}
	}
	return k
}

// Events that are learned twice, because more of them were requested, count once.
func TestEventsThatAreLearnedTwiceCountOnce(t *testing.T) {
	inScenario(t, func(s *scenario) {
		s.sends("settled", people("a", 3)...)
		s.sends("open", people("b", 4)...)
		s.sends("twin", "x@example.test")
		s.started("waits", 1, 1)
		s.calls("waits", 1, 0, "x@example.test")
		s.waits("waits")
		s.started("lost", 1, 1)
		s.calls("lost", 1, 0, "y@example.test")
		s.waits("lost")
		for i, address := range people("a", 3) {
			s.row(address, 4*time.Second+500*time.Millisecond, []messages.State{messages.Deferred, messages.Bounced, messages.Delivered}[i])
		}
		s.row("b0@example.test", 3*time.Second+500*time.Millisecond, messages.Deferred)
		s.row("b1@example.test", 3*time.Second+500*time.Millisecond, messages.Deferred)
		s.row("x@example.test", 0, messages.Delivered).envelope = "without a time"
		s.run(time.Minute)
		s.rows[0].state = messages.Delivered
		s.rows[4].state = messages.Bounced
		s.run(2 * time.Hour)
		published := len(s.events)
		s.restart()
		var first known
		options := cmp.AllowUnexported(request{}, place{}, held{})
		for i := range 4 {
			s.log.Store.(*store).next = 0 // so that everything is learned again
			s.learn()
			if i == 0 {
				first = knownTo(s.log)
			} else if diff := cmp.Diff(first, knownTo(s.log), options); diff != "" {
				s.Errorf("learned %d times (-once +now):\n%s", i+1, diff)
			}
			if err := s.log.Swept(s.Context(), time.Now()); err != nil || len(s.events) > published {
				s.Errorf("learned %d times, it publishes %d events (%v), the first %s", i+1, len(s.events)-published, err,
					s.events[min(published, len(s.events)-1)].Subject())
			}
		}
		if first.Counts["settled"] != ([statuses]int{delivered: 2, bounced: 1}) ||
			first.Counts["open"] != ([statuses]int{unseen: 2, deferred: 1, bounced: 1}) {
			s.Errorf("counts: %v", first.Counts)
		}
		s.run(30 * time.Minute)
		for _, e := range s.events[published:] {
			if e.Operation == messages.Delivery {
				s.Errorf("published again: %s %+v", e.Subject(), e.Body)
			}
		}
	})
}

// Another poller may publish events about calls that were made after this poller read the requests.
func TestEventsOfOtherPollersAboutNewCallsAreCounted(t *testing.T) {
	inScenario(t, func(s *scenario) {
		s.sends("first", "x@example.test")
		s.log.Store.(*store).beforeLearn = func() {
			s.started("second", 2, 1)
			s.calls("second", 1, 0, "x@example.test", "y@example.test")
			s.waits("second")
			for _, e := range []messages.Event{
				{Operation: messages.Delivery, State: messages.Bounced, ID: "second",
					Body: &messages.DeliveryBody{EventID: text(sweep.ID{2}), Recipient: "1.1"}},
			} {
				s.events = append(s.events, stored{e, time.Now()})
			}
		}
		s.learn()
		k := knownTo(s.log)
		if got := k.Counts["second"][bounced]; got != 1 {
			s.Errorf("%d bounced, want 1", got)
		}
	})
}

// An uncertain request is resolved when rows prove that each of its batches of unknown fate was sent.
func TestAnUncertainRequestIsResolvedWhenEachOfItsBatchesIsProven(t *testing.T) {
	unknown := func(n int) messages.Unsettled {
		return messages.Unsettled{Batch: n, Count: 2, State: messages.Uncertain}
	}
	for name, c := range map[string]struct {
		rows     []string // recipients that have one
		accepted int      // by the calls of known fate
		listed   int      // batches that the outcome lists; less than 2: the list is cut
		doubt    bool
		want     messages.State
		seen     []int
	}{
		"both were sent":             {rows: []string{"b0", "c0", "c1"}, accepted: 2, listed: 2, want: messages.Accepted, seen: []int{1, 2}},
		"all but one were sent":      {rows: []string{"b0", "c0"}, accepted: 1, listed: 2, want: messages.Partial, seen: []int{1, 1}},
		"one was sent":               {rows: []string{"c0"}, accepted: 2, listed: 2},
		"none was sent":              {accepted: 2, listed: 2},
		"one is in doubt":            {rows: []string{"b0"}, accepted: 2, listed: 2, doubt: true},
		"the outcome lists not both": {rows: []string{"b0", "c0"}, accepted: 2, listed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inScenario(t, func(s *scenario) {
				s.started("r", 6, 3)
				s.calls("r", 1, 0, people("a", 2)...)
				accepted := c.accepted
				s.consumer.put(messages.Batch, map[bool]messages.State{true: messages.Accepted, false: messages.Refused}[c.accepted > 0], "r.1",
					&messages.BatchBody{
						Common: messages.Common{RequestID: "r", At: now()}, Batch: 1, Count: 2, Accepted: &accepted})
				called := map[byte]time.Time{}
				for n, name := range map[int]string{2: "b", 3: "c"} {
					called[name[0]] = time.Now()
					s.calls("r", n, 2*n-2, people(name, 2)...)
					s.consumer.put(messages.Batch, messages.Uncertain, messages.BatchID("r", n),
						&messages.BatchBody{Common: messages.Common{RequestID: "r", At: now()}, Batch: n, Count: 2})
				}
				if c.doubt {
					s.sends("twin", "c1@example.test")
					s.row("c1@example.test", 0, messages.Delivered).envelope = "without a time"
				}
				body := messages.SendOutcome{Common: messages.Common{RequestID: "r", At: now()}, Recipients: 6, Batches: 3, Accepted: c.accepted,
					UnsettledCount: 2, Fingerprint: "fingerprint of r",
					Unsettled: []messages.Unsettled{unknown(2), unknown(3)}[:c.listed]}
				s.consumer.put(messages.Send, messages.Uncertain, "r", &body)
				last := len(s.consumer.outcomes)
				for _, name := range c.rows {
					s.row(name+"@example.test", time.Since(called[name[0]]), messages.Delivered)
				}
				s.run(30 * time.Minute)
				s.run(2 * time.Hour)
				s.run(time.Hour)
				if c.want == "" {
					if n := len(s.consumer.resolved); n != 0 {
						s.Errorf("resolved: %+v", s.consumer.resolved[0])
					}
					return
				}
				if len(s.consumer.resolved) != 1 || s.consumer.resolving != last {
					s.Fatalf("resolved %d times over the event %d, want once over %d", len(s.consumer.resolved), s.consumer.resolving, last)
				}
				got := s.consumer.resolved[0]
				got.Evidence.CompleteThrough, got.At = messages.Time{}, messages.Time{}
				want := &messages.SendResolved{Common: messages.Common{RequestID: "r"}, Outcome: c.want, By: messages.BySendingLog,
					Fingerprint: "fingerprint of r",
					Evidence: messages.SendEvidence{Seen: c.seen[0] + c.seen[1], Count: 4,
						Batches: []messages.BatchEvidence{{Batch: 2, Count: 2, Seen: c.seen[0]}, {Batch: 3, Count: 2, Seen: c.seen[1]}}}}
				taken := c.accepted + 4
				if diff := cmp.Diff(want, got); diff != "" {
					s.Errorf("resolved (-want +got):\n%s", diff)
				}
				if all := s.eventsOf(messages.Delivery, messages.Summary, "r"); len(all) > 0 {
					if b := all[len(all)-1].Body.(*messages.SummaryBody); b.Accepted != taken {
						s.Errorf("the last summary says %d accepted, want %d", b.Accepted, taken)
					}
				} else {
					s.Error("no summary was published")
				}
			})
		})
	}
}
