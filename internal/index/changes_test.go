package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/bus"
	"errand/pkg/messages"
)

func TestChangesAreToldInOrder(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	in.store("mandate.enroll.failed.before", body{})
	x := in.open(t.TempDir())
	in.follow(x)
	in.current(x)
	now, err := x.Changes(t.Context(), "")
	if err != nil || len(now.List) > 0 || now.Missed {
		t.Fatalf("the place now: %+v, %v", now, err)
	}
	in.store("mandate.enroll.started.a", body{"attempt": 1})
	in.store("mandate.enroll.failed.a", body{"attempt": 1, "reason": "refused"})
	in.store("mail.batch.accepted.m.2", body{})
	in.store("mail.delivery.delivered.m", body{"entry": body{"to": "x@example.com"}})
	var got []string
	for after := now.Next; len(got) < 4; {
		c, err := x.Changes(t.Context(), after)
		if err != nil || c.Missed {
			t.Fatalf("changes: %+v, %v", c, err)
		}
		for _, c := range c.List {
			got = append(got, fmt.Sprint(c.Operation, " ", c.State, " ", c.RequestID, " ", c.Reason, c.Sequence))
		}
		after = c.Next
	}
	want := []string{"mandate.enroll started a 2", "mandate.enroll failed a refused3", "mail.batch accepted m 1", "mail.delivery delivered m 1"}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	again, err := x.Changes(t.Context(), now.Next)
	if err != nil || len(again.List) != 4 {
		t.Errorf("resumed: %+v, %v", again, err)
	}
	if c, err := x.Changes(t.Context(), "other-1"); err != nil || !c.Missed {
		t.Errorf("a place of another process: %+v, %v; want to hear that some were missed", c, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Changes(ctx, again.Next); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting without end: %v", err)
	}
}

func TestAFeedKeepsTheLastChanges(t *testing.T) {
	t.Parallel()
	var f feed
	f.init()
	begin, _ := f.next(t.Context(), "")
	changes := make([]Change, MaxChanges)
	f.add(changes)
	all, err := f.next(t.Context(), begin.Next)
	if err != nil || len(all.List) != MaxChanges {
		t.Fatalf("%d changes, %v", len(all.List), err)
	}
	f.add(changes[:1])
	if c, err := f.next(t.Context(), begin.Next); err != nil || !c.Missed || c.Next == all.Next {
		t.Errorf("one too many: %d, %v, %v", len(c.List), c.Missed, err)
	}
	f.close()
	if _, err := f.next(t.Context(), all.Next); !errors.Is(err, errClosed) {
		t.Errorf("closed: %v", err)
	}
}

// Histories are followed by the sequence of their events: the servers' clock may jump.
func TestAClockThatIsSetBackChangesNoState(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	x := in.open(t.TempDir())
	f := &follower{Index: x, nc: in.nc, js: in.js}
	defer f.leave()
	if err := f.enter(); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	event := func(sequence uint64, state messages.State, at time.Time) bus.Message {
		return bus.Message{Subject: messages.Enroll.Subject(state, "a"), Sequence: sequence, Time: at, Data: []byte("{}")}
	}
	for _, page := range [][]bus.Message{
		{event(1, messages.Started, now.Add(24*time.Hour)), event(2, messages.Failed, now)},
		{event(3, messages.Reopened, now.Add(-time.Hour))},
		{event(4, messages.Started, now.Add(-2*time.Hour)), event(5, messages.Succeeded, now.Add(-time.Hour))},
		{event(5, messages.Succeeded, now.Add(-time.Hour)), event(1, messages.Started, now)}, // as a restored stream may have it
	} {
		last := page[len(page)-1]
		if err := f.writer.put(x.gather(bus.MandateEvents, page), Position{Stream: bus.MandateEvents, Indexed: last.Sequence, At: last.Time}); err != nil {
			t.Fatal(err)
		}
		if len(page) == 1 {
			in.wantListed(x, Filter{}, "a reopened")
		}
	}
	in.wantListed(x, Filter{}, "a succeeded")
}
