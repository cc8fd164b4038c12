package deliveries

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"errand/internal/history"
	"errand/internal/lists"
	"errand/internal/lists/sweep"
	"errand/internal/sandbox/devkit/inshort"
	"errand/internal/wire/mailkey"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// One sweep publishes all summaries that are due, a thousand at once. When another poller
// takes the leadership meanwhile, the next one publishes the others.
func TestAllSummariesAreDueAfterOneSweep(t *testing.T) {
	inScenario(t, func(s *scenario) {
		const n = 2500
		began := time.Now()
		for i := range n {
			id, to := fmt.Sprint("r", i), fmt.Sprintf("p%d@example.test", i)
			s.consumer.put(messages.Send, messages.Started, id, &messages.SendStarted{Common: messages.Common{RequestID: id, At: now()},
				Deadline: now(), Recipients: 1, Batches: 1, Secret: keysOf("", to)})
			s.ends(id, messages.Accepted, 1, 1, 1)
			s.row(to, 0, messages.Delivered)
		}
		time.Sleep(time.Second)
		summaries := func() (all int) {
			for _, e := range s.events {
				if e.State == messages.Summary {
					all++
				}
			}
			return all
		}
		s.learn()
		store := s.log.Store.(*store)
		left := 1500
		store.refuse = func(e messages.Event) error {
			if left--; e.State == messages.Summary && left < 0 {
				return sweep.ErrBehind
			}
			return nil
		}
		left += n // the rows themselves
		if stored, err := s.log.Publish(s.Context(), rowsOf(entriesOf(s.rows), time.Now()))(); stored != n || err != nil {
			t.Fatalf("%d rows, %v", stored, err)
		}
		if err := s.log.Swept(s.Context(), time.Time{}); err != nil || summaries() != 0 {
			t.Errorf("%d summaries before a time up to which all rows are published, %v", summaries(), err)
		}
		if err := s.log.Swept(s.Context(), time.Now()); !errors.Is(err, sweep.ErrBehind) || summaries() != 1500 {
			t.Fatalf("%d summaries, %v", summaries(), err)
		}
		store.refuse = nil
		s.learn()
		if err := s.log.Swept(s.Context(), time.Now()); err != nil || summaries() != n {
			t.Errorf("%d summaries, %v; want %d", summaries(), err, n)
		}
		if most := slices.Max(store.sizes[1:]); most != maxAtOnce || time.Since(began) > time.Minute {
			t.Errorf("%d at once after %v, want %d", most, time.Since(began), maxAtOnce)
		}
	})
}

// What was not stored is not counted.
func TestRowsAreCountedWhenTheyAreStored(t *testing.T) {
	inScenario(t, func(s *scenario) {
		published := 0
		s.config.Published = func(messages.State, messages.Confidence) { published++ }
		s.restart()
		s.sends("r", people("a", 6)...)
		for _, to := range people("a", 6) {
			s.row(to, 500*time.Millisecond, messages.Delivered)
		}
		s.learn()
		left := 3
		s.log.Store.(*store).refuse = func(messages.Event) error {
			if left--; left < 0 {
				return sweep.ErrBehind
			}
			return nil
		}
		if stored, err := s.log.Publish(s.Context(), rowsOf(entriesOf(s.rows), time.Now()))(); stored != 3 || err == nil {
			t.Errorf("%d stored, %v", stored, err)
		}
		if got := knownTo(s.log).Counts["r"][delivered]; got != 3 || published != 3 {
			t.Errorf("%d are counted, %d published, want 3", got, published)
		}
	})
}

// A row whose event is under way, or was refused, stays where it is, though calls that have their rows are left out for an address
// that many are made to.
func TestARowStaysWhereItIsBeforeItsEventIsStored(t *testing.T) {
	for _, refused := range []bool{false, true} {
		inScenario(t, func(s *scenario) {
			const n = 100
			for i := range n {
				s.sends(fmt.Sprint("r", i), "watch@example.test")
				s.row("watch@example.test", 500*time.Millisecond, messages.Deferred)
				time.Sleep(6 * time.Second)
			}
			s.learn()
			shown := func() []sweep.Row[mail.Entry] { return rowsOf(entriesOf(s.rows), time.Now()) }
			store := s.log.Store.(*store)
			store.refuse = func(messages.Event) error {
				if refused {
					return sweep.ErrBehind
				}
				return nil
			}
			first := s.log.Publish(s.Context(), shown())
			if refused {
				_, _ = first()
				refused = false
				s.learn()
				first = s.log.Publish(s.Context(), shown())
			}
			for _, r := range s.rows {
				r.state = messages.Delivered
			}
			second := s.log.Publish(s.Context(), shown())
			for _, wait := range []func() (int, error){first, second} {
				if stored, err := wait(); stored != n || err != nil {
					t.Fatal(stored, err)
				}
			}
			for i, e := range s.events {
				if want := fmt.Sprint("r", i%n); e.ID != want || e.Body.(*messages.DeliveryBody).Match.Confidence != messages.MatchExact {
					t.Fatalf("event %d, %s: of %s, %v, want exactly %s", i, e.State, e.ID, e.Body.(*messages.DeliveryBody).Match, want)
				}
			}
		})
	}
}

// A mail to one recipient counts as one, a mail to a thousand as a thousand, and neither takes more memory than is said.
func TestMemoryIsWhatIsSaid(t *testing.T) {
	for _, c := range []struct{ requests, recipients, most int }{{maxGeneration + 10_000, 1, 185}, {1000, 1000, 40}} {
		if inshort.Asked(t) {
			c.requests, c.most = c.requests/10, c.most+40 // slices that grow
		}
		record := func(op messages.Operation, state messages.State, id string, body messages.Body) history.Entry {
			e := messages.Event{Operation: op, State: state, ID: id, Body: body}
			data, err := e.Encode()
			if err != nil {
				t.Fatal(err)
			}
			return history.Entry{Subject: e.Subject(), Body: data, Sequence: 1}
		}
		before := heap()
		l := New(Config{ReportAfter: time.Hour, Secrets: []*mailkey.Secret{oldSecret}})
		for i := range c.requests {
			id, at := fmt.Sprintf("MAIL_REQUESTS-%d", i), now()
			common := messages.Common{RequestID: id, At: at}
			keys := mailkey.AppendKey(nil, 0)
			for n := range c.recipients {
				keys = mailkey.AppendKey(keys, mailkey.Key(uint64(i*c.recipients+n+1)*0x9e3779b97f4a7c15))
			}
			l.take(record(messages.Send, messages.Started, id, &messages.SendStarted{Common: common, Batches: 1, Recipients: c.recipients,
				Deadline: at, Fingerprint: vector + vector, Secret: &messages.SecretKeys{ID: oldSecret.ID(), Keys: keys}}))
			l.take(record(messages.Send, messages.Accepted, id, &messages.SendOutcome{Common: common, Batches: 1, Recipients: c.recipients,
				Accepted: c.recipients, Fingerprint: vector + vector}))
			l.note(learnedEvent(id, "1.0", messages.Delivered))
			summary := messages.Event{Operation: messages.Delivery, State: messages.Summary, ID: id,
				Body: &messages.SummaryBody{Common: common, Recipients: 1, Accepted: 1, Delivered: 1, Final: true}}
			l.note(lists.StoredAt(summary, time.Now()))
		}
		for range l.summaries(time.Now(), time.Now()) {
			t.Error("a summary is due")
		}
		used := heap() - before
		n := c.requests * c.recipients
		t.Logf("%d mails to %d: %d bytes for each recipient", c.requests, c.recipients, used/uint64(n))
		if l.calls.size != n || used > uint64(n*c.most) {
			t.Errorf("%d mails to %d take %d bytes for each recipient, want %d, and count as %d", c.requests, c.recipients, used/uint64(n), c.most,
				l.calls.size)
		}
		runtime.KeepAlive(l)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // what was deleted from maps
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
