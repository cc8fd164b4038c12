package poll

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// is gives what a ledger has a row be of: how sure, the request, and the recipient.
func (s *story) is(l *ledger, to, from string, accepted time.Time) string {
	s.Helper()
	body := &messages.DeliveryBody{}
	events := []messages.Event{{ID: messages.Unmatched, Body: body}}
	row := mail.Entry{EnvelopeID: fmt.Sprintf("%011x%07x", accepted.UnixMilli(), 1), To: to, From: from, CreatedAt: accepted}
	if err := l.match(s.Context(), time.Time{}, events, []mail.Entry{row}); err != nil {
		s.Fatal(err)
	}
	if strings.HasPrefix(body.Recipient, "?") {
		return fmt.Sprint(body.Match.Confidence, " ?")
	}
	return strings.TrimSpace(fmt.Sprint(body.Match.Confidence, " ", strings.TrimPrefix(events[0].ID, messages.Unmatched), " ", body.Recipient))
}

// knows gives a new ledger what the office has.
func (s *story) knows() *ledger {
	s.Helper()
	s.poller.Requests = &reading{office: s.office}
	l := s.poller.ledger()
	if err := l.update(s.Context(), time.Time{}); err != nil {
		s.Fatal(err)
	}
	return l
}

// row of a recipient, as another poller told it.
func told(id, place string, state messages.State) Told {
	return Told{State: state, Request: id, Note: place, At: time.Now()}
}

// conclusions are those that a ledger would tell if the log were known up to a time.
func conclusions(l *ledger, through time.Time) (all []string) {
	for _, e := range l.events(time.Now(), through, through, true) {
		if b, ok := e.Body.(*messages.ConcludedBody); ok {
			all = append(all, fmt.Sprint(e.ID, " ", b.Outcome))
		}
	}
	slices.Sort(all)
	return all
}

// counted is the summary that a ledger tells of a request; "": none.
func counted(l *ledger, id string) (text string) {
	for _, e := range l.events(time.Now(), time.Now(), time.Now(), true) {
		if b, ok := e.Body.(*messages.SummaryBody); ok && e.ID == id {
			text = fmt.Sprintf("%d of %d: %d delivered, %d queued, final %t", b.Accepted, b.Recipients, b.Delivered, b.Queued, b.Final)
		}
		l.told(e)
	}
	l.events(time.Now(), time.Now(), time.Now(), true) // so that it sees that nothing is left to tell
	return text
}

// happens stores what became of a batch.
func (s *story) happens(id string, number int, state messages.State, count, accepted int, reason messages.Reason, after bool) {
	b := &messages.BatchBody{Common: messages.Common{RequestID: id, At: now()}, Batch: number, Count: count, Reason: reason, AfterUnknown: after}
	if state == messages.Accepted {
		b.Accepted = &accepted
	}
	s.office.put(messages.Batch, state, messages.BatchID(id, number), b)
}

// What became of a call says which rows can be of it: one from its time, one from
// minutes later, when an upstream may go on with the work of a caller that left; whether
// its recipients are overdue, and whether the log is to say what became of it. It is the
// same for a request of one batch and for a batch of several.
func TestWhatBecameOfACallSaysWhichRowsAreItsOwn(t *testing.T) {
	const waits, resolves, over = "waits", "resolves", ""
	for name, c := range map[string]struct {
		state    messages.State
		reason   messages.Reason
		after    bool
		accepted int
		inside   messages.Confidence
		late     messages.Confidence
		overdue  int
		then     string
	}{
		"accepted":                          {state: messages.Accepted, accepted: 2, inside: "exact", late: "none", overdue: 2},
		"accepted after an unknown call":    {state: messages.Accepted, accepted: 2, after: true, inside: "exact", late: "unique", overdue: 2},
		"in part":                           {state: messages.Partial, accepted: 1, inside: "exact", late: "none"},
		"in part after an unknown call":     {state: messages.Partial, accepted: 1, after: true, inside: "exact", late: "unique"},
		"refused":                           {state: messages.Failed, reason: messages.ReasonRefused, inside: "none", late: "none"},
		"refused after an unknown call":     {state: messages.Failed, reason: messages.ReasonRefused, after: true, inside: "exact", late: "unique"},
		"uncertain":                         {state: messages.Uncertain, reason: messages.ReasonNoAnswer, inside: "exact", late: "unique", then: resolves},
		"uncertain after an unknown call":   {state: messages.Uncertain, reason: messages.ReasonInterrupted, after: true, inside: "exact", late: "unique", then: resolves},
		"busy":                              {state: messages.Deferred, reason: messages.ReasonBusy, inside: "none", late: "none"},
		"busy after an unknown call":        {state: messages.Deferred, reason: messages.ReasonBusy, after: true, inside: "exact", late: "unique"},
		"held after an unknown call":        {state: messages.Deferred, reason: messages.ReasonHeld, after: true, inside: "exact", late: "unique"},
		"no answer":                         {state: messages.Deferred, reason: messages.ReasonNoAnswer, after: true, inside: "exact", late: "unique", then: waits},
		"a bad answer":                      {state: messages.Deferred, reason: messages.ReasonBadAnswer, after: true, inside: "exact", late: "unique", then: waits},
		"interrupted":                       {state: messages.Deferred, reason: messages.ReasonInterrupted, after: true, inside: "exact", late: "unique", then: waits},
		"interrupted, but before it called": {state: messages.Deferred, reason: messages.ReasonInterrupted, inside: "none", late: "none"},
	} {
		for _, batches := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, of %d", name, batches), func(t *testing.T) {
				inStory(t, func(s *story) {
					at := messages.Common{RequestID: "r", At: now()}
					s.started("r", 2*batches, batches)
					began := time.Now()
					s.calls("r", batches, 2*batches-2, people("a", 2)...)
					at.At = now()
					switch state := c.state; {
					case batches == 1 && state == messages.Deferred:
						s.office.put(messages.Send, state, "r", &messages.DeferredBody{Common: at, Reason: c.reason, AfterUnknown: c.after})
					case batches == 1:
						body := &messages.SendOutcome{Common: at, Recipients: 2, Batches: 1, Accepted: c.accepted, Reason: c.reason, AfterUnknown: c.after}
						if state == messages.Uncertain {
							body.Unsettled, body.UnsettledCount = []messages.Unsettled{{Batch: 1, Count: 2, State: state}}, 1
						}
						s.office.put(messages.Send, state, "r", body)
					default:
						if state == messages.Partial {
							state = messages.Accepted
						} else if state == messages.Failed {
							state = messages.Refused
						}
						s.happens("r", 2, state, 2, c.accepted, c.reason, c.after)
						s.happens("r", 1, messages.Refused, 2, 0, messages.ReasonRefused, false)
						if state == messages.Uncertain {
							s.ends("r", state, 4, 2, 0, messages.Unsettled{Batch: 2, Count: 2, State: state}, messages.Unsettled{Batch: 1, Count: 2, State: messages.Refused})
						}
					}
					time.Sleep(time.Hour)
					l := s.knows()
					var silent []string
					for r := range l.index.Silent(time.Now()) {
						silent = append(silent, Place(r.Batch, r.Recipient))
					}
					place := Place(batches, 2*batches-1)
					for _, row := range []struct {
						after time.Duration
						want  messages.Confidence
					}{{500 * time.Millisecond, c.inside}, {10 * time.Minute, c.late}} {
						want := string(row.want)
						if row.want != messages.MatchNone {
							want += " r " + place
						}
						if got := s.is(l, "a1@example.test", "", began.Add(row.after)); got != want {
							t.Errorf("a row from after %v: %q, want %q", row.after, got, want)
						}
					}
					if len(silent) != c.overdue || c.overdue > 0 && silent[1] != place {
						t.Errorf("overdue: %q, want %d", silent, c.overdue)
					}
					var then, open string
					through := time.Now().Add(10 * time.Hour)
					if got := conclusions(l, through); len(got) > 0 {
						then = waits
						if want := messages.BatchID("r", batches) + " not_sent"; got[0] != want || len(got) > 1 {
							t.Errorf("concluded: %q, want %s", got, want)
						}
					}
					for id, r := range l.open {
						open = id
						if _, ok := l.resolution(id, r, through); ok {
							then += resolves
						}
					}
					if then != c.then || (open != "") != (c.then != over) {
						t.Errorf("then it %q, want %q; open: %q", then, c.then, open)
					}
				})
			})
		}
	}
}

// A row names its recipient by the place in the whole request, and is not of a call with
// another sender. What is under no batch's subject is of none.
func TestARecordSaysFromWhomAndToWhichRecipients(t *testing.T) {
	inStory(t, func(s *story) {
		s.started("r", 4, 2)
		began := time.Now()
		for number, batch := range map[string]int{"r.2": 2, "r.0": 1, "r.x": 1} {
			s.office.put(messages.Log, messages.Sent, number, &messages.SentBody{Common: messages.Common{RequestID: "r", At: now()}, Batch: batch, First: 2, Count: 2,
				From: keyOf("s@example.test"), Begin: now(), Until: messages.Time{Time: time.Now().Add(time.Minute)}, Keys: keysOf("x@example.test", "Y <y@Example.test>")})
		}
		for _, number := range []string{"r", "r.0", "r.x"} {
			s.office.put(messages.Batch, messages.Uncertain, number, &messages.BatchBody{Common: messages.Common{RequestID: "r", At: now()}, Batch: 1, Count: 2})
		}
		l := s.knows()
		if len(l.open) > 0 {
			t.Errorf("open: %+v", l.requests["r"])
		}
		for row, want := range map[[2]string]string{
			{"y@example.test", "s@example.test"}: "exact r 2.3", {"y@example.test", "Shop <s@Example.test>"}: "exact r 2.3",
			{"y@example.test", ""}: "exact r 2.3", {"y@example.test", "other@example.test"}: "none", {"z@example.test", "s@example.test"}: "none",
		} {
			if got := s.is(l, row[0], row[1], began.Add(time.Second)); got != want {
				t.Errorf("a row to %s from %q: %q, want %q", row[0], row[1], got, want)
			}
		}
	})
}

// A batch that is called again is not waited for until that call's fate is unknown too:
// a row that comes meanwhile concludes nothing. What counts then is when the last call
// was over, and that is when it was told first.
func TestABatchThatIsCalledAgainIsNotConcludedMeanwhile(t *testing.T) {
	for _, batches := range []int{1, 2} {
		t.Run(fmt.Sprint("of ", batches), func(t *testing.T) {
			inStory(t, func(s *story) {
				id := messages.BatchID("r", batches)
				again := func() {
					if s.started("r", batches, batches); batches > 1 {
						s.happens("r", 2, messages.Started, 1, 0, "", true)
					}
					s.calls("r", batches, batches-1, "x@example.test")
				}
				defers := func() {
					if batches > 1 {
						s.happens("r", 2, messages.Deferred, 1, 0, messages.ReasonNoAnswer, true)
					} else {
						s.waits("r")
					}
				}
				again()
				defers()
				first := time.Now()
				if batches == 1 { // it is looked for again and again, and each time that is told
					time.Sleep(10 * time.Minute)
					defers()
				}
				at := first.Add(time.Hour + 34*time.Second) // the call was announced to take 35
				if got := conclusions(s.knows(), at.Add(-time.Millisecond)); got != nil {
					t.Errorf("concluded too early: %q", got)
				}
				if got, want := conclusions(s.knows(), at), []string{id + " not_sent"}; !slices.Equal(got, want) {
					t.Errorf("concluded %q, want %q", got, want)
				}

				again()
				l := s.knows()
				l.learn(told("r", Place(batches, batches-1), messages.Delivered))
				if got := conclusions(l, time.Now().Add(10*time.Hour)); got != nil || len(l.open) > 0 {
					t.Errorf("concluded while it is called again: %q, %d are open", got, len(l.open))
				}

				time.Sleep(5 * time.Minute) // the call was over late
				defers()
				at = time.Now().Add(time.Hour)
				time.Sleep(5 * time.Minute)
				defers()
				if got := conclusions(s.knows(), at.Add(-time.Millisecond)); got != nil {
					t.Errorf("the second call is concluded too early: %q", got)
				}
				if got, want := conclusions(s.knows(), at), []string{id + " not_sent"}; !slices.Equal(got, want) {
					t.Errorf("the second call: concluded %q, want %q", got, want)
				}
				if e, _ := s.knows().requests["r"].fates[batches]; e.count != 1 {
					t.Errorf("%+v", e)
				}
			})
		})
	}
}

// Of two batches that wait, one is settled and its request goes on: the other one is
// concluded all the same, and when all is told nothing is left to look at.
func TestABatchWaitsOnWhenAnotherOneIsSettled(t *testing.T) {
	inStory(t, func(s *story) {
		s.started("r", 3, 3)
		for n := range 3 {
			s.calls("r", n+1, n, people("a", 3)[n])
			s.happens("r", n+1, messages.Deferred, 1, 0, messages.ReasonNoAnswer, true)
		}
		s.waits("r") // the request as a whole
		through := time.Now().Add(2 * time.Hour)
		if got, want := conclusions(s.knows(), through), []string{"r.1 not_sent", "r.2 not_sent", "r.3 not_sent"}; !slices.Equal(got, want) {
			t.Errorf("concluded %q, want %q", got, want)
		}
		s.started("r", 3, 3)
		s.happens("r", 2, messages.Accepted, 1, 1, "", true) // by a conclusion, without a call
		if got, want := conclusions(s.knows(), through), []string{"r.1 not_sent", "r.3 not_sent"}; !slices.Equal(got, want) {
			t.Errorf("after one was settled: concluded %q, want %q", got, want)
		}
		s.happens("r", 1, messages.Uncertain, 1, 0, messages.ReasonNoAnswer, true)
		s.happens("r", 3, messages.Refused, 1, 0, messages.ReasonRefused, true)
		s.ends("r", messages.Uncertain, 3, 3, 1, messages.Unsettled{Batch: 1, Count: 1, State: messages.Uncertain}, messages.Unsettled{Batch: 3, Count: 1, State: messages.Refused})
		l := s.knows()
		if got := conclusions(l, through); got != nil {
			t.Errorf("after its end: concluded %q", got)
		}
		e, ok := l.resolution("r", l.requests["r"], through)
		if !ok {
			t.Fatalf("not resolved: %+v", l.requests["r"])
		}
		if b := e.Body.(*messages.SendResolved); b.Outcome != messages.Partial || len(b.Evidence.Batches) != 1 || b.Evidence.Batches[0].Batch != 1 {
			t.Errorf("resolved: %+v", b)
		}
		if err := l.Requests.Resolve(s.Context(), e, 1); err != nil {
			t.Fatal(err)
		}
		if err := l.update(s.Context(), time.Time{}); err != nil || len(l.open) > 0 {
			t.Errorf("%d are open after it was resolved (%v)", len(l.open), err)
		}
	})
}

// The log resolves a request only when all of its batches of unknown fate are known: an
// outcome may be too large to list them.
func TestAnOutcomeThatListsNotAllIsNotResolved(t *testing.T) {
	for name, c := range map[string]struct {
		known, listed, count int
		want                 bool
	}{
		"all are":                      {known: 2, listed: 2, count: 2, want: true},
		"one is not listed":            {known: 1, listed: 1, count: 2},
		"one of three is not listed":   {known: 1, listed: 2, count: 3},
		"none is listed":               {known: 0, listed: 0, count: 2},
		"one is listed, but not known": {known: 1, listed: 2, count: 2},
	} {
		t.Run(name, func(t *testing.T) {
			inStory(t, func(s *story) {
				s.started("r", 3, 3)
				for n := range c.known {
					s.calls("r", n+1, n, people("a", 3)[n])
					s.happens("r", n+1, messages.Uncertain, 1, 0, messages.ReasonNoAnswer, false)
				}
				body := &messages.SendOutcome{Common: messages.Common{RequestID: "r", At: now()}, Recipients: 3, Batches: 3, UnsettledCount: c.count}
				for n := range c.listed {
					body.Unsettled = append(body.Unsettled, messages.Unsettled{Batch: n + 1, Count: 1, State: messages.Uncertain})
				}
				s.office.put(messages.Send, messages.Uncertain, "r", body)
				l := s.knows()
				for range 2 {
					if _, ok := l.resolution("r", l.requests["r"], time.Now().Add(10*time.Hour)); ok != c.want {
						t.Errorf("resolved: %t, want %t", ok, c.want)
					}
					l.Requests = &reading{office: s.office} // of a new stream with what the old one had
					if err := l.update(s.Context(), time.Time{}); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// A summary counts as accepted what is told by then: by batches while the request goes
// on, by its outcome, and by what the log resolved.
func TestASummaryCountsWhatWasAccepted(t *testing.T) {
	inStory(t, func(s *story) {
		l := s.poller.ledger()
		check := func(what, id, want string) {
			t.Helper()
			time.Sleep(2 * time.Minute)
			if err := l.update(s.Context(), time.Time{}); err != nil {
				t.Fatal(err)
			}
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
		l.learn(told("r", "1.0", messages.Delivered))
		check("while it goes on", "r", "3 of 8: 1 delivered, 2 queued, final false")
		l.learn(told("r", "1.1", messages.Delivered))
		l.learn(told("r", "2.2", messages.Delivered))
		check("when all that is accepted is delivered", "r", "3 of 8: 3 delivered, 0 queued, final false")
		s.happens("r", 4, messages.Uncertain, 2, 0, messages.ReasonNoAnswer, false)
		s.ends("r", messages.Uncertain, 8, 4, 3, messages.Unsettled{Batch: 4, Count: 2, State: messages.Uncertain})
		check("when it is uncertain", "r", "")
		s.happens("r", 1, messages.Accepted, 2, 2, "", false) // its outcome has counted it
		s.office.put(messages.Send, messages.Resolved, "r", &messages.SendResolved{Common: messages.Common{RequestID: "r", At: now()}, Outcome: messages.Partial,
			Evidence: messages.SendEvidence{Batches: []messages.BatchEvidence{{Batch: 4, Count: 2, Outcome: messages.WasNotSent}}}})
		check("when it is resolved", "r", "3 of 8: 3 delivered, 0 queued, final true")

		s.calls("bare", 1, 0, people("b", 3)...) // when it started is no more known
		check("before there is a row", "bare", "")
		l.learn(told("bare", "1.0", messages.Delivered))
		l.learn(told("bare", "1.2", messages.Delivered))
		check("known by its record alone", "bare", "2 of 2: 2 delivered, 0 queued, final false")
		s.ends("bare", messages.Partial, 3, 1, 2)
		check("when its end is told", "bare", "2 of 3: 2 delivered, 0 queued, final true")
	})
}

// A summary is final in any case so long after the last that was told of a request: of a
// batch while it goes on, and of its end.
func TestASummaryIsFinalSoLongAfterTheLastEvent(t *testing.T) {
	inStory(t, func(s *story) {
		l := s.poller.ledger()
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
			{0, func() { l.learn(told("r", "1.0", messages.Delivered)) }, "2 of 4: 1 delivered, 1 queued, final false"},
			{71 * time.Hour, nil, ""},
			{0, func() { s.ends("r", messages.Partial, 4, 2, 2) }, ""},
			{71 * time.Hour, nil, ""},
			{time.Hour, nil, "2 of 4: 1 delivered, 1 queued, final true"},
			{time.Hour, func() { l.learn(told("r", "1.1", messages.Delivered)) }, ""},
		} {
			time.Sleep(step.after + time.Second)
			if step.what != nil {
				step.what()
			}
			if err := l.update(s.Context(), time.Time{}); err != nil {
				t.Fatal(err)
			}
			if got := counted(l, "r"); got != step.want {
				t.Errorf("%v after it began: %q, want %q", time.Since(l.requests["r"].at), got, step.want)
			}
		}
	})
}
