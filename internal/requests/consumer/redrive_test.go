package consumer

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/internal/requests/attempt"
	"errand/internal/requests/hold"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// unnamed is a request that goes by the id that the queue gives, or a person.
var unnamed = enrollment(nil)

// reopened stores how a request ended, and that it was opened again for the contents of a body;
// it returns its sequence.
func (h *harness) reopened(id, by, body string) uint64 {
	h.t.Helper()
	h.log.Put("mandate.enroll.uncertain."+id, []byte(fmt.Sprintf(`{"request_id":%q,"attempt":1,"reason":"no_answer","fingerprint":%q}`, id,
		fingerprint(h.t, body))))
	return h.log.Put("mandate.enroll.reopened."+id, []byte(fmt.Sprintf(
		`{"request_id":%q,"attempt":1,"by":%q,"was":{"state":"uncertain","reason":"no_answer"},"after_unknown":true,"fingerprint":%q}`, id, by,
		fingerprint(h.t, body))))
}

func fingerprint(t *testing.T, body string) string {
	t.Helper()
	meta, err := messages.Check(messages.Enroll, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return meta.Fingerprint
}

// redriven opens a message that says that a person has published it again.
func (h *harness) redriven(id string, reopened uint64, body string) *delivery[messages.EnrollRequest] {
	h.t.Helper()
	d := h.open("", body, 1)
	d.Header = nats.Header{bus.HeaderRequestID: {id}, bus.HeaderReopened: {fmt.Sprint(reopened)}}
	d.claim = claimOf(d.Request)
	return d
}

func (h *harness) answered() string {
	h.t.Helper()
	m, err := h.acks.NextMsg(5 * time.Second)
	h.must(err)
	return strings.Fields(string(m.Data))[0]
}

func TestARedrivenRequestRunsOnceUnderTheIDThatWasReopened(t *testing.T) {
	for _, id := range []string{"MANDATE_REQUESTS-12", "MANDATE_REQUESTS-12-dk2x9", "pay-1"} {
		h := newHarness(t)
		at := h.reopened(id, "ann", unnamed)
		var prior history.Prior
		h.handle(func(ctx context.Context, r attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
			prior = r.Prior
			return succeeds(ctx, r)
		})
		for range 2 { // published twice, as after a kill
			if h.settle(t.Context(), h.redriven(id, at, unnamed)); h.answered() != "+ACK" {
				t.Errorf("%s: not acknowledged", id)
			}
		}
		last := h.log.Events()[2:]
		if len(last) != 1 || last[0].Subject != "mandate.enroll.succeeded."+id || len(h.handled) != 1 {
			t.Errorf("%s: events %v, handled %q", id, last, h.handled)
		}
		if prior.State != messages.Reopened || !prior.AfterUnknown || !prior.Again || prior.Reason != messages.ReasonNoAnswer {
			t.Errorf("%s: it was run over %+v", id, prior)
		}
		if diff := cmp.Diff([]string{"succeeded", "repeated"}, h.settled); diff != "" {
			t.Errorf("%s: settled (-want +got):\n%s", id, diff)
		}
	}
}

// What says of itself that it is redriven, and is not, is run under no id: not under the one
// that it claims, and not under a new one, since it may be what was done already.
func TestNobodyTakesAnIDBySayingThatItWasReopened(t *testing.T) {
	const victim = "pay-1"
	for what, c := range map[string]struct {
		id     string
		before func(h *harness) uint64 // the sequence that the message says
		body   string
	}{
		"an id that nobody has":        {id: "pay-2", before: func(*harness) uint64 { return 0 }},
		"one that the queue will give": {id: "MANDATE_REQUESTS-999", before: func(*harness) uint64 { return 1 }},
		"one that ended": {before: func(h *harness) uint64 {
			return h.log.Put("mandate.enroll.failed."+victim, []byte(`{"fingerprint":""}`))
		}},
		"one that was corrected": {before: func(h *harness) uint64 { return h.reopened(victim, messages.ByCorrection, unnamed) }},
		"one reopened for other content": {before: func(h *harness) uint64 {
			return h.reopened(victim, "ann", enrollment(map[string]any{"amount": "200"}))
		}},
		"one reopened later":          {before: func(h *harness) uint64 { return h.reopened(victim, "ann", unnamed) + 1 }},
		"another than the body names": {before: func(h *harness) uint64 { return h.reopened(victim, "ann", unnamed) }, body: request},
		"a pattern":                   {id: "*", before: func(h *harness) uint64 { return h.reopened(victim, "ann", unnamed) }},
		"a reopening without contents": {before: func(h *harness) uint64 {
			return h.log.Put("mandate.enroll.reopened."+victim, []byte(`{"stream":"MANDATE_REQUESTS","seq":7}`))
		}},
	} {
		t.Run(what, func(t *testing.T) {
			h := newHarness(t)
			id, body := victim, unnamed
			if c.id != "" {
				id = c.id
			}
			if c.body != "" {
				body = c.body
			}
			at := c.before(h)
			before := len(h.log.Events())
			h.settle(t.Context(), h.redriven(id, at, body))
			if got := h.answered(); got != "+ACK" {
				t.Errorf("answered %s", got)
			}
			for _, e := range h.log.Events()[before:] {
				if !strings.HasPrefix(e.Subject, "mandate.enroll.failed.MANDATE_REQUESTS-") || !strings.Contains(string(e.Body), `"invalid_request"`) ||
					!strings.Contains(string(e.Body), fmt.Sprintf(`"conflicts_with":%q`, id)) {
					t.Errorf("stored %s %s", e.Subject, e.Body)
				}
			}
			if len(h.handled) != 0 {
				t.Errorf("it was run under %q", h.handled)
			}
		})
	}
}

func TestARedrivenRequestIsNotTakenForDoneByAReplicaThatLags(t *testing.T) {
	h := newHarness(t)
	h.log.Lag = 1
	at := h.reopened("a1", "ann", request)
	h.settle(t.Context(), h.redriven("a1", at, request))
	if got := h.answered(); got != "+ACK" || len(h.handled) != 1 {
		t.Errorf("%s, handled %q", got, h.handled)
	}
}

// A redrive is of the contents that it was decided for: where these were corrected since, it corrects nothing back.
func TestARedriveCorrectsNothing(t *testing.T) {
	h := newHarness(t)
	at := h.reopened("a1", "ann", request)
	other := enrollment(map[string]any{"request_id": "a1", "amount": "200"})
	h.log.Put("mandate.enroll.failed.a1", []byte(fmt.Sprintf(`{"request_id":"a1","reason":"refused","fingerprint":%q}`,
		fingerprint(t, other))))
	h.settle(t.Context(), h.redriven("a1", at, request))
	if got := h.answered(); got != "+ACK" || len(h.handled) != 0 {
		t.Errorf("%s, handled %q", got, h.handled)
	}
	h.eventsAre("a1 uncertain", "a1 reopened", "a1 failed", "own failed")
}

// What a person runs again has as much time as what is published for the first time.
func TestTheTimeOfARedrivenRequestCountsFromItsPublication(t *testing.T) {
	h := newHarness(t)
	past, soon := time.Now().Add(-48*time.Hour), time.Now().Add(time.Hour)
	for _, c := range []struct {
		named    time.Time
		redriven bool
		want     time.Duration
	}{{past, true, 24 * time.Hour}, {past, false, -48 * time.Hour}, {soon, true, time.Hour}} {
		m := nats.NewMsg("mandate.enroll.requested")
		m.Data = []byte(enrollment(map[string]any{"request_id": "a1", "give_up_at": c.named.UTC().Format(time.RFC3339)}))
		if c.redriven {
			m.Header.Set(bus.HeaderReopened, "1")
		}
		_, err := h.js.PublishMsg(t.Context(), m)
		h.must(err)
		r, err := h.lanes[0].queue.Next(t.Context(), time.Second)
		h.must(err)
		permit, err := h.hold.Acquire(t.Context())
		h.must(err)
		d := h.Consumer.open(taken{r, h.lanes[0]}, permit)
		if got := time.Until(d.giveUp).Round(time.Minute); got != c.want {
			t.Errorf("named %s, redriven %v: given up in %v, want %v", c.named, c.redriven, got, c.want)
		}
	}
}

// One request that a person has run again and again is one request to its hold, although each message has another id.
func TestRedrivesOfOneRequestBeginNoHold(t *testing.T) {
	h := newHarness(t)
	h.handle(func(_ context.Context, r attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
		r.Permit.Observe(hold.Call{Err: &clients.Error{Fate: clients.Unknown, Status: 500}})
		return r.History.Event(messages.Uncertain, &messages.EnrollUncertain{Reason: messages.ReasonNoAnswer,
			Fingerprint: r.History.Fingerprint}), nil
	})
	for range 4 {
		d := h.redriven("pay-1", h.reopened("pay-1", "ann", unnamed), unnamed)
		if !d.permit.Admit(d.asked()) {
			t.Fatal("it was not admitted")
		}
		if h.settle(t.Context(), d); h.answered() != "+ACK" || h.hold.Active() {
			t.Fatalf("%d times handled: %s", len(h.handled), h.hold.Why())
		}
	}
}

// earlier is a log whose events were stored some time before.
type earlier struct {
	*historytest.Log
	by time.Duration
}

func (l earlier) Leader(ctx context.Context, op messages.Operation, filter string) (history.Entry, error) {
	e, err := l.Log.Leader(ctx, op, filter)
	e.At = e.At.Add(-l.by)
	return e, err
}

// A repeat whose time is over does not end a request that a person has opened again since: that has a time of its own.
func TestARepeatDoesNotGiveUpWhatAPersonRedrives(t *testing.T) {
	for what, c := range map[string]struct {
		giveUp, reopened time.Duration // how long ago
		by               string
		want             time.Duration // from now on
	}{
		"given up before the redrive": {time.Hour, time.Minute, "ann", 24*time.Hour - time.Minute},
		"given up since the redrive":  {time.Minute, time.Hour, "ann", -time.Minute},
		"a correction":                {time.Hour, time.Minute, messages.ByCorrection, -time.Hour},
	} {
		t.Run(what, func(t *testing.T) {
			h := newHarness(t)
			body := enrollment(map[string]any{"request_id": "pay-1", "give_up_at": messages.Time{Time: time.Now().Add(-c.giveUp)}.String()})
			h.reopened("pay-1", c.by, body)
			h.Log = earlier{h.log, c.reopened}
			var got time.Duration
			h.handle(func(ctx context.Context, r attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
				got = time.Until(r.GiveUpAt)
				return succeeds(ctx, r)
			})
			if h.deliver(t.Context(), body, 1); (got - c.want).Abs() > 10*time.Second {
				t.Errorf("it is given up in %v, want %v", got, c.want)
			}
		})
	}
}
