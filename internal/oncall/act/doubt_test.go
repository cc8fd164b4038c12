package act_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

// A message that could no longer be planned lists no batch in its outcome: that is not to say
// that all were accepted.
func TestAnOutcomeThatListsNoBatchDoesNotSayThatAllWereAccepted(t *testing.T) {
	d := newDeadLetters(t)
	const fields = `,"reason":"interrupted","recipients":4,"batches":2`
	d.ended(messages.Send, "purged", mail, messages.Uncertain, fields)
	if got := d.plan("purged")[0]; got.Class != inspect.CannotRun {
		t.Errorf("nothing says how it was begun: %s (%s)", got.Class, got.Says)
	}
	d.begun("shifted", mail, 3)
	d.put("mail.batch.accepted.shifted.1", `{"batch":1}`)
	d.put("mail.batch.refused.shifted.2", `{"batch":2}`)
	d.ended(messages.Send, "shifted", mail, messages.Uncertain, fields)
	if got := d.plan("shifted")[0]; got.Class != inspect.Twice || !slices.Equal(got.Batches, []int{2}) ||
		!slices.Equal(got.Unknown, []int{3}) {
		t.Errorf("begun with three batches: %s (%s) %v %v", got.Class, got.Says, got.Batches, got.Unknown)
	}
}

// The same Nats-Msg-Id with other contents may ask for what the other one did: a sender that
// repeats itself with another time stamp, for one.
func TestWhatConflictedIsRunByNameAlone(t *testing.T) {
	d := newDeadLetters(t)
	d.ended(messages.Enroll, "MANDATE_REQUESTS-7", enrollment("1"), messages.Failed, `,"reason":"conflict","conflicts_with":"pay-1"`)
	d.ended(messages.Send, "MAIL_REQUESTS-7", mail, messages.Failed, `,"reason":"conflict","conflicts_with":"invoice-1"`)
	for id, other := range map[string]string{"MANDATE_REQUESTS-7": "pay-1", "MAIL_REQUESTS-7": "invoice-1"} {
		if got := d.plan(id)[0]; got.Class != inspect.Twice || !strings.Contains(got.Says, other) {
			t.Errorf("%s: %s (%s)", id, got.Class, got.Says)
		}
		if got := d.redrive(d.plan(id), act.Consent{}); !strings.Contains(got[0], "not_done") {
			t.Errorf("nobody accepted that: %q", got)
		}
		if got := d.redrive(d.plan(id), act.Consent{Accept: names(d.plan(id))}); !strings.Contains(got[0], "reopened and published") {
			t.Errorf("accepted: %q", got)
		}
	}
}

// A number may be the sequence of one dead letter and the id of another's request: alone it is the id.
func TestANumberIsTheIDOfARequest(t *testing.T) {
	d := newDeadLetters(t)
	d.ended(messages.Send, "other", mail, messages.Uncertain, `,"batches":1,"unsettled":[{"batch":1,"state":"uncertain"}],"unsettled_count":1`)
	sequence := fmt.Sprint(d.plan("other")[0].Sequence)
	d.ended(messages.Send, sequence, mail, messages.Uncertain,
		`,"batches":1,"unsettled":[{"batch":1,"state":"uncertain"}],"unsettled_count":1`)
	if letters, err := d.Letters(t.Context(), []string{sequence}, inspect.Query{}); err != nil || len(letters) != 1 ||
		letters[0].RequestID != sequence {
		t.Errorf("%s: %+v, %v", sequence, letters, err)
	}
	if letters, err := d.Letters(t.Context(), []string{"seq:" + sequence}, inspect.Query{}); err != nil || len(letters) != 1 ||
		letters[0].RequestID != "other" {
		t.Errorf("seq:%s: %+v, %v", sequence, letters, err)
	}
	items := d.plan("other", "seq:2")
	for _, name := range []string{sequence, "other", "seq:4711"} {
		err := d.Redrive(t.Context(), items, act.Consent{Why: "x", Accept: []string{name}}, func(r act.Redriven) { t.Errorf("%+v", r) })
		if !errors.Is(err, act.ErrNothingDone) || len(d.queued(bus.MailRequests)) != 0 {
			t.Errorf("accepted %s: %v, %d queued", name, err, len(d.queued(bus.MailRequests)))
		}
	}
	if got := d.redrive(items, act.Consent{Accept: []string{"seq:" + sequence}}); len(got) != 2 || !strings.HasPrefix(got[0], "other done") ||
		!strings.Contains(got[1], "not_done") {
		t.Errorf("accepted seq:%s: %q", sequence, got)
	}
}

// A person who ends it in the middle hears of each item how far it is.
func TestARedriveThatIsEndedTellsOfEachItem(t *testing.T) {
	d := newDeadLetters(t)
	for i := range 4 {
		d.ended(messages.Enroll, fmt.Sprint("r", i), enrollment(fmt.Sprint(i)), messages.Failed, `,"reason":"refused"`)
	}
	items := d.plan("r0", "r1", "r2", "r3")
	d.redrive(d.plan("r0"), act.Consent{}) // another person, since the plan
	ctx, stop := context.WithCancelCause(t.Context())
	results := map[string]act.Result{}
	err := d.Redrive(ctx, items, act.Consent{Why: "back"}, func(r act.Redriven) {
		if results[r.RequestID] = r.Result; r.Result == act.Done {
			stop(errors.New("interrupted"))
		}
	})
	if len(results) != 4 || results["r1"] != act.Done || results["r0"] != act.NotDone || results["r3"] != act.NotDone {
		t.Errorf("ended: %v, %v", results, err)
	}

	items = d.plan("r2", "r3")
	d.must(d.JS.DeleteStream(t.Context(), bus.Audit))
	clear(results)
	short, done := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer done()
	err = d.Redrive(short, items, act.Consent{Why: "back"}, func(r act.Redriven) { results[r.RequestID] = r.Result })
	if !errors.Is(err, act.ErrNotRecorded) || len(results) != 2 || results["r2"] != act.NotDone || results["r3"] != act.NotDone {
		t.Errorf("without AUDIT: %v, %v", results, err)
	}
}

// Anybody may use a Nats-Msg-Id: one that was taken beforehand keeps no redriven request away.
func TestNobodyKeepsARedrivenRequestFromItsQueue(t *testing.T) {
	for what, body := range map[string]string{"other contents": enrollment("2"), "the same contents": enrollment("1")} {
		t.Run(what, func(t *testing.T) {
			d := newDeadLetters(t)
			sequence := d.ended(messages.Enroll, "r1", enrollment("1"), messages.Failed, `,"reason":"refused"`) + 1
			items := d.plan("r1")
			d.put("mandate.enroll.requested", body, nats.MsgIdHdr, fmt.Sprintf("redrive.mandate.enroll.r1.%d", sequence), bus.HeaderRequestID, "r1",
				bus.HeaderReopened, "99999999")
			d.redrive(items, act.Consent{})
			queued := d.queued(bus.MandateRequests)
			if last := queued[len(queued)-1]; last.Header.Get(bus.HeaderReopened) != fmt.Sprint(sequence) || string(last.Data) != enrollment("1") {
				t.Errorf("it is not in its queue: %v", queued)
			}
		})
	}
}

// What is not known of a message is not a reason to say that nothing was done.
func TestAMessageWhoseBeginningIsGoneIsNotCancelled(t *testing.T) {
	d := newDeadLetters(t)
	d.put("mail.send.deferred.m1", `{"reason":"busy"}`)
	if _, err := d.Cancel(t.Context(), messages.Send, "m1", "wrong list"); !errors.Is(err, act.ErrNothingDone) {
		t.Errorf("its started event is gone: %v", err)
	}
}

// A rate is a promise to the upstream, however low.
func TestAVeryLowRateIsKept(t *testing.T) {
	d := newDeadLetters(t)
	d.ended(messages.Enroll, "r1", enrollment("1"), messages.Failed, `,"reason":"refused"`)
	d.ended(messages.Enroll, "r2", enrollment("2"), messages.Failed, `,"reason":"refused"`)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	results := map[string]act.Result{}
	d.must(d.Redrive(ctx, d.plan("r1", "r2"), act.Consent{Why: "back", Rate: 1e-12}, func(r act.Redriven) {
		results[r.RequestID] = r.Result
		time.AfterFunc(500*time.Millisecond, stop)
	}))
	if results["r1"] != act.Done || results["r2"] != act.NotDone {
		t.Errorf("one in thirty thousand years: %v", results)
	}
}
