package send

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// A message's batches wait for their rate until its lease has passed. Whatever became of the message meanwhile, none is sent
// with the contents that it had.
func TestABatchThatWaitedIsNotSentOfAMessageThatWentOn(t *testing.T) {
	for what, meanwhile := range map[string]func(t *testing.T, log *historytest.Log){
		"taken over": func(*testing.T, *historytest.Log) {},
		"cancelled":  cancelled,
		"corrected": func(t *testing.T, log *historytest.Log) {
			cancelled(t, log)
			h := &history.History{Log: log, Operation: messages.Send, ID: "r1", Fingerprint: "other", Published: time.Now(),
				Corrects: historytest.Corrects}
			_, err := h.Settle(t.Context(), false, func(history.Prior) (messages.Event, error) {
				return messages.Event{}, h.Store(t.Context(), messages.Started, &messages.SendStarted{Fingerprint: "other"})
			})
			if err == nil {
				t.Fatal("it was not run")
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testABatchThatWaited(t, meanwhile) })
		})
	}
}

func testABatchThatWaited(t *testing.T, meanwhile func(t *testing.T, log *historytest.Log)) {
	log, taken := &historytest.Log{}, &upstream{to: map[string]int{}}
	first := handler(t, taken)
	first.Size, first.Caller.Timeout = 1, 30*time.Second
	first.Caller.Throttle = func(ctx context.Context) error {
		retry.Pause(ctx, 2*time.Minute)
		return ctx.Err()
	}
	ended := make(chan error)
	go func() {
		_, err := first.Handle(t.Context(), request(t, log, many(3)))
		ended <- err
	}()
	time.Sleep(time.Minute) // its lease has passed
	second := handler(t, answers(http.StatusServiceUnavailable))
	second.Size, second.Caller.Timeout = 1, 30*time.Second
	var err error
	repeat := request(t, log, many(3))
	if repeat.Prior, err = repeat.History.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err = second.Handle(t.Context(), repeat); !isLater(err) {
		t.Fatalf("the repeat: %v", err)
	}
	meanwhile(t, log)
	if err := <-ended; !errors.Is(err, history.ErrFenced) || len(taken.to) > 0 {
		t.Errorf("%v, and %d were sent the mail: want it fenced, 0", err, len(taken.to))
	}
}

func isLater(err error) bool {
	_, ok := errors.AsType[*history.RetryLaterError](err)
	return ok
}

// cancelled stores what a person's cancel does.
func cancelled(t *testing.T, log *historytest.Log) {
	t.Helper()
	h := &history.History{Log: log, Operation: messages.Send, ID: "r1"}
	if _, err := h.Read(t.Context()); !isLater(err) {
		t.Fatal(err)
	}
	if err := h.Store(t.Context(), messages.Failed, &messages.SendOutcome{Reason: messages.ReasonCancelled}); err != nil {
		t.Fatal(err)
	}
}

// A redrive of some batches, with nothing left of how the message was begun and another batch size, sends no others.
func TestARedriveIsCutAsItWasThoughTheEventsAreGone(t *testing.T) {
	for size, want := range map[int]messages.State{2: messages.Uncertain, 0: messages.Uncertain} {
		log, taken := &historytest.Log{}, &upstream{to: map[string]int{}}
		h, r := handler(t, taken), request(t, log, many(6))
		log.Put("mail.send.reopened.r1", encoded(t, &messages.ReopenedBody{By: "ann", Fingerprint: r.History.Fingerprint, BatchSize: size,
			Was: messages.PriorOutcome{State: messages.Partial}, Batches: []int{2}}))
		var err error
		if r.Prior, err = r.History.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		ev, err := h.Handle(t.Context(), r)
		if err != nil || ev.State != want || len(taken.to) != size {
			t.Errorf("batch size %d: %s, %v, and %d were sent the mail", size, ev.State, err, len(taken.to))
		}
	}
}

func encoded(t *testing.T, body messages.Body) []byte {
	t.Helper()
	raw, err := (messages.Event{Operation: messages.Send, State: messages.Reopened, ID: "r1", Body: body}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// What can no longer be run says how much of it was done.
func TestAMessageThatIsNoLongerRunSaysWhatWasAccepted(t *testing.T) {
	accepted := func(n, first, count int) history.Batch {
		return history.Batch{Number: n, State: messages.Accepted, Facts: history.Facts{Accepted: count}}
	}
	began := history.Facts{Recipients: 7, Batches: 4, BatchSize: 2}
	why := messages.FailedBody{Reason: messages.ReasonInvalidRequest, Message: "give_up_at is too far ahead"}
	for want, e := range map[messages.State]history.Effect{
		messages.Failed: {Began: began, Batches: make([]history.Batch, 4)},
		messages.Partial: {Done: true, Began: began,
			Batches: []history.Batch{accepted(1, 0, 2), accepted(2, 2, 2), accepted(3, 4, 2), {Number: 4}}},
		messages.Uncertain: {Done: true, Unknown: true, Began: began,
			Batches: []history.Batch{accepted(1, 0, 2), {Number: 2, State: messages.Uncertain}, accepted(3, 4, 2), accepted(4, 6, 1)}},
	} {
		for i := range e.Batches {
			e.Batches[i].Number = i + 1
		}
		state, body := ended(why, e)
		if state != want || body.Recipients != 7 || body.Batches != 4 {
			t.Errorf("%s: %+v, want %s", state, body, want)
		}
		if last := body.Unsettled; want == messages.Partial &&
			(body.Accepted != 6 || len(last) != 1 || last[0].First != 6 || last[0].Count != 1 || last[0].State != messages.Deferred) {
			t.Errorf("of 3 batches accepted it says %+v", body)
		}
	}
}
