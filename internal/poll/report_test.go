package poll

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/match"
	"errand/pkg/messages"
)

// Ten recipients get their rows one after the other, every 20 seconds, and pollers come
// and go: a request is summed up at most once a minute, and in the end as it is.
func TestSummariesOfARequestLieAMinuteApart(t *testing.T) {
	inStory(t, func(s *story) {
		to := people("a", 10)
		s.sends("r", to...)
		for n, address := range to {
			s.row(address, time.Duration(n*20)*time.Second+500*time.Millisecond, messages.Deferred)
			s.run(10 * time.Second)
			if n%2 == 0 {
				s.becomes(s.rows[n], messages.Delivered)
			}
			s.run(10 * time.Second)
		}
		s.becomes(s.rows[3], messages.Bounced)
		s.becomes(s.rows[5], messages.Unknown)
		s.run(3 * time.Minute)
		s.run(3 * time.Minute)
		all := s.summaries("r")
		if len(all) < 4 || len(all) > 6 {
			s.Errorf("%d summaries in 7 minutes: %q", len(all), all)
		}
		if want := "10 of 10: 5 delivered, 3 deferred, 1 bounced, 1 unknown, 0 queued, final false"; all[len(all)-1] != want {
			s.Errorf("the last one is %s, want %s", all[len(all)-1], want)
		}
		s.run(68 * time.Hour)
		if n := len(s.summaries("r")); n != len(all) {
			s.Errorf("%d summaries while nothing happened", n-len(all))
		}
		s.run(5 * time.Hour)
		s.run(5 * time.Hour)
		want := append(all, "10 of 10: 5 delivered, 3 deferred, 1 bounced, 1 unknown, 0 queued, final true")
		if diff := cmp.Diff(want, s.summaries("r")); diff != "" {
			s.Errorf("after three days (-want +got):\n%s", diff)
		}
		s.becomes(s.rows[1], messages.Delivered)
		s.run(10 * time.Minute)
		if n := len(s.summaries("r")); n != len(want) {
			s.Errorf("%d summaries after the final one", n-len(want))
		}
	})
}

// A request is summed up for good when all are delivered or bounced and its end is told,
// not while it goes on.
func TestASummaryIsFinalWhenTheRequestHasEndedAndAllIsSettled(t *testing.T) {
	inStory(t, func(s *story) {
		s.started("r", 4, 2)
		s.calls("r", 1, 0, people("a", 2)...)
		accepted := 2
		s.office.put(messages.Batch, messages.Accepted, "r.1", &messages.BatchBody{Common: messages.Common{RequestID: "r", At: now()}, Batch: 1, Count: 2, Accepted: &accepted})
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

// seen is what a ledger knows.
type seen struct {
	Counts   map[string]match.Counts
	Notes    map[string]string
	Evidence map[string]match.Evidence
	Silent   []match.Silent
}

func (l *ledger) seen() seen {
	s := seen{map[string]match.Counts{}, map[string]string{}, map[string]match.Evidence{}, slices.Collect(l.index.Silent(time.Now()))}
	for id, r := range l.requests {
		s.Counts[id], s.Notes[id] = r.counts, r.summary
		if r.final {
			s.Notes[id] += " and it is final"
		}
		for n, f := range r.fates {
			s.Notes[messages.BatchID(id, n)] = f.told
		}
		for n := range 3 {
			if e, ok := l.index.Evidence(id, n); ok {
				s.Evidence[messages.BatchID(id, n)] = e
			}
		}
	}
	return s
}

// What was told is learned again when it is asked for from further back. It counts once.
func TestWhatIsLearnedTwiceCountsOnce(t *testing.T) {
	inStory(t, func(s *story) {
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
		s.row("x@example.test", 0, messages.Delivered).envelope = "tells nothing"
		s.poller.OverdueAfter = time.Hour
		s.run(time.Minute)
		s.becomes(s.rows[0], messages.Delivered)
		s.becomes(s.rows[4], messages.Bounced)
		s.run(2 * time.Hour)
		if want := []string{"1.2", "1.3"}; !slices.Equal(s.overdue("open"), want) {
			s.Errorf("overdue: %v, want %v", s.overdue("open"), want)
		}
		told := len(s.events)
		s.fresh()
		m := &memory{seen: map[ID]uint32{}, ledger: s.poller.ledger(), complete: time.Now()}
		var first seen
		for i := range 4 {
			if err := m.learn(s.Context(), s.desk, time.Time{}); err != nil {
				s.Fatal(err)
			}
			if i == 0 {
				first = m.ledger.seen()
			} else if diff := cmp.Diff(first, m.ledger.seen()); diff != "" {
				s.Errorf("learned %d times (-once +now):\n%s", i+1, diff)
			}
			m.since = time.Unix(1, 0) // so that all of it is asked for again
			later := time.Now().Add(time.Duration(i) * time.Hour)
			m.ledger.scanned = time.Time{}
			if events := m.ledger.events(later, later, later, true); len(events) > 0 {
				s.Errorf("learned %d times, it tells %d events, the first %s %+v", i+1, len(events), events[0].Subject(), events[0].Body)
			}
		}
		if first.Counts["settled"] != (match.Counts{match.Delivered: 2, match.Bounced: 1}) || first.Counts["open"] != (match.Counts{match.Deferred: 1, match.Bounced: 1}) {
			s.Errorf("counts: %v", first.Counts)
		}
		s.run(30 * time.Minute)
		for _, e := range s.events[told:] {
			if e.Operation == messages.Delivery || e.State == messages.Concluded {
				s.Errorf("told once more: %s %+v", e.Subject(), e.Body)
			}
		}
	})
}

// Another poller may tell of calls that came up after this one read the requests.
func TestWhatOthersToldOfCallsThatCameUpMeanwhileIsCounted(t *testing.T) {
	inStory(t, func(s *story) {
		s.sends("first", "x@example.test")
		s.desk.meanwhile = func() {
			s.started("second", 2, 1)
			s.calls("second", 1, 0, "x@example.test", "y@example.test")
			s.waits("second")
			for _, e := range []messages.Event{
				{Operation: messages.Delivery, State: messages.Delivered, ID: messages.Unmatched, Body: &messages.DeliveryBody{EventID: ID{1}.String(),
					Recipient: doubt(match.Row{To: keyOf("x@example.test"), Created: time.Now()})}},
				{Operation: messages.Delivery, State: messages.Bounced, ID: "second", Body: &messages.DeliveryBody{EventID: ID{2}.String(), Recipient: "1.1"}},
			} {
				s.events = append(s.events, stored{e, time.Now()})
			}
		}
		m := &memory{seen: map[ID]uint32{}, ledger: s.poller.ledger()}
		if err := m.learn(s.Context(), s.desk, time.Time{}); err != nil {
			s.Fatal(err)
		}
		for _, id := range []string{"first.1", "second.1"} {
			if e := m.ledger.seen().Evidence[id]; !e.Doubted {
				s.Errorf("%s: %+v, want a doubt", id, e)
			}
		}
		if got := m.ledger.requests["second"].counts[match.Bounced]; got != 1 {
			s.Errorf("%d bounced, want 1", got)
		}
	})
}
