package act_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

// deadLetters are a server's dead letters, and ann who redrives them.
type deadLetters struct {
	act.Requests
	t *testing.T
}

func newDeadLetters(t *testing.T) deadLetters {
	t.Helper()
	t.Parallel()
	return deadLetters{ann(t).Requests(), t}
}

func (d deadLetters) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// put stores a message as it is, and returns its sequence.
func (d deadLetters) put(subject, body string, headers ...string) uint64 {
	d.t.Helper()
	m := &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{}}
	for i := 0; i+1 < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	ack, err := d.JS.PublishMsg(d.t.Context(), m)
	d.must(err)
	return ack.Sequence
}

// enrollment and mail are the contents of requests.
func enrollment(order string) string {
	return fmt.Sprintf(`{"payer_name":"Payer","payer_email":"payer@example.test","payer_id_type":1,"payer_id":"900101015555","payer_telephone_number":"60190000000","order_number":%q,"amount":"100","application_reason":"Rent","frequency_mode":"MT"}`, order)
}

const mail = `{"to":["a@example.test","b@example.test"],"subject":"s","content":"c"}`

func printOf(t *testing.T, op messages.Operation, body string) string {
	t.Helper()
	meta, err := messages.Check(op, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return meta.Fingerprint
}

// ended stores the last event of a request and the dead letter that it left.
func (d deadLetters) ended(op messages.Operation, id, contents string, state messages.State, fields string) uint64 {
	d.t.Helper()
	event := fmt.Sprintf(`{"request_id":%q,"attempt":1,"fingerprint":%q%s}`, id, printOf(d.t, op, contents), fields)
	sequence := d.put(op.Subject(state, id), event)
	d.letter(op, id, contents, sequence)
	return sequence
}

// begun stores that a message was cut into batches.
func (d deadLetters) begun(id, contents string, batches int) {
	d.t.Helper()
	d.put("mail.send.started."+id, fmt.Sprintf(`{"request_id":%q,"attempt":1,"fingerprint":%q,"batches":%d,"batch_size":2}`, id,
		printOf(d.t, messages.Send, contents), batches))
}

func (d deadLetters) letter(op messages.Operation, id, contents string, of uint64) {
	d.t.Helper()
	d.put("dead."+op.Requested(), contents, bus.HeaderRequestID, id, bus.HeaderReason, "no_answer", "X-Own", "kept", nats.MsgIdHdr,
		bus.DeadLetterID(op, id, of))
}

func (d deadLetters) plan(names ...string) []act.Item {
	d.t.Helper()
	letters, err := d.Letters(d.t.Context(), names, inspect.Query{})
	d.must(err)
	items, err := d.Plan(d.t.Context(), letters)
	d.must(err)
	return items
}

// names names the dead letters of a plan.
func names(plan []act.Item) (names []string) {
	for _, i := range plan {
		names = append(names, inspect.Name(i.Sequence))
	}
	return names
}

// redrive runs everything again, as was consented to, and returns a line for each result.
func (d deadLetters) redrive(items []act.Item, c act.Consent) (lines []string) {
	d.t.Helper()
	if c.Why == "" {
		c.Why = "the service is back"
	}
	d.must(d.Redrive(d.t.Context(), items, c, func(r act.Redriven) {
		said, _, _ := strings.Cut(r.Message, ":")
		lines = append(lines, fmt.Sprintf("%s %s %s", r.RequestID, r.Result, said))
	}))
	return lines
}

func (d deadLetters) queued(stream string) []bus.Message {
	d.t.Helper()
	found, err := (&bus.Scan{Stream: stream, Filter: ">", Page: 1000}).Next(d.t.Context(), d.Conn)
	d.must(err)
	return found
}

func TestAPlanSaysWhatMayBeDoneTwice(t *testing.T) {
	d := newDeadLetters(t)
	e, m := enrollment("DD1"), mail
	for id, c := range map[string]struct{ state, fields, want string }{
		"failed":    {"failed", `,"reason":"refused"`, "safe"},
		"behind":    {"failed", `,"reason":"refused","after_unknown":true`, "may_be_done_twice"},
		"unknown":   {"uncertain", `,"reason":"no_answer","evidence":[]`, "may_be_done_twice"},
		"listed":    {"uncertain", `,"reason":"no_answer","evidence":[{}]`, "was_done"},
		"link":      {"uncertain", `,"reason":"link_lost"`, "was_done"},
		"withdrawn": {"failed", `,"reason":"cancelled"`, "cancelled"},
		"copy":      {"failed", `,"reason":"invalid_request","conflicts_with":"x"`, "cannot_run"},
		"clash":     {"failed", `,"reason":"conflict","conflicts_with":"x"`, "may_be_done_twice"},
	} {
		d.ended(messages.Enroll, id, e, messages.State(c.state), c.fields)
		if got := d.plan(id)[0]; string(got.Class) != c.want {
			t.Errorf("%s: %s (%s), want %s", id, got.Class, got.Says, c.want)
		}
	}
	for id, c := range map[string]struct {
		state, fields, want string
		batches, unknown    []int
	}{
		"m-failed": {"failed", `,"reason":"refused","batches":1,"unsettled":[{"batch":1,"state":"refused"}],"unsettled_count":1`, "safe",
			[]int{1}, nil},
		"m-early": {"failed", `,"reason":"invalid_request","batches":0`, "fails_again", nil, nil},
		"m-unknown": {"uncertain", `,"reason":"no_answer","batches":1,"unsettled":[{"batch":1,"count":3,"state":"uncertain"}],"unsettled_count":1`,
			"may_be_done_twice", nil, []int{1}},
		"m-partial": {"partial", `,"batches":4,"unsettled":[{"batch":2,"state":"refused"},{"batch":4,"state":"deferred"}],"unsettled_count":2`,
			"safe", []int{2, 4}, nil},
		"m-mixed": {"uncertain", `,"batches":3,"unsettled":[{"batch":1,"state":"refused"},{"batch":3,"state":"uncertain"}],"unsettled_count":2`,
			"may_be_done_twice", []int{1}, []int{3}},
		"m-short": {"partial", `,"batches":1,"unsettled":[{"batch":1,"state":"accepted"}],"unsettled_count":1`, "was_done", nil, nil},
		"m-cut": {"uncertain", `,"batches":3,"unsettled":[{"batch":1,"state":"uncertain"}],"unsettled_count":2`, "may_be_done_twice",
			[]int{3}, []int{1, 2}},
		"m-purged": {"partial", `,"batches":2,"unsettled":[{"batch":2,"state":"refused"}],"unsettled_count":1`, "cannot_run", []int{2}, nil},
	} {
		if id != "m-purged" {
			d.begun(id, m, 4)
		}
		if id == "m-cut" { // what is no longer listed is in the batches' own events
			d.put("mail.batch.refused.m-cut.3", `{"batch":3}`)
		}
		d.ended(messages.Send, id, m, messages.State(c.state), c.fields)
		got := d.plan(id)[0]
		if string(got.Class) != c.want || !slices.Equal(got.Batches, c.batches) || !slices.Equal(got.Unknown, c.unknown) {
			t.Errorf("%s: %s (%s) %v %v, want %s %v %v", id, got.Class, got.Says, got.Batches, got.Unknown, c.want, c.batches, c.unknown)
		}
		says := map[string]string{"m-unknown": "1 batch of unknown fate: its recipients may have the mail already; " +
			"of 3 recipients of batch 1 the log shows 0, which no poller has read",
			"m-failed":  "1 batch not accepted",
			"m-partial": "2 batches not accepted; the others are not sent again"}
		if want := says[id]; want != "" && got.Says != want {
			t.Errorf("%s: says %q, want %q", id, got.Says, want)
		}
	}
}

func TestAPlanKnowsWhatHasGoneOn(t *testing.T) {
	d := newDeadLetters(t)
	e := enrollment("DD1")
	after := func(id, state, fields string) {
		d.put(messages.Enroll.Subject(messages.State(state), id), fmt.Sprintf(`{"request_id":%q%s}`, id, fields))
	}
	print := fmt.Sprintf(`,"fingerprint":%q`, printOf(t, messages.Enroll, e))
	for id, c := range map[string]struct{ state, fields, want string }{
		"runs":      {"started", print, "open"},
		"waits":     {"deferred", "", "open"},
		"done":      {"succeeded", print, "superseded"},
		"found":     {"resolved", print + `,"outcome":"succeeded"`, "was_done"},
		"not-found": {"resolved", print + `,"outcome":"failed","evidence":[]`, "safe"},
		"ended":     {"resolved", print + `,"outcome":"failed","evidence":[{}]`, "was_done"},
		"corrected": {"reopened", `,"by":"correction","fingerprint":"other"`, "superseded"},
		"again":     {"uncertain", print, "superseded"},
		"opened":    {"reopened", print + `,"by":"ben","why":"x"`, "reopened"},
	} {
		d.ended(messages.Enroll, id, e, messages.Uncertain, `,"reason":"no_answer"`)
		letters, err := d.Letters(t.Context(), []string{id}, inspect.Query{})
		d.must(err)
		after(id, c.state, c.fields)
		items, err := d.Plan(t.Context(), letters)
		d.must(err)
		if got := items[0]; string(got.Class) != c.want {
			t.Errorf("%s: %s (%s), want %s", id, got.Class, got.Says, c.want)
		}
	}
	d.letter(messages.Enroll, "expired", e, 7)
	letters, err := d.Letters(t.Context(), nil, inspect.Query{Limit: 1})
	d.must(err)
	items, err := d.Plan(t.Context(), letters)
	d.must(err)
	if got := items[0]; got.RequestID != "expired" || got.Class != inspect.Twice {
		t.Errorf("a dead letter without events: %+v", got)
	}
	after("expired", "reopened", print+`,"by":"ben","why":"x"`) // and killed
	if got := d.plan("expired")[0]; got.Class != inspect.Reopened {
		t.Errorf("a dead letter without other events: %+v", got)
	}
	for id, c := range map[string]struct {
		to   string
		want inspect.Class
	}{
		"expired-one":  {`"to":["a@x.com"]`, inspect.Twice},
		"expired-two":  {`"to":["a@x.com","b@x.com"]`, inspect.CannotRun}, // with MAIL_BATCH_SIZE=1 neither may see the other
		"expired-list": {`"to_object":{"bucket":"lists","name":"all","digest":"SHA-256=x"}`, inspect.CannotRun},
	} {
		d.letter(messages.Send, id, "{"+c.to+`,"subject":"s","content":"c"}`, 7)
		if got := d.plan(id)[0]; got.Class != c.want {
			t.Errorf("%s: %s, want %s", id, got.Class, c.want)
		}
	}
}

func TestAPlanAndAListSayWhoDiscardedADeadLetter(t *testing.T) {
	d := newDeadLetters(t)
	r1 := d.ended(messages.Enroll, "r1", enrollment("DD1"), messages.Failed, `,"reason":"refused"`)
	d.ended(messages.Enroll, "r2", enrollment("DD2"), messages.Failed, `,"reason":"refused"`)
	d.must(d.Discard(t.Context(), d.plan("r1"), "the payer signed on paper"))
	for _, i := range d.plan("r1", "r2") {
		said := strings.Contains(i.Says, d.Name+" discarded it: the payer signed on paper")
		if said != (i.RequestID == "r1") {
			t.Errorf("%s: the plan says %q", i.RequestID, i.Says)
		}
	}
	// A repeat of the request, after the stream's duplicate window, leaves another dead letter of the same ending.
	dead, err := d.JS.Stream(t.Context(), bus.DeadLetters)
	d.must(err)
	c := dead.CachedInfo().Config
	c.Duplicates = 100 * time.Millisecond
	_, err = d.JS.UpdateStream(t.Context(), c)
	d.must(err)
	<-time.After(200 * time.Millisecond)
	d.letter(messages.Enroll, "r1", enrollment("DD1"), r1)
	letters, err := d.Letters(t.Context(), nil, inspect.Query{})
	d.must(err)
	d.must(act.SayDiscarded(t.Context(), d.Reader, letters))
	for _, l := range letters {
		if said := strings.HasSuffix(l.Discarded, "the payer signed on paper"); said != (l.RequestID == "r1") || len(letters) != 2 ||
			l.RequestID == "r1" && l.Sequence != 3 {
			t.Errorf("%s, one of %d listed: %q", l.RequestID, len(letters), l.Discarded)
		}
	}
}

func TestARedriveOpensTheRequestAndPublishesItsBytes(t *testing.T) {
	d := newDeadLetters(t)
	contents := enrollment("DD1")
	d.ended(messages.Enroll, "MANDATE_REQUESTS-12", contents, messages.Uncertain, `,"reason":"no_answer","attempt":2`)
	plan := d.plan("MANDATE_REQUESTS-12")
	if got := d.redrive(plan, act.Consent{}); !strings.Contains(got[0], "not_done") || len(d.queued(bus.MandateRequests)) != 0 {
		t.Errorf("nobody accepted that it may be done twice: %q", got)
	}
	if got := d.redrive(plan, act.Consent{Accept: names(plan)}); !slices.Equal(got,
		[]string{"MANDATE_REQUESTS-12 done reopened and published"}) {
		t.Fatalf("%q", got)
	}
	last, _, err := bus.Last(t.Context(), d.Conn, bus.MandateEvents, "mandate.enroll.*.MANDATE_REQUESTS-12")
	d.must(err)
	var body messages.ReopenedBody
	d.must(messages.DecodeEvent(last.Data, &body))
	want := messages.ReopenedBody{Common: body.Common, By: "ann@example.com", Why: "the service is back",
		Was:          messages.PriorOutcome{State: messages.Uncertain, Reason: "no_answer"},
		AfterUnknown: true, Fingerprint: printOf(t, messages.Enroll, contents)}
	if diff := cmp.Diff(want, body); diff != "" || body.Attempt != 2 {
		t.Errorf("reopened (-want +got), attempt %d:\n%s", body.Attempt, diff)
	}
	queued := d.queued(bus.MandateRequests)
	if len(queued) != 1 || string(queued[0].Data) != contents || queued[0].Header.Get("X-Own") != "kept" ||
		queued[0].Header.Get(bus.HeaderRequestID) != "MANDATE_REQUESTS-12" ||
		queued[0].Header.Get(bus.HeaderReopened) != fmt.Sprint(last.Sequence) {
		t.Errorf("queued: %v", queued)
	}
	if got := acts(t, d.Person, act.Query{}); len(got) != 1 || !strings.HasPrefix(got[0],
		"redrive ann@example.com MANDATE_REQUESTS-12: the service is back, done reopened and published") {
		t.Errorf("AUDIT: %q", got)
	}
	if got := d.redrive(d.plan("MANDATE_REQUESTS-12"), act.Consent{Accept: []string{act.All}}); !slices.Equal(got,
		[]string{"MANDATE_REQUESTS-12 not_done nothing was done"}) {
		t.Errorf("once more: %q", got)
	}
}

func TestOfTwoWhoRedriveOneDoes(t *testing.T) {
	d := newDeadLetters(t)
	const n = 20
	for i := range n {
		d.ended(messages.Enroll, fmt.Sprint("r", i), enrollment(fmt.Sprint(i)), messages.Failed, `,"reason":"refused"`)
	}
	items := d.plan()
	results := map[act.Result]int{}
	var mu sync.Mutex
	var both sync.WaitGroup
	for _, name := range []string{"ben", "eve"} {
		r := as(t, d.Conn, name).Requests()
		both.Go(func() {
			if err := r.Redrive(t.Context(), items, act.Consent{Why: "back"}, func(done act.Redriven) {
				mu.Lock()
				defer mu.Unlock()
				results[done.Result]++
			}); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if queued := len(d.queued(bus.MandateRequests)); queued != n || results[act.Done] != n || results[act.NotDone] != n {
		t.Errorf("%d in the queue, want %d; results %v", queued, n, results)
	}
}

// A redrive that was killed when a request was reopened and not published is finished by doing it
// again; a slow one is not doubled.
func TestARedriveThatWasInterruptedIsFinished(t *testing.T) {
	d := newDeadLetters(t)
	contents := enrollment("DD1")
	d.ended(messages.Enroll, "r1", contents, messages.Failed, `,"reason":"refused"`)
	before := d.plan("r1")
	seq := d.put("mandate.enroll.reopened.r1", fmt.Sprintf(`{"request_id":"r1","by":"ben","was":{"state":"failed"},"fingerprint":%q}`,
		printOf(t, messages.Enroll, contents)))
	if got := d.plan("r1")[0]; got.Class != inspect.Reopened {
		t.Fatalf("%s: %s", got.Class, got.Says)
	}
	// The plan from before is another person's, who carried it out first.
	if got := d.redrive(before, act.Consent{}); len(got) != 1 || !strings.HasPrefix(got[0], "r1 not_done ") {
		t.Errorf("%q", got)
	}
	if got := d.redrive(d.plan("r1"), act.Consent{}); !slices.Equal(got, []string{"r1 done reopened and published"}) {
		t.Errorf("%q", got)
	}
	stale := d.plan("r1")[0]
	if stale.Class != inspect.Underway {
		t.Errorf("then: %s: %s", stale.Class, stale.Says)
	}
	queued := d.queued(bus.MandateRequests)
	if len(queued) != 1 || queued[0].Header.Get(bus.HeaderReopened) != fmt.Sprint(seq) {
		t.Errorf("queued: %v", queued)
	}
	// Somebody takes the message out: it is a duplicate to the server, and stored all the same.
	s, err := d.JS.Stream(t.Context(), bus.MandateRequests)
	d.must(err)
	d.must(s.Purge(t.Context()))
	if got := d.redrive(d.plan("r1"), act.Consent{}); !slices.Equal(got, []string{"r1 done reopened and published"}) ||
		len(d.queued(bus.MandateRequests)) != 1 {
		t.Errorf("after a purge: %q, %d queued", got, len(d.queued(bus.MandateRequests)))
	}
}

// Until it is published, all that look for what waits say that it is not.
func TestWhatIsReopenedAndNotPublishedIsSeen(t *testing.T) {
	d := newDeadLetters(t)
	contents := enrollment("DD1")
	for _, id := range []string{"left", "-left", "queued", "MANDATE_REQUESTS-99"} {
		d.ended(messages.Enroll, id, contents, messages.Failed, `,"reason":"refused"`)
		if strings.HasSuffix(id, "left") {
			d.put("mandate.enroll.reopened."+id, fmt.Sprintf(`{"request_id":%q,"by":"ben","why":"INC-1","was":{"state":"failed"},"fingerprint":%q}`,
				id, printOf(t, messages.Enroll, contents)))
			continue
		}
		d.redrive(d.plan(id), act.Consent{Why: "INC-2"})
	}
	says := func(id string) string {
		stories, err := d.Reader.Stories(t.Context(), id, time.Now())
		d.must(err)
		return stories[0].Says
	}
	if got := says("left"); !strings.HasPrefix(got, "reopened by ben (INC-1) ") ||
		!strings.HasSuffix(got, ", and not published: `errand dead redrive left` finishes it") {
		t.Errorf("left: %q", got)
	}
	if got := says("-left"); !strings.HasSuffix(got, ", and not published: `errand dead redrive -- -left` finishes it") {
		t.Errorf("-left: %q", got)
	}
	for _, id := range []string{"queued", "MANDATE_REQUESTS-99"} {
		if got := says(id); strings.Contains(got, "not published") {
			t.Errorf("%s: %q", id, got)
		}
	}
	stuck, err := d.Reader.Stuck(t.Context(), time.Now().Add(time.Second), 100, time.Now())
	d.must(err)
	var why []string
	for _, o := range stuck.Requests {
		why = append(why, o.RequestID+": "+string(o.State)+", "+o.Why)
	}
	slices.Sort(why)
	want := []string{"-left: reopened, reopened and not published: errand dead redrive finishes it",
		"MANDATE_REQUESTS-99: reopened, no mandate-consumer answers",
		"left: reopened, reopened and not published: errand dead redrive finishes it", "queued: reopened, no mandate-consumer answers"}
	if diff := cmp.Diff(want, why); diff != "" {
		t.Errorf("stuck (-want +got):\n%s", diff)
	}
	rows, err := d.Reader.List(t.Context(), inspect.Query{States: []messages.State{messages.Reopened}}, time.Now())
	d.must(err)
	if len(rows) != 4 || !strings.HasPrefix(rows[0].Message, "reopened by ann@example.com (INC-2)") {
		t.Errorf("list: %+v", rows)
	}
}

func TestOnlyTheBatchesThatWereNotAcceptedAreNamed(t *testing.T) {
	d := newDeadLetters(t)
	const fields = `,"batches":3,"unsettled":[{"batch":1,"state":"refused"},{"batch":3,"state":"uncertain"}],"unsettled_count":2`
	for id, c := range map[string]struct {
		accept bool
		want   []int
	}{"m1": {false, []int{1}}, "m2": {true, []int{1, 3}}} {
		d.begun(id, mail, 3)
		d.ended(messages.Send, id, mail, messages.Uncertain, fields)
		plan, consent := d.plan(id), act.Consent{}
		if c.accept {
			consent.Accept = names(plan)
		}
		d.redrive(plan, consent)
		last, _, err := bus.Last(t.Context(), d.Conn, bus.MailEvents, "mail.send.reopened."+id)
		d.must(err)
		var body messages.ReopenedBody
		d.must(messages.DecodeEvent(last.Data, &body))
		if !slices.Equal(body.Batches, c.want) || body.BatchSize != 2 || !body.AfterUnknown {
			t.Errorf("%s: %s, want the batches %v", id, last.Data, c.want)
		}
	}
}

func TestWhatWasDoneOrCancelledIsRunAgainByNameAlone(t *testing.T) {
	d := newDeadLetters(t)
	d.ended(messages.Enroll, "gone", enrollment("1"), messages.Failed, `,"reason":"cancelled"`)
	d.ended(messages.Enroll, "listed", enrollment("2"), messages.Uncertain, `,"reason":"link_lost"`)
	d.ended(messages.Enroll, "other", enrollment("3"), messages.Failed, `,"reason":"cancelled"`)
	plan := d.plan("gone", "listed", "other")
	got := d.redrive(plan, act.Consent{Accept: []string{act.All}, Force: names(plan[:2])})
	want := []string{"gone done reopened and published", "listed done reopened and published", "other not_done nothing was done"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestACancelledRequestEndsWhereNothingWasDone(t *testing.T) {
	d := newDeadLetters(t)
	e := enrollment("DD1")
	print := fmt.Sprintf(`,"fingerprint":%q`, printOf(t, messages.Enroll, e))
	event := func(state, fields string) func(id string) {
		return func(id string) {
			d.put("mandate.enroll.started."+id, fmt.Sprintf(`{"request_id":%q,"attempt":1,"deadline":"2000-01-01T00:00:00Z","order_number":"DD1"%s}`,
				id, print))
			if state != "" {
				d.put("mandate.enroll."+state+"."+id, fmt.Sprintf(`{"request_id":%q,"attempt":1%s}`, id, fields))
			}
		}
	}
	queue := func(body, id string) { d.put("mandate.enroll.requested", body, nats.MsgIdHdr, id) }
	schedule := func(id string) {
		at := time.Now().Add(time.Hour)
		of := bus.Schedule{Operation: messages.Enroll, ID: id, Fingerprint: printOf(t, messages.Enroll, e), At: at,
			Sequence: d.put("mandate.enroll.deferred."+id, fmt.Sprintf(`{"reason":"scheduled","not_before":%q%s}`, at.UTC().Format(time.RFC3339), print))}
		_, err := d.JS.PublishMsg(t.Context(), of.Message(&bus.Request{Data: []byte(e)}))
		d.must(err)
	}
	for id, c := range map[string]struct {
		before func(id string)
		want   string // "": cancelled
	}{
		"unseen":   {func(string) {}, "was never seen"},
		"queued":   {func(id string) { queue(e, id) }, ""},
		"later":    {schedule, ""},
		"deferred": {event("deferred", `,"reason":"busy","not_before":"2099-01-01T00:00:00Z"`), "not written by errand"}, // nobody waits so long
		"waits":    {event("deferred", `,"reason":"busy","not_before":"2000-01-01T00:00:00Z"`), ""},
		"unknown":  {event("deferred", `,"reason":"busy","after_unknown":true`), "unknown fate"},
		"started":  {event("", ""), "a call is under way"},
		"ended":    {event("succeeded", print), "has its outcome already: succeeded"},
		"reopened": {event("reopened", print+`,"by":"ann","was":{"state":"failed"}`), ""},
		"redriven": {event("reopened", print+`,"by":"ann","was":{"state":"uncertain"},"after_unknown":true`), "unknown fate"},
	} {
		c.before(id)
		_, err := d.Cancel(t.Context(), "", id, "the customer left")
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) || id != "deferred" && !errors.Is(err, act.ErrNothingDone) {
				t.Errorf("%s: %v, want %q", id, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		last, _, err := bus.Last(t.Context(), d.Conn, bus.MandateEvents, "mandate.enroll.*."+id)
		d.must(err)
		var body messages.FailedBody
		d.must(messages.DecodeEvent(last.Data, &body))
		if last.Subject != "mandate.enroll.failed."+id || body.Reason != messages.ReasonCancelled ||
			body.Fingerprint != printOf(t, messages.Enroll, e) ||
			body.OrderNumber != "DD1" || body.Message != "cancelled by ann@example.com: the customer left" {
			t.Errorf("%s: %s %s", id, last.Subject, last.Data)
		}
	}
}

func TestAMessageOfWhichABatchWasSentIsNotCancelled(t *testing.T) {
	d := newDeadLetters(t)
	for state, cancelled := range map[string]bool{"accepted": false, "started": false, "uncertain": false, "refused": true, "deferred": true} {
		d.put("mail.send.started."+state, fmt.Sprintf(`{"request_id":%q,"fingerprint":"f","batches":2}`, state))
		d.put("mail.batch."+state+"."+state+".2", `{"batch":2}`)
		d.put("mail.send.deferred."+state, `{"reason":"busy"}`)
		if _, err := d.Cancel(t.Context(), messages.Send, state, "wrong list"); (err == nil) != cancelled {
			t.Errorf("a batch that is %s: %v", state, err)
		}
	}
}
