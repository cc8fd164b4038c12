package deliveries

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"errand/internal/lists"
	"errand/internal/lists/sweep"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// eventOf is a poller's event about a row that is read now.
func eventOf(l *Log, e mail.Entry) messages.Event {
	of := rowOf(e, time.Now(), 0)
	event, _ := l.eventFor(rowsOf([]mail.Entry{e}, time.Now())[0], &of, time.Now())
	return event
}

// matchOf is a poller's match of a row: the confidence, the request and the recipient.
func (s *scenario) matchOf(l *Log, to, from string, accepted time.Time) string {
	s.Helper()
	row := mail.Entry{EnvelopeID: fmt.Sprintf("%011x%07x", accepted.UnixMilli(), 1), To: to, From: from, CreatedAt: accepted}
	e := eventOf(l, row)
	body := e.Body.(*messages.DeliveryBody)
	at, sign, _ := strings.Cut(body.Recipient, "?")
	if unsure := body.Recipient != at; unsure != (body.Match.Confidence == messages.MatchUnique) {
		s.Errorf("%s: the note is %q %q", body.Match.Confidence, body.Recipient, sign)
	}
	return strings.TrimSpace(fmt.Sprint(body.Match.Confidence, " ", strings.TrimPrefix(e.ID, messages.Unmatched), " ", at))
}

// newLog returns a new Log that has read what the mail consumer published.
func (s *scenario) newLog() *Log {
	s.Helper()
	s.restart()
	s.update(s.log)
	return s.log
}

func (s *scenario) update(l *Log) {
	s.Helper()
	if err := l.update(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// learnedEvent is a recipient's state, as another poller published it.
func learnedEvent(id, place string, state messages.State) lists.Stored {
	sum := sha256.Sum256([]byte(id + " " + place))
	return lists.Stored{ID: hex.EncodeToString(sum[:16]), Subject: messages.Subject{State: state, ID: id}, Recipient: place, At: time.Now()}
}

// isProven reports whether it would be published that an uncertain request was sent.
func isProven(l *Log, id string) bool {
	return l.open[id] != nil && l.resolution(id, l.open[id]) != nil
}

// counted is the summary that is published for a request; "": none.
func counted(l *Log, id string) (text string) {
	l.scan(time.Now())
	for range 2 { // the second time it is seen that there is nothing left to publish
		for e := range l.summaries(time.Now(), time.Now()) {
			if b := e.Body.(*messages.SummaryBody); e.ID == id {
				text = fmt.Sprintf("%d of %d: %d delivered, %d queued, final %t", b.Accepted, b.Recipients, b.Delivered, b.Queued, b.Final)
			}
			l.note(lists.StoredAt(e, time.Now()))
		}
	}
	return text
}

// happens stores what became of a batch.
func (s *scenario) happens(id string, number int, state messages.State, count, accepted int, reason messages.Reason, after bool) {
	b := &messages.BatchBody{Common: messages.Common{RequestID: id, At: now()}, Batch: number, Count: count, Reason: reason,
		AfterUnknown: after}
	if state == messages.Accepted {
		b.Accepted = &accepted
	}
	s.consumer.put(messages.Batch, state, messages.BatchID(id, number), b)
}

// The outcome of a call decides which rows can belong to it: one from the time of the call, or one from minutes later,
// since an upstream may finish its work although the caller is gone. It also decides
// whether a row resolves the request. A request of one batch is like a batch of several.
func TestTheOutcomeOfACallDecidesWhichRowsMatchIt(t *testing.T) {
	for name, c := range map[string]struct {
		state    messages.State
		reason   messages.Reason
		after    bool
		accepted int
		inside   messages.Confidence
		late     messages.Confidence
		resolves bool
	}{
		"accepted":                       {state: messages.Accepted, accepted: 2, inside: "exact", late: "none"},
		"accepted after an unknown call": {state: messages.Accepted, accepted: 2, after: true, inside: "exact", late: "unique"},
		"in part":                        {state: messages.Partial, accepted: 1, inside: "exact", late: "none"},
		"in part after an unknown call":  {state: messages.Partial, accepted: 1, after: true, inside: "exact", late: "unique"},
		"refused":                        {state: messages.Failed, reason: messages.ReasonRefused, inside: "none", late: "none"},
		"refused after an unknown call": {state: messages.Failed, reason: messages.ReasonRefused, after: true, inside: "exact",
			late: "unique"},
		"uncertain": {state: messages.Uncertain, reason: messages.ReasonNoAnswer, inside: "exact", late: "unique",
			resolves: true},
		"uncertain after an unknown call": {state: messages.Uncertain, reason: messages.ReasonInterrupted, after: true, inside: "exact",
			late: "unique", resolves: true},
		"busy": {state: messages.Deferred, reason: messages.ReasonBusy, inside: "none", late: "none"},
		"busy after an unknown call": {state: messages.Deferred, reason: messages.ReasonBusy, after: true, inside: "exact",
			late: "unique"},
		"held after an unknown call": {state: messages.Deferred, reason: messages.ReasonHeld, after: true, inside: "exact",
			late: "unique"},
		"no answer": {state: messages.Deferred, reason: messages.ReasonNoAnswer, after: true, inside: "exact",
			late: "unique"},
		"a bad answer": {state: messages.Deferred, reason: messages.ReasonBadAnswer, after: true, inside: "exact",
			late: "unique"},
		"interrupted": {state: messages.Deferred, reason: messages.ReasonInterrupted, after: true, inside: "exact",
			late: "unique"},
		"interrupted, but before it called": {state: messages.Deferred, reason: messages.ReasonInterrupted, inside: "none", late: "none"},
	} {
		for _, batches := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, of %d", name, batches), func(t *testing.T) {
				inScenario(t, func(s *scenario) {
					at := messages.Common{RequestID: "r", At: now()}
					s.started("r", 2*batches, batches)
					began := time.Now()
					s.calls("r", batches, 2*batches-2, people("a", 2)...)
					at.At = now()
					switch state := c.state; {
					case batches == 1 && state == messages.Deferred:
						s.consumer.put(messages.Send, state, "r", &messages.DeferredBody{Common: at, Reason: c.reason, AfterUnknown: c.after})
					case batches == 1:
						body := &messages.SendOutcome{Common: at, Recipients: 2, Batches: 1, Accepted: c.accepted, Reason: c.reason, AfterUnknown: c.after}
						if state == messages.Uncertain {
							body.Unsettled, body.UnsettledCount = []messages.Unsettled{{Batch: 1, Count: 2, State: state}}, 1
						}
						s.consumer.put(messages.Send, state, "r", body)
					default:
						if state == messages.Partial {
							state = messages.Accepted
						} else if state == messages.Failed {
							state = messages.Refused
						}
						s.happens("r", 2, state, 2, c.accepted, c.reason, c.after)
						s.happens("r", 1, messages.Refused, 2, 0, messages.ReasonRefused, false)
						if state == messages.Uncertain {
							s.ends("r", state, 4, 2, 0, messages.Unsettled{Batch: 2, Count: 2, State: state},
								messages.Unsettled{Batch: 1, Count: 2, State: messages.Refused})
						}
					}
					time.Sleep(time.Hour)
					l := s.newLog()
					place := fmt.Sprintf("%d.%d", batches, 2*batches-1)
					for _, row := range []struct {
						after time.Duration
						want  messages.Confidence
					}{{500 * time.Millisecond, c.inside}, {10 * time.Minute, c.late}} {
						want := string(row.want)
						if row.want != messages.MatchNone {
							want += " r " + place
						}
						if got := s.matchOf(l, "a1@example.test", "", began.Add(row.after)); got != want {
							t.Errorf("a row from after %v: %q, want %q", row.after, got, want)
						}
					}
					if isProven(l, "r") {
						t.Error("it is resolved without a row")
					}
					l.note(learnedEvent("r", place, messages.Delivered))
					if ok := isProven(l, "r"); ok != c.resolves || (l.open["r"] != nil) != c.resolves {
						t.Errorf("with a row it is resolved: %t, want %t; open: %+v", ok, c.resolves, l.open["r"])
					}
				})
			})
		}
	}
}

// A match names the recipient by the place in the whole request, and a row does not match
// a call with another sender. Events whose subject names no batch are ignored.
func TestACallNamesTheSenderAndTheRecipients(t *testing.T) {
	inScenario(t, func(s *scenario) {
		s.started("r", 4, 2)
		began := time.Now()
		for number, batch := range map[string]int{"r.2": 2, "r.0": 1, "r.x": 1} {
			s.consumer.put(messages.Batch, messages.Started, number, &messages.BatchBody{Common: messages.Common{RequestID: "r", At: now()},
				Batch: batch, First: 2, Count: 2, Deadline: &messages.Time{Time: time.Now().Add(time.Minute)},
				Secret: keysOf("s@example.test", "x@example.test", "Y <y@Example.test>")})
		}
		for _, number := range []string{"r", "r.0", "r.x"} {
			s.consumer.put(messages.Batch, messages.Uncertain, number,
				&messages.BatchBody{Common: messages.Common{RequestID: "r", At: now()}, Batch: 1, Count: 2})
		}
		l := s.newLog()
		if len(l.open) > 0 {
			t.Errorf("open: %+v", l.open["r"])
		}
		for row, want := range map[[2]string]string{
			{"y@example.test", "s@example.test"}: "exact r 2.3", {"y@example.test", "Shop <s@Example.test>"}: "exact r 2.3",
			{"y@example.test", ""}: "exact r 2.3", {"y@example.test", "other@example.test"}: "none", {"z@example.test", "s@example.test"}: "none",
		} {
			if got := s.matchOf(l, row[0], row[1], began.Add(time.Second)); got != want {
				t.Errorf("a row to %s from %q: %q, want %q", row[0], row[1], got, want)
			}
		}
	})
}

// A batch that is called again is not of unknown fate until that call is: a row that appears
// meanwhile resolves nothing.
func TestABatchThatIsCalledAgainIsNotResolvedMeanwhile(t *testing.T) {
	for _, batches := range []int{1, 2} {
		t.Run(fmt.Sprint("of ", batches), func(t *testing.T) {
			inScenario(t, func(s *scenario) {
				calls := func() {
					if s.started("r", batches, batches); batches > 1 {
						s.happens("r", 2, messages.Started, 1, 0, "", true)
					}
					s.calls("r", batches, batches-1, "x@example.test")
				}
				ends := func() {
					if batches > 1 {
						s.happens("r", 2, messages.Uncertain, 1, 0, messages.ReasonNoAnswer, true)
					}
					s.ends("r", messages.Uncertain, batches, batches, batches-1, messages.Unsettled{Batch: batches, Count: 1, State: messages.Uncertain})
				}
				for _, resolved := range []bool{false, true, false, true} {
					if resolved {
						ends()
					} else {
						calls()
					}
					l := s.newLog()
					l.note(learnedEvent("r", fmt.Sprintf("%d.%d", batches, batches-1), messages.Delivered))
					if ok := isProven(l, "r"); ok != resolved || (l.open["r"] != nil) != resolved {
						t.Errorf("resolved: %t, want %t; open: %+v", ok, resolved, l.open["r"])
					}
				}
			})
		})
	}
}

// A summary counts as accepted what the events so far say: the batches while the request
// goes on, its outcome, and what the log resolved.
func TestASummaryCountsWhatWasAccepted(t *testing.T) {
	inScenario(t, func(s *scenario) {
		l := s.newLog()
		check := func(what, id, want string) {
			t.Helper()
			time.Sleep(2 * time.Minute)
			s.update(l)
			if got := counted(l, id); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		s.started("r", 8, 4)
		for n := range 4 {
			s.calls("r", n+1, 2*n, people("a", 8)[2*n:2*n+2]...)
		}
		s.happens("r", 1, messages.Accepted, 2, 2, "", false)
		s.happens("r", 2, messages.Accepted, 2, 1, messages.ReasonShortCount, false)
		s.happens("r", 3, messages.Refused, 2, 0, messages.ReasonRefused, false)
		check("before there is a row", "r", "")
		l.note(learnedEvent("r", "1.0", messages.Delivered))
		check("while it goes on", "r", "3 of 8: 1 delivered, 2 queued, final false")
		l.note(learnedEvent("r", "1.1", messages.Delivered))
		l.note(learnedEvent("r", "2.2", messages.Delivered))
		check("when all that is accepted is delivered", "r", "3 of 8: 3 delivered, 0 queued, final false")
		s.happens("r", 4, messages.Uncertain, 2, 0, messages.ReasonNoAnswer, false)
		s.ends("r", messages.Uncertain, 8, 4, 3, messages.Unsettled{Batch: 4, Count: 2, State: messages.Uncertain})
		check("when it is uncertain", "r", "")
		s.happens("r", 1, messages.Accepted, 2, 2, "", false) // already counted by the outcome
		s.consumer.put(messages.Send, messages.Resolved, "r", &messages.SendResolved{Common: messages.Common{RequestID: "r", At: now()},
			Outcome:  messages.Partial,
			Evidence: messages.SendEvidence{Batches: []messages.BatchEvidence{}}})
		check("when it is resolved", "r", "3 of 8: 3 delivered, 0 queued, final true")

		s.calls("bare", 1, 0, people("b", 3)...) // its started event is gone
		check("before there is a row", "bare", "")
		l.note(learnedEvent("bare", "1.0", messages.Delivered))
		l.note(learnedEvent("bare", "1.2", messages.Delivered))
		check("known only by its record", "bare", "2 of 2: 2 delivered, 0 queued, final false")
		s.ends("bare", messages.Partial, 3, 1, 2)
		check("when it has ended", "bare", "2 of 3: 2 delivered, 0 queued, final true")
	})
}

// A summary is final in any case ReportAfter after the last event of a request, whether
// that is an event of a batch or the outcome.
func TestASummaryIsFinalAWhileAfterTheLastEvent(t *testing.T) {
	inScenario(t, func(s *scenario) {
		l := s.newLog()
		s.started("r", 4, 2)
		for n := range 2 {
			s.calls("r", n+1, 2*n, people("a", 4)[2*n:2*n+2]...)
		}
		for _, step := range []struct {
			after time.Duration
			what  func()
			want  string
		}{
			{40 * time.Hour, func() { s.happens("r", 1, messages.Accepted, 2, 2, "", false) }, ""},
			{0, func() { l.note(learnedEvent("r", "1.0", messages.Delivered)) }, "2 of 4: 1 delivered, 1 queued, final false"},
			{71 * time.Hour, nil, ""},
			{0, func() { s.ends("r", messages.Partial, 4, 2, 2) }, ""},
			{71 * time.Hour, nil, ""},
			{time.Hour, nil, "2 of 4: 1 delivered, 1 queued, final true"},
			{time.Hour, func() { l.note(learnedEvent("r", "1.1", messages.Delivered)) }, ""},
		} {
			time.Sleep(step.after + time.Second)
			if step.what != nil {
				step.what()
			}
			s.update(l)
			if got := counted(l, "r"); got != step.want {
				t.Errorf("%v after it began: %q, want %q", step.after, got, step.want)
			}
		}
	})
}

// A standby that follows for weeks keeps as little as the one that leads, and warns of nothing.
func TestAStandbyForgetsOldCalls(t *testing.T) {
	inScenario(t, func(s *scenario) {
		warned := 0
		s.config.Recipients, s.config.Dropped = 300, func(int, time.Time) { warned++ }
		s.restart()
		leader := s.log
		s.restart()
		standby := s.log
		for day := range 40 {
			for i := range 10 {
				s.sends(fmt.Sprintf("r%d-%d", day, i), "x@example.test")
			}
			if err := leader.Learn(t.Context(), func(sweep.Stored) {}); err != nil {
				t.Fatal(err)
			}
			if err := leader.Swept(t.Context(), time.Now()); err != nil {
				t.Fatal(err)
			}
			s.log = standby
			s.learn()
			time.Sleep(24 * time.Hour)
		}
		if a, b := leader.Held(), standby.Held(); b > a || warned > 0 {
			t.Errorf("the leader keeps %d recipients, the standby %d; it warned %d times", a, b, warned)
		}
	})
}
