package act_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/oncall/act"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// deferred puts a request into its queue and stores that it waits for an hour.
func (d deadLetters) deferred(op messages.Operation, id, contents string, headers ...string) {
	d.t.Helper()
	d.put(op.Requested(), contents, headers...)
	d.put(op.Subject(messages.Deferred, id), d.wait(fmt.Sprintf(`"attempt":3,"fingerprint":%q`, printOf(d.t, op, contents))))
}

func (d deadLetters) wait(fields string) string {
	return fmt.Sprintf(`{"reason":"no_answer","message":"m","http_status":500,"held_count":2,"after_unknown":true,"not_before":%q,%s}`,
		time.Now().Add(time.Hour).UTC().Format(time.RFC3339), fields)
}

func withID(id, contents string) string { return fmt.Sprintf(`{"request_id":%q,`, id) + contents[1:] }

func (d deadLetters) read(op messages.Operation, id string) (history.Prior, error) {
	h := &history.History{Log: d.Log, Operation: op, ID: id}
	return h.Read(d.t.Context())
}

func TestARetriedRequestBeginsNowAndKeepsWhatIsKnownOfIt(t *testing.T) {
	d := newDeadLetters(t)
	d.deferred(messages.Enroll, "r1", withID("r1", enrollment("DD1")))
	if op, err := d.Retry(t.Context(), "", "r1", "it is back"); op != messages.Enroll || err != nil {
		t.Fatal(op, err)
	}
	p, err := d.read(messages.Enroll, "r1")
	if err != nil || p.State != messages.Deferred || p.Reason != messages.ReasonNoAnswer || p.Attempt != 3 || p.HeldCount != 2 ||
		!p.AfterUnknown || p.Waited() > time.Second {
		t.Errorf("read as %+v, %v", p, err)
	}
	if got := d.queued(bus.MandateRequests); len(got) != 2 || string(got[0].Data) != string(got[1].Data) {
		t.Errorf("its queue has %d messages, want two that are the same", len(got))
	}
	want := "retry ann@example.com r1: it is back, done published again"
	if got := acts(t, d.Person, act.Query{}); len(got) != 1 || strings.TrimSpace(got[0]) != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
	if _, err := d.Retry(t.Context(), "", "r1", "again"); err != nil { // over a wait that is over nothing is stored
		t.Error(err)
	}
}

func TestTheBatchesOfARetriedMessageBeginNow(t *testing.T) {
	d := newDeadLetters(t)
	d.deferred(messages.Send, "m1", withID("m1", mail))
	d.put("mail.batch.deferred.m1.1", d.wait(`"batch":1,"count":2`))
	d.put("mail.batch.deferred.m1.2", d.wait(`"batch":2,"count":2`))
	accepted := d.put("mail.batch.accepted.m1.2", `{"batch":2,"count":2}`)
	if _, err := d.Retry(t.Context(), messages.Send, "m1", "it is back"); err != nil {
		t.Fatal(err)
	}
	if p, err := d.read(messages.Batch, "m1.1"); err != nil || p.State != messages.Deferred || !p.AfterUnknown {
		t.Errorf("the first batch is read as %+v, %v", p, err)
	}
	_, err := d.read(messages.Batch, "m1.2")
	if done, ok := errors.AsType[*history.AlreadyDoneError](err); !ok || done.Sequence != accepted {
		t.Errorf("the second batch, which was accepted: %v", err)
	}
}

// A batch waits for nothing that was before a redrive. What the redrive said of it still holds after a retry.
func TestARetryLeavesABatchThatARedriveNamesAsItIs(t *testing.T) {
	d := newDeadLetters(t)
	d.put("mail.batch.deferred.m1.1", d.wait(`"batch":1,"count":2`))
	reopened := d.put("mail.send.reopened.m1", `{"by":"ann","was":{"state":"uncertain"},"batches":[1],"after_unknown":true}`)
	d.deferred(messages.Send, "m1", withID("m1", mail))
	if _, err := d.Retry(t.Context(), messages.Send, "m1", "it is back"); err != nil {
		t.Fatal(err)
	}
	h := &history.History{Log: d.Log, Operation: messages.Batch, ID: "m1.1", ReopenedAt: reopened, Named: true}
	if p, err := h.Read(t.Context()); err != nil || p.State != messages.Reopened || !p.Again {
		t.Errorf("it is read as %+v, %v", p, err)
	}
}

func TestARetryThatWouldChangeNothingIsRefused(t *testing.T) {
	d := newDeadLetters(t)
	d.deferred(messages.Enroll, "paused", withID("paused", enrollment("DD1")))
	d.deferred(messages.Send, "MAIL_REQUESTS-1", mail)
	d.deferred(messages.Send, "header", strings.Replace(mail, "a@", "c@", 1), "Nats-Msg-Id", "header")
	d.put("mail.send.deferred.gone", d.wait(`"fingerprint":"f"`))
	d.put("mail.send.started.runs", `{"fingerprint":"f"}`)
	if _, err := d.Pause(t.Context(), bus.EnrollQueue, time.Hour, "moved"); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"nobody": "nobody is not deferred: it waits in its queue", "runs": "runs is started, and not deferred",
		"gone":            "its queue does not have gone",
		"MAIL_REQUESTS-1": "was published without an id", "paused": "paused would not be begun: its queue is paused by ann@example.com: moved",
		"not an id": "is not a valid request id",
	} {
		_, err := d.Retry(t.Context(), "", id, "why")
		if !errors.Is(err, act.ErrNothingDone) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", id, err, want)
		}
	}
	if _, err := d.Retry(t.Context(), "", "header", "why"); err == nil || !strings.Contains(err.Error(), "takes it for a repeat") {
		t.Errorf("within the duplicate window: %v", err)
	}
	held := bus.ProgramStatus{Program: "mail-consumer", Holds: []bus.Hold{{Operation: messages.Send, Why: "it answers 503"}}}
	if err := bus.AnswerStatus(d.Conn, "mail-consumer", func() bus.ProgramStatus { return held }); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Retry(t.Context(), "", "header", "why"); !errors.Is(err, act.ErrNothingDone) ||
		!strings.Contains(err.Error(), "held: it answers 503") {
		t.Errorf("while it is held: %v", err)
	}
}

// A message of a request that was scheduled says under which id it runs, and since when.
func TestARequestWhoseTimeHasComeIsRetriedWhateverNamesIt(t *testing.T) {
	d := newDeadLetters(t)
	scheduled := fmt.Sprint(d.put("mail.send.deferred.later", `{"reason":"scheduled"}`))
	d.deferred(messages.Send, "later", mail, bus.HeaderScheduled, scheduled, bus.HeaderRequestID, "later", bus.HeaderMsgID, "later")
	if _, err := d.Retry(t.Context(), "", "later", "it is back"); err != nil {
		t.Fatal(err)
	}
	got := d.queued(bus.MailRequests)
	if len(got) != 2 || got[1].Header.Get(bus.HeaderScheduled) != scheduled || got[1].Header.Get(bus.HeaderMsgID) != "later" {
		t.Errorf("its queue has %+v", got)
	}
}

// Where the servers' storage was full when its time came, a scheduled request stays with them until a program finds it.
func TestARequestThatWasNotPutIntoItsQueueAtItsTimeIsRetried(t *testing.T) {
	d := newDeadLetters(t)
	scheduled := d.put("mail.send.deferred.later", fmt.Sprintf(`{"reason":"scheduled","not_before":"2026-01-01T00:00:00Z","fingerprint":%q}`,
		printOf(t, messages.Send, mail)))
	kept := bus.Schedule{Operation: messages.Send, ID: "later", Fingerprint: printOf(t, messages.Send, mail), Sequence: scheduled,
		At: time.Now().Add(time.Hour)}.Message(&bus.Request{Data: []byte(mail)})
	if _, err := d.JS.PublishMsg(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Retry(t.Context(), "", "later", "there is room again"); err != nil {
		t.Fatal(err)
	}
	if got := d.queued(bus.MailRequests); len(got) != 1 || got[0].Header.Get(bus.HeaderScheduled) != fmt.Sprint(scheduled) {
		t.Errorf("its queue has %+v", got)
	}
}

// Whether a retry would change anything depends on the queue of the request's own lane.
func TestARetryInALaneThatIsPausedIsRefused(t *testing.T) {
	d := newDeadLetters(t)
	if err := devtest.Provision(t.Context(), d.Conn, "bulk"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Pause(t.Context(), bus.SendQueue.In("bulk"), time.Hour, "moved"); err != nil {
		t.Fatal(err)
	}
	contents := withID("m1", mail)
	d.put("mail.send.requested.lane.bulk", contents)
	d.put("mail.send.deferred.m1", d.wait(fmt.Sprintf(`"fingerprint":%q`, printOf(t, messages.Send, contents))))
	if _, err := d.Retry(t.Context(), "", "m1", "why"); !errors.Is(err, act.ErrNothingDone) || !strings.Contains(err.Error(), "moved") {
		t.Errorf("retried: %v", err)
	}
}

// A publisher may have sent conditions that held once, and names of headers that nats.go would not write.
func TestARetriedRequestHasNoHeadersThatWouldKeepItOutOfItsQueue(t *testing.T) {
	d := newDeadLetters(t)
	d.deferred(messages.Enroll, "r1", withID("r1", enrollment("DD1")), "Nats-Expected-Last-Sequence", "0", "traceparent", "00-1-2-01")
	if _, err := d.Retry(t.Context(), "", "r1", "it is back"); err != nil {
		t.Fatal(err)
	}
	if got := d.queued(bus.MandateRequests); len(got) != 2 || got[1].Header.Get("traceparent") == "" {
		t.Errorf("its queue has %d messages, want two, and the trace in both", len(got))
	}
}

// deaf is a log whose leader does not answer.
type deaf struct{ history.Log }

var errDeaf = errors.New("no answer")

func (deaf) Leader(context.Context, messages.Operation, string) (history.Entry, error) {
	return history.Entry{}, errDeaf
}

func TestWhatIsNotKnownOfARequestIsNotSaidOfIt(t *testing.T) {
	d := newDeadLetters(t)
	d.deferred(messages.Enroll, "r1", withID("r1", enrollment("DD1")))
	d.Log = deaf{d.Log}
	for name, do := range map[string]func(context.Context, messages.Operation, string, string) (messages.Operation, error){
		"retry": d.Retry, "cancel": d.Cancel,
	} {
		if _, err := do(t.Context(), "", "r1", "why"); !errors.Is(err, errDeaf) || errors.Is(err, act.ErrNothingDone) {
			t.Errorf("%s: %v, want %v", name, err, errDeaf)
		}
	}
}

// What a person stores of a request goes on with its publisher's trace, and names its lane, as all other events of it do.
func TestWhatAPersonEndsStaysInItsTraceAndLane(t *testing.T) {
	d := newDeadLetters(t)
	if err := devtest.Provision(t.Context(), d.Conn, "bulk"); err != nil {
		t.Fatal(err)
	}
	const parent, state, lane = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "shop=1", "mail.send.requested.lane.bulk"
	for _, id := range []string{"queued", "deferred", "retried"} {
		contents := withID(id, mail)
		d.put(lane, contents, "traceparent", parent, "tracestate", state)
		if id == "queued" {
			continue
		}
		h := &history.History{Log: d.Log, Operation: messages.Send, ID: id, Lane: "bulk", Trace: history.Trace{Parent: parent, State: state}}
		d.must(h.Store(t.Context(), messages.Started, &messages.SendStarted{Batches: 1, BatchSize: 2}))
		d.must(h.Store(t.Context(), messages.Deferred, &messages.DeferredBody{Reason: messages.ReasonBusy,
			NotBefore: messages.Time{Time: time.Now().Add(time.Hour)}, Fingerprint: printOf(t, messages.Send, contents)}))
	}
	for id, do := range map[string]func(context.Context, messages.Operation, string, string) (messages.Operation, error){
		"queued": d.Cancel, "deferred": d.Cancel, "retried": d.Retry,
	} {
		_, err := do(t.Context(), messages.Send, id, "why")
		d.must(err)
		last, _, err := bus.Last(t.Context(), d.Conn, bus.MailEvents, messages.Send.Filter(id))
		d.must(err)
		if last.Header.Get("traceparent") != parent || last.Header.Get("tracestate") != state || !strings.Contains(string(last.Data), `"lane":"bulk"`) {
			t.Errorf("%s: %s %v %s", id, last.Subject, last.Header, last.Data)
		}
	}
}
