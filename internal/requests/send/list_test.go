package send

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/pkg/messages"
)

// holder makes plans of messages to ten recipients, whose lists say that they are of other sizes.
type holder struct {
	Handler
	size    int64
	list    io.Reader // read behind the recipients
	opened  int
	overdue bool
}

func newHolder() *holder {
	h := &holder{list: strings.NewReader("")}
	caller := &attempt.Caller{Slots: admission.NewSlots(1)}
	h.Handler = Handler{Caller: caller, Open: func(context.Context, messages.ObjectRef) (io.Reader, int64, error) {
		h.opened++
		return io.MultiReader(strings.NewReader(addresses(0, 10)), h.list), h.size, nil
	}}
	return h
}

func (h *holder) message() *message {
	giveUp := time.Now().Add(time.Hour)
	if h.overdue {
		giveUp = time.Now()
	}
	return &message{Handler: &h.Handler, size: 1000, request: attempt.Request[messages.SendRequest]{
		Body:     messages.SendRequest{ToObject: &messages.ObjectRef{}},
		Delivery: attempt.Delivery{GiveUpAt: giveUp, History: &history.History{}}}}
}

// Messages to long lists leave calls to those to few: one that finds no share comes back
// later, unless its time is over.
func TestLongListsLeavePlacesToOthers(t *testing.T) {
	h := newHolder()
	planned := func(who string, m *message, want error) {
		t.Helper()
		if _, err := m.makePlan(t.Context(), false); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", who, err, want)
		}
	}
	h.size = longBytes + 1
	first, second := h.message(), h.message()
	planned("the first", first, nil)
	planned("the first, on another reading", first, nil)
	before := h.opened
	if planned("the second beside it", second, errCrowded); h.opened != before+1 {
		t.Error("a long list was read to be deferred")
	}
	h.overdue = true
	overdue := h.message()
	planned("one that is to be given up", overdue, nil)
	h.overdue, h.size = false, longBytes
	few := h.message()
	planned("one to fewer", few, nil)
	for _, m := range []*message{first, second, overdue, few} {
		m.leave()
	}
	h.size = longBytes + 1
	planned("the second when the first has left", second, nil)
	if second.leave(); !second.longOfLane().Try(100, 1) || !h.comparing.Try(100, 1) || !h.comparingLong.Try(100, 1) {
		t.Error("something stays taken")
	}
}

// blocked is a list that has no end until it is closed.
type blocked chan struct{}

func (b blocked) Read([]byte) (int, error) { <-b; return 0, io.EOF }

func TestLongListsArePlannedOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder()
		h.Caller.Slots = admission.NewSlots(64)
		ended := make(chan error, 2)
		plan := func(ctx context.Context) {
			m := h.message()
			go func() { _, err := m.makePlan(ctx, false); ended <- err }()
			synctest.Wait()
		}
		proceed := make(blocked)
		h.size, h.list = longBytes+1, proceed
		plan(t.Context())
		h.size, h.list = longBytes, strings.NewReader("")
		if plan(t.Context()); len(ended) != 1 {
			t.Fatal("a shorter list waits for a long one")
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		h.size = longBytes + 1
		gone := errors.New("the program ends")
		ctx, cancel := context.WithCancelCause(t.Context())
		if plan(ctx); len(ended) != 0 {
			t.Fatal("two long lists at a time")
		}
		cancel(gone)
		if err := <-ended; !errors.Is(err, gone) {
			t.Errorf("the one that waited: %v", err)
		}
		close(proceed)
		if err := <-ended; err != nil {
			t.Errorf("the first one: %v", err)
		}
		plan(t.Context())
		if err := <-ended; err != nil {
			t.Errorf("the next one: %v", err)
		}
	})
}

// A program that ends does not read a list to its end first, nor fail a request for that.
func TestAProgramThatEndsReadsNoMoreOfAList(t *testing.T) {
	stop := make(chan struct{})
	close(stop)
	m := listed(strings.NewReader(addresses(0, 2500)))
	m.Caller.Stop = stop
	m.request.GiveUpAt = time.Now().Add(-time.Second)
	_, err := m.makePlan(t.Context(), false)
	if ev, err := m.unprepared(t.Context(), err); !errors.Is(err, errStopping) {
		t.Errorf("got %v, %v", ev.State, err)
	}
}

// A missing list ends a request that was only scheduled, as any other that was not begun. One that was begun waits: the list may come back.
func TestAMissingListEndsWhatWasNotBegun(t *testing.T) {
	for name, c := range map[string]struct {
		state messages.State
		body  messages.Body
		ends  bool
	}{
		"scheduled": {messages.Deferred, &messages.DeferredBody{Reason: messages.ReasonScheduled}, true},
		"begun":     {messages.Started, &messages.SendStarted{Recipients: 1, Batches: 1, BatchSize: 2}, false},
	} {
		log, taken := &historytest.Log{}, &upstream{to: map[string]int{}}
		h, r := handler(t, taken), request(t, log, many(1))
		h.Open = func(context.Context, messages.ObjectRef) (io.Reader, int64, error) { return nil, 0, fs.ErrNotExist }
		r.Body.To, r.Body.ToObject = nil, &messages.ObjectRef{Bucket: "lists", Name: "news"}
		if err := r.History.Store(t.Context(), c.state, c.body); err != nil {
			t.Fatal(err)
		}
		var err error
		if r.Prior, err = r.History.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		ev, err := h.Handle(t.Context(), r)
		_, waits := errors.AsType[*history.RetryLaterError](err)
		if waits == c.ends || c.ends && (err != nil || ev.State != messages.Failed) || len(taken.to) > 0 {
			t.Errorf("%s: %s, %v, and %d were sent the mail", name, ev.State, err, len(taken.to))
		}
	}
}
