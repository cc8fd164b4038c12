package deliveries

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

// reopens runs a request again, by a correction or a person.
func (s *scenario) reopens(id, by string) {
	s.consumer.put(messages.Send, messages.Reopened, id, &messages.ReopenedBody{Common: messages.Common{RequestID: id, At: now()}, By: by})
}

// publishedAs returns what was published about the rows to an address: the confidence, the request and the place.
func (s *scenario) publishedAs(to string) (all []string) {
	for _, e := range s.events {
		b, ok := e.Body.(*messages.DeliveryBody)
		if ok && s.rowOf(b.EventID).to == to {
			all = append(all, fmt.Sprintf("%s %s %s %s", e.State, b.Match.Confidence, e.ID, b.Recipient))
		}
	}
	return all
}

func (s *scenario) rowOf(id string) *logRow {
	for _, r := range s.rows {
		for state := delivered; state < statuses; state++ {
			if text(idOf(r.entry(), state)) == id {
				return r
			}
		}
	}
	s.Fatalf("no row has the id %s", id)
	return nil
}

// A correction has other recipients or another sender, and perhaps another secret: rows are of the corrected call, at the
// places of its recipients, live and learned at the start.
func TestRowsOfACorrectionAreAtItsPlaces(t *testing.T) {
	before := []string{"a@example.test", "b@example.test"}
	for name, to := range map[string][]string{"others": {"b@example.test", "c@example.test", "d@example.test"}, "fewer": {"b@example.test"},
		"more": {"a@example.test", "b@example.test", "c@example.test"}, "in another order": {"b@example.test", "a@example.test"},
		"the same, of another sender": before, "as many others": {"c@example.test", "d@example.test"}} {
		for keys, secrets := range map[string][2]*mailkey.Secret{"with a secret": {oldSecret, oldSecret},
			"with another secret": {oldSecret, newSecret}} {
			for _, live := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, live %t", name, keys, live), func(t *testing.T) {
					inScenario(t, func(s *scenario) {
						s.config.Secrets = []*mailkey.Secret{newSecret, oldSecret}
						s.restart()
						s.secret = secrets[0]
						s.started("r", 2, 1)
						s.callsFrom("shpo@example.test", "r", 1, 0, before...)
						s.ends("r", messages.Failed, 2, 1, 0, messages.Unsettled{Batch: 1, Count: 2, State: messages.Refused})
						if live {
							s.sweep()
						}
						time.Sleep(time.Hour)
						s.secret = secrets[1]
						s.reopens("r", messages.ByCorrection)
						s.started("r", len(to), 1)
						began := time.Now()
						s.callsFrom("shop@example.test", "r", 1, 0, to...)
						s.ends("r", messages.Accepted, len(to), 1, len(to))
						for _, address := range to {
							s.row(address, time.Since(began)-500*time.Millisecond, messages.Delivered).from = "shop@example.test"
						}
						if !live {
							s.restart()
						}
						for range 3 {
							s.sweep()
							time.Sleep(time.Minute)
						}
						for i, address := range to {
							if got, want := s.publishedAs(address), []string{fmt.Sprint("delivered exact r 1.", i)}; !slices.Equal(got, want) {
								t.Errorf("%s: %q, want %q", address, got, want)
							}
						}
						n := len(to)
						want := fmt.Sprintf("%d of %d: %d delivered, 0 deferred, 0 bounced, 0 unknown, 0 queued, final true", n, n, n)
						if all := s.summaries("r"); len(all) != 1 || all[0] != want {
							t.Errorf("summaries %q, want %q", all, want)
						}
						for _, gone := range []string{"a@example.test", "b@example.test"} {
							if got := s.matchOf(s.newLog(), gone, "shop@example.test", began.Add(-time.Hour-500*time.Millisecond)); got != "none" {
								t.Errorf("a row to %s of the time of the refused call: %q", gone, got)
							}
						}
					})
				})
			}
		}
	}
}

// What is sent by a redrive after a final summary is summed up, also by a poller that learns all requests before all summaries.
func TestARedriveAfterAFinalSummaryIsSummedUp(t *testing.T) {
	for _, live := range []bool{false, true} {
		inScenario(t, func(s *scenario) {
			s.started("r", 2, 2)
			s.calls("r", 1, 0, "a@example.test")
			s.happens("r", 1, messages.Accepted, 1, 1, "", false)
			s.calls("r", 2, 1, "b@example.test")
			s.happens("r", 2, messages.Refused, 1, 0, messages.ReasonRefused, false)
			s.ends("r", messages.Partial, 2, 2, 1, messages.Unsettled{Batch: 2, First: 1, Count: 1, State: messages.Refused})
			s.row("a@example.test", 1500*time.Millisecond, messages.Delivered)
			sweeps := func() {
				if !live {
					s.restart()
				}
				for range 3 {
					s.sweep()
					time.Sleep(time.Minute)
				}
			}
			sweeps()
			s.reopens("r", "ann")
			s.started("r", 2, 2)
			s.calls("r", 2, 1, "b@example.test")
			s.happens("r", 2, messages.Accepted, 1, 1, "", false)
			s.ends("r", messages.Accepted, 2, 2, 2)
			s.row("b@example.test", 500*time.Millisecond, messages.Bounced)
			sweeps()
			s.restart()
			sweeps()
			want := []string{"1 of 2: 1 delivered, 0 deferred, 0 bounced, 0 unknown, 0 queued, final true",
				"2 of 2: 1 delivered, 0 deferred, 1 bounced, 0 unknown, 0 queued, final true"}
			if got := s.summaries("r"); !slices.Equal(got, want) {
				t.Errorf("live %t: %q, want %q", live, got, want)
			}
		})
	}
}

// Without a time in the envelope_id a call is found that has no row yet, and a row stays where it is.
func TestSomebodyIsMailedTwiceWithoutATimeInTheirRows(t *testing.T) {
	inScenario(t, func(s *scenario) {
		var want []string
		for i, id := range []string{"first", "second", "third"} {
			s.sends(id, "x@example.test")
			r := s.row("x@example.test", 0, messages.Deferred)
			r.envelope = fmt.Sprint("queue-", i)
			s.run(time.Minute)
			want = append(want, "deferred unique "+id+" 1.0?")
			time.Sleep(24 * time.Hour)
		}
		for i, id := range []string{"first", "second", "third"} {
			s.rows[i].state = messages.Bounced
			s.run(time.Minute) // by a new process
			want = append(want, "bounced unique "+id+" 1.0?")
		}
		if got := s.publishedAs("x@example.test"); !slices.Equal(got, want) {
			t.Errorf("got %q\nwant %q", got, want)
		}
	})
}

// Two recipients of one request whose addresses differ by case have a row each.
func TestRecipientsThatDifferByCaseHaveTheirRows(t *testing.T) {
	inScenario(t, func(s *scenario) {
		s.sends("r", "Ann@example.test", "bob@example.test", "ann@example.test")
		for _, to := range []string{"Ann@example.test", "bob@example.test", "ann@example.test"} {
			s.row(to, 500*time.Millisecond, messages.Deferred)
		}
		s.run(2 * time.Minute)
		for _, r := range s.rows {
			r.state = messages.Delivered
		}
		s.run(2 * time.Minute)
		got := append(s.publishedAs("Ann@example.test"), s.publishedAs("ann@example.test")...)
		want := []string{"deferred exact r 1.0", "delivered exact r 1.0", "deferred exact r 1.2", "delivered exact r 1.2"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q\nwant %q", got, want)
		}
		all := s.summaries("r")
		if !strings.HasPrefix(all[len(all)-1], "3 of 3: 3 delivered") {
			t.Errorf("summaries: %q", all)
		}
	})
}

// The work for a row does not grow with the mails to its address.
func TestManyMailsToOneAddressAreMatchedFast(t *testing.T) {
	const n, every = 16_000, 27 * time.Second
	for _, timed := range []bool{true, false} {
		x := &calls{}
		began := time.Now()
		for i := range n {
			at := start.Add(time.Duration(i) * every)
			add(x, fmt.Sprint("r", i), 1, at.Sub(start), at.Sub(start)+time.Second, 1)
			x.close(fmt.Sprint("r", i), 1, at.Add(time.Second), accepted)
		}
		for i := range n {
			r := row{to: one(key(1)), accepted: ms(start.Add(time.Duration(i)*every + 500*time.Millisecond))}
			if !timed {
				r = row{to: one(key(1)), created: r.accepted}
			}
			r.id = uint64(i)<<1 | 1
			f := x.match(r)
			if f.request != fmt.Sprint("r", i) {
				t.Fatalf("row %d is of %+v", i, f)
			}
			x.observe(f.place, r.id, delivered, false)
		}
		if x.steps > 100*n {
			t.Errorf("with times %t: %d rows took %d steps", timed, n, x.steps)
		}
		t.Logf("with times %t: %d rows took %v, %d steps", timed, n, time.Since(began), x.steps)
	}
}

// A service that is busy at first, for longer than an announcement holds, takes the message at a later try. Nothing happened before: no
// row belongs to those tries, and a recipient who has a row gets no other.
func TestTriesThatFoundTheServiceBusyHaveNoRows(t *testing.T) {
	for _, batches := range []int{1, 2} {
		inScenario(t, func(s *scenario) {
			const ann, bob = "ann@example.test", "bob@example.test"
			began := time.Now()
			s.started("r", 2*batches, batches)
			for range 3 {
				s.calls("r", 1, 0, ann, bob)
				time.Sleep(8 * time.Second)
			}
			s.calls("r", 1, 0, ann, bob)
			if batches > 1 {
				s.happens("r", 1, messages.Accepted, 2, 2, "", false)
			} else {
				s.ends("r", messages.Accepted, 2, 1, 2)
			}
			s.row(bob, time.Since(began)-500*time.Millisecond, messages.Delivered) // of another program
			timeless := func() { s.row(ann, 0, messages.Delivered).envelope = time.Now().String() }
			timeless()
			s.sweep()
			time.Sleep(time.Hour)
			s.sends("q", ann)
			timeless()
			s.sweep()
			if got, want := s.publishedAs(ann), []string{"delivered unique r 1.0?", "delivered unique q 1.0?"}; !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			if got, want := s.publishedAs(bob), []string{"delivered none unmatched "}; !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}
