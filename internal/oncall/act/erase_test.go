package act_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/internal/lists"
	"errand/internal/lists/deliveries"
	"errand/internal/lists/sink"
	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/internal/retry"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

const payer = "payer@example.com"

// row is one of the sending log.
const row = `{"created_at":"2026-01-31T08:00:05.000000Z","envelope_id":"19b77cfb4c0abcdef0","from":"shop@example.com","to":"payer@example.com","status":{"delivered":false,"response":"451 later"}}`

func store(t *testing.T, p act.Person, subject, body string, header ...string) {
	t.Helper()
	m := nats.NewMsg(subject)
	m.Data = []byte(body)
	for i := 0; i < len(header); i += 2 {
		m.Header.Set(header[i], header[i+1])
	}
	if _, err := p.JS.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// remember stores what there is of a payer: an enrollment, and a message of two batches that
// ended long ago.
func remember(t *testing.T, p act.Person, id string) {
	t.Helper()
	store(t, p, "mandate.enroll.started."+id, `{"order_number":"DD001","fingerprint":"f","deadline":"2026-01-01T00:00:00Z"}`)
	store(t, p, "mandate.enroll.uncertain."+id,
		`{"order_number":"DD001","fingerprint":"f","reason":"link_lost","evidence":[{"payer":{"email":"`+payer+`"}}]}`)
	store(t, p, "mandate.application.approved."+id, `{"transaction":{"payer":{"email":"`+payer+`"}}}`, "ce-id", "application-of-"+id)
	store(t, p, "mandate.deduction.failed."+id, `{"transaction":{"payer":{"email":"`+payer+`"}}}`, "ce-id", "deduction-of-"+id)
	store(t, p, "mandate.callback.received."+id, `{"body":"`+payer+`"}`)
	store(t, p, "dead.mandate.enroll.requested", `{"payer_email":"`+payer+`"}`, bus.HeaderRequestID, id)
	store(t, p, "dead.mandate.enroll.requested", `{"payer_email":"ben@example.com"}`, bus.HeaderRequestID, "other")
	store(t, p, "mail.send.started."+id, `{"recipients":1,"batches":2,"fingerprint":"f"}`)
	store(t, p, "mail.batch.started."+id+".1", `{"batch":1}`)
	store(t, p, "mail.batch.accepted."+id+".1", `{"batch":1}`)
	store(t, p, "mail.batch.refused."+id+".2", `{"batch":2,"message":"`+payer+`"}`)
	store(t, p, "mail.send.partial."+id, `{"recipients":1,"accepted":1,"invalid":[{"address":"`+payer+`"}]}`)
	store(t, p, "mail.delivery.deferred."+id, `{"entry":`+row+`}`, "ce-id", deliveries.IDsOf(json.RawMessage(row))[1], "Errand-Recipient",
		"1.0")
	store(t, p, "mail.delivery.summary."+id, `{"accepted":1,"delivered":1,"bounced":0,"final":true}`)
}

// left are the subjects of what the streams have that holds a text in its subject or body.
func left(t *testing.T, p act.Person, text string) (subjects []string) {
	t.Helper()
	for _, stream := range []string{bus.MandateRequests, bus.MandateEvents, bus.MandateCallbacks, bus.MailRequests, bus.MailEvents,
		bus.MailDeliveries, bus.DeadLetters, bus.Audit} {
		scan := bus.Scan{Stream: stream, Filter: ">", Page: 1000}
		found, err := scan.Next(t.Context(), p.Conn)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range found {
			if strings.Contains(m.Subject+string(m.Data)+fmt.Sprint(m.Header), text) {
				subjects = append(subjects, m.Subject)
			}
		}
	}
	return subjects
}

func erase(t *testing.T, p act.Person, op messages.Operation, id string) error {
	t.Helper()
	e, err := act.ErasureOf(t.Context(), inspect.Reader{Conn: p.Conn, JS: p.JS}, op, id, time.Now())
	if err != nil {
		return err
	}
	return p.Erase(t.Context(), e, "asked for by the payer")
}

func TestNothingOfAPersonIsLeftOfARequestThatWasErasedButItsID(t *testing.T) {
	t.Parallel()
	p := ann(t)
	remember(t, p, "r1")
	remember(t, p, "r2")
	for _, op := range []messages.Operation{messages.Enroll, messages.Send} {
		for range 2 { // a second time there is nothing more to do
			if err := erase(t, p, op, "r1"); err != nil {
				t.Fatalf("%s: %v", op, err)
			}
		}
	}
	want := []string{"mandate.enroll.erased.r1", "mandate.application.erased.r1", "mandate.deduction.erased.r1", "mail.send.erased.r1",
		"mail.batch.erased.r1.1", "mail.batch.erased.r1.2",
		"mail.delivery.erased.r1", "mail.delivery.erased.r1", "mail.delivery.erased.r1", "mail.delivery.erased.r1"}
	var got []string
	for _, subject := range left(t, p, "r1") {
		if !strings.HasPrefix(subject, "audit.erase.") {
			got = append(got, subject)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("of r1 is left (-want +got):\n%s", diff)
	}
	if got := left(t, p, payer); len(got) != 8 { // of r2
		t.Errorf("%s is in %q, want in the eight of the other request", payer, got)
	}
	if err := erase(t, p, messages.Send, "r2"); err != nil {
		t.Fatal(err)
	}
	if err := erase(t, p, messages.Enroll, "r2"); err != nil {
		t.Fatal(err)
	}
	if got := left(t, p, payer); len(got) > 0 {
		t.Errorf("%s is still in %q", payer, got)
	}
}

func historyOf(p act.Person, op messages.Operation, id string) *history.History {
	return &history.History{Log: bus.EventStore{Publisher: p.Publisher, Source: "/test"}, Operation: op, ID: id, Fingerprint: "another",
		Published: time.Now(), Corrects: historytest.Corrects}
}

// Neither a worker that had the request before, nor one that gets it again with whatever
// contents, may call.
func TestWhatWasErasedIsNotRunAgain(t *testing.T) {
	t.Parallel()
	p := ann(t)
	remember(t, p, "r1")
	stale := historyOf(p, messages.Enroll, "r1")
	stale.Fingerprint = "f"
	if _, err := stale.Read(t.Context()); err == nil {
		t.Fatal("it is not at its end")
	}
	batch := historyOf(p, messages.Batch, "r1.2")
	batch.Fingerprint = ""
	if _, err := batch.Read(t.Context()); err == nil {
		t.Fatal("the batch is not at its end")
	}
	for _, op := range []messages.Operation{messages.Enroll, messages.Send} {
		if err := erase(t, p, op, "r1"); err != nil {
			t.Fatal(err)
		}
		for _, fresh := range []bool{false, true} {
			_, err := historyOf(p, op, "r1").Settle(t.Context(), fresh, func(history.Prior) (messages.Event, error) {
				return messages.Event{}, historyOf(p, op, "r1").Store(t.Context(), messages.Started, &messages.EnrollStarted{})
			})
			done, ok := errors.AsType[*history.AlreadyDoneError](err)
			if !ok || done.State != messages.Erased {
				t.Errorf("%s: a worker is told %v, want that it is erased", op, err)
			}
		}
	}
	for _, h := range []*history.History{stale, batch} {
		if err := h.Store(t.Context(), messages.Started, &messages.EnrollStarted{}); !errors.Is(err, history.ErrFenced) {
			t.Errorf("%s %s: a worker that had it before: %v, want %v", h.Operation, h.ID, err, history.ErrFenced)
		}
	}
}

// A poller that starts learns the ids of the rows, in every state that they may still have.
func TestRowsThatWereErasedAreKnownToThePollers(t *testing.T) {
	t.Parallel()
	p := ann(t)
	remember(t, p, "r1")
	if err := erase(t, p, messages.Send, "r1"); err != nil {
		t.Fatal(err)
	}
	s := sink.New(p.JS, p.Publisher, "/test", sink.SendingLog)
	known := map[string]bool{}
	err := s.Learn(t.Context(), func(e lists.Stored) error {
		known[e.ID] = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range deliveries.IDsOf(json.RawMessage(row)) {
		if !known[id] {
			t.Errorf("%s is not among those that a poller knows: %v", id, known)
		}
	}
}

// limited is a JetStream that stops to answer, as for somebody who is killed.
type limited struct {
	jetstream.JetStream
	left *int
}

var errGone = errors.New("killed")

func (l limited) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if *l.left--; *l.left < 0 {
		return nil, errGone
	}
	return l.JetStream.Stream(ctx, name)
}

func TestAnErasureThatWasCutOffIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	p := ann(t)
	ended := false
	for steps := 0; !ended && steps < 20; steps++ {
		id := fmt.Sprint("r", steps)
		remember(t, p, id)
		for _, op := range []messages.Operation{messages.Enroll, messages.Send} {
			e, err := act.ErasureOf(t.Context(), inspect.Reader{Conn: p.Conn, JS: p.JS}, op, id, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			cut, calls := p, steps
			cut.JS = limited{p.JS, &calls}
			err = cut.Erase(t.Context(), e, "x")
			ended = err == nil
			if err != nil && !errors.Is(err, errGone) {
				t.Fatal(err)
			}
			if err := erase(t, p, op, id); err != nil {
				t.Fatal(err)
			}
		}
		if got := left(t, p, payer); len(got) > 0 {
			t.Fatalf("after %d steps and another run, %s is still in %q", steps, payer, got)
		}
	}
	if !ended {
		t.Error("no run came to its end")
	}
}

func TestWhatHasNotEndedIsNotErased(t *testing.T) {
	t.Parallel()
	p := ann(t)
	for _, state := range []string{"started", "deferred", "reopened"} {
		store(t, p, "mandate.enroll."+state+"."+state, `{"order_number":"DD001"}`)
		if err := erase(t, p, messages.Enroll, state); !errors.Is(err, act.ErrNothingDone) {
			t.Errorf("%s: %v, want %v", state, err, act.ErrNothingDone)
		}
	}
	store(t, p, "mandate.enroll.failed.repeated", `{"reason":"refused"}`)
	store(t, p, "mandate.enroll.requested", `{"request_id":"repeated","payer_email":"`+payer+`"}`)
	store(t, p, "mandate.enroll.requested", `{"request_id":"queued","payer_email":"`+payer+`"}`)
	for _, id := range []string{"repeated", "queued", "nobody", "*", ""} {
		if err := erase(t, p, messages.Enroll, id); !errors.Is(err, act.ErrNothingDone) {
			t.Errorf("%q: %v, want %v", id, err, act.ErrNothingDone)
		}
	}
	if n := len(left(t, p, "erased")); n > 0 {
		t.Errorf("%d events say that something was erased", n)
	}
}

func TestWhatIsStoredOfSomebodyIsFoundWhereverItIs(t *testing.T) {
	t.Parallel()
	p := ann(t)
	remember(t, p, "r1")
	store(t, p, "mandate.enroll.requested", `{"request_id":"queued","payer_email":"`+payer+`"}`)
	store(t, p, "mandate.transactions.page.list-1",
		`{"records":[{"mandate":{"payer_email":"Payer@Example.com"}},{"mandate":{"payer_email":"ben@example.com"}}]}`)
	store(t, p, "mandate.transactions.listed.list-1", `{"pages":1}`)
	store(t, p, "mandate.transactions.page.list-2", `{"records":[{"mandate":{"payer_email":"not-`+payer+`"}}]}`)
	store(t, p, "mail.delivery.delivered.unmatched", `{"entry":`+row+`}`, "ce-id", "00")
	store(t, p, "mandate.application.new.unmatched", `{"transaction":{"payer":{"email":"`+payer+`"}}}`, "ce-id", "02")
	store(t, p, "mail.send.accepted.news", `{"recipients":900,"accepted":900}`)
	store(t, p, "mail.delivery.delivered.news", `{"entry":`+row+`}`, "ce-id", "01")
	r := inspect.Reader{Conn: p.Conn, JS: p.JS}
	found, err := act.TracesOf(t.Context(), r, payer, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range found.Requests {
		got = append(got, fmt.Sprintf("%s %s %s refused=%t", e.Operation, e.RequestID, e.State, e.Refused != ""))
	}
	want := []string{"mail.send news accepted refused=true", "mail.send r1 partial refused=false",
		"mandate.application unmatched  refused=true", "mandate.enroll queued queued refused=true", "mandate.enroll r1 uncertain refused=false",
		"mandate.transactions list-1 listed refused=false"}
	if diff := cmp.Diff(want, got); diff != "" || len(found.Rows) != 2 {
		t.Errorf("found (-want +got):\n%s\nrows %v; want two", diff, found.Rows)
	}
	for range 2 {
		if err := p.EraseRows(t.Context(), found.Rows, "x"); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range found.Requests {
		if e.Refused == "" {
			if err := p.Erase(t.Context(), e, "x"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := left(t, p, payer); !cmp.Equal(got, []string{"mandate.enroll.requested", "mandate.transactions.page.list-2",
		"mandate.application.new.unmatched"}) {
		t.Errorf("%s is still in %q", payer, got)
	}
	if found, err := act.TracesOf(t.Context(), r, "DD001", nil, time.Now()); err != nil || len(found.Requests) > 0 {
		t.Errorf("by the order number there is %+v, %v, want nothing", found.Requests, err)
	}
}

// Rows that come later would match no request: nothing is left that says whose they are.
func TestAMessageWhoseRowsAreStillToComeSaysUntilWhen(t *testing.T) {
	t.Parallel()
	p := ann(t)
	store(t, p, "mail.send.accepted.r1", `{"recipients":2,"accepted":2}`)
	r := inspect.Reader{Conn: p.Conn, JS: p.JS}
	awaits := func(now time.Time) bool {
		t.Helper()
		e, err := act.ErasureOf(t.Context(), r, messages.Send, "r1", now)
		if err != nil {
			t.Fatal(err)
		}
		return e.Awaits != nil
	}
	if !awaits(time.Now()) || awaits(time.Now().Add(7*24*time.Hour)) {
		t.Error("want rows for six days, and none after that")
	}
	store(t, p, "mail.delivery.summary.r1", `{"accepted":2,"delivered":1,"deferred":1}`)
	if !awaits(time.Now()) {
		t.Error("one has no final row, want that it is awaited")
	}
	store(t, p, "mail.delivery.summary.r1", `{"accepted":2,"delivered":1,"bounced":1,"final":true}`)
	if awaits(time.Now()) {
		t.Error("all have their final rows, want that none is awaited")
	}
}

// On disk, what may be deleted alone is overwritten at once, and events are gone when what is around them has expired.
func TestErasedBytesLeaveTheDiskWithWhatIsAroundThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n, err := devkit.Start(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	nc, err := n.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if err := devtest.Provision(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	p := as(t, nc, "ann@example.com")
	remember(t, p, "r1")
	store(t, p, "mandate.enroll.succeeded.another", `{"order_number":"DD002"}`)
	for _, op := range []messages.Operation{messages.Enroll, messages.Send} {
		if err := erase(t, p, op, "r1"); err != nil {
			t.Fatal(err)
		}
	}
	on := func(stream string) (found bool) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", stream, "msgs", "*.blk"))
		if err != nil || len(files) == 0 && stream != "*" {
			t.Fatal("no files of ", stream, err)
		}
		for _, file := range files {
			bytes, _ := os.ReadFile(file) // it may be dropped meanwhile
			found = found || strings.Contains(string(bytes), payer)
		}
		return found
	}
	if on(bus.DeadLetters) {
		t.Error("the dead letter was not overwritten")
	}
	if !on(bus.MandateEvents) {
		t.Error("the events' bytes are gone at once: the documents say that they stay")
	}
	for _, stream := range []string{bus.MandateEvents, bus.MandateCallbacks, bus.MailEvents, bus.MailDeliveries} {
		s, err := p.JS.Stream(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		c := s.CachedInfo().Config
		c.MaxAge, c.Duplicates = time.Second, time.Second
		if _, err := p.JS.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(time.Minute); on("*"); {
		if time.Now().After(end) {
			t.Fatal("all has expired, and the bytes are still there")
		}
		retry.Pause(t.Context(), 100*time.Millisecond)
	}
}

// Whatever names one of many recipients, what is stored of the others is not removed with it.
func TestOfAMessageToSeveralOnlyOnesOwnIsErased(t *testing.T) {
	t.Parallel()
	p := ann(t)
	store(t, p, "mail.send.started.typo", `{"recipients":500,"batches":1,"fingerprint":"f"}`)
	store(t, p, "mail.send.accepted.typo",
		`{"recipients":500,"accepted":500,"batches":1,"invalid":[{"address":"payer at example","reason":"no @"}]}`)
	store(t, p, "mail.send.failed.unread", `{"reason":"invalid_request","message":"give_up_at is too far ahead"}`)
	store(t, p, "dead.mail.send.requested", `{"to":["`+payer+`","ben@example.com"]}`, bus.HeaderRequestID, "unread")
	store(t, p, "mail.delivery.delivered.gone", `{"entry":`+row+`}`, "ce-id", "01") // it outlives the message's own events
	store(t, p, "mail.send.accepted.sold", `{"recipients":1,"accepted":1}`)
	store(t, p, "mail.delivery.delivered.sold", `{"entry":`+row+`}`, "ce-id", "03")
	store(t, p, "mail.delivery.delivered.unmatched", `{"entry":`+row+`}`, "ce-id", "04")
	store(t, p, "mandate.enroll.succeeded.forged", `{"order_number":"DD009"}`)
	store(t, p, "mandate.callback.received.forged", `{"query":"who=shop@example.com&payer_email=claimed@example.com&order_number=DD777"}`)
	record := `{"payer_email":"ben@example.com","order_number":"DD010","merchant":{"name":"Shop","email":"merchant@example.com"}}`
	store(t, p, "mandate.enroll.succeeded.sold", `{"order_number":"DD010"}`)
	store(t, p, "mandate.application.approved.sold", `{"transaction":`+record+`}`, "ce-id", "05")
	store(t, p, "mandate.transactions.page.list", `{"records":[`+record+`]}`)
	store(t, p, "mandate.transactions.listed.list", `{"pages":1}`)
	r := inspect.Reader{Conn: p.Conn, JS: p.JS}
	const onlyCallback = "only a callback names it, which anybody may have sent: only the rows of this address are removed; name its id to " +
		"erase all of it"
	for word, want := range map[string][]string{
		"shop@example.com": {
			"gone rows=0 refused=its history is gone: only the rows of this address are removed; name its id to erase all of it",
			"sold rows=0 refused=it is of somebody else, and names it as address: only the rows of this address are removed; name its id to " +
				"erase all of it",
			"forged rows=0 refused=" + onlyCallback},
		"claimed@example.com": {"forged rows=0 refused=" + onlyCallback},
		"dd 777":              {"forged rows=0 refused=" + onlyCallback},
		"Payer at Example": {"typo rows=0 refused=it has 500 recipients: only the rows of this address are removed; name its id to erase all " +
			"of it"},
		payer: {"gone rows=2 refused=its history is gone: only the rows of this address are removed; name its id to erase all of it",
			"sold rows=2 refused=",
			"unread rows=2 refused=it has 2 recipients: only the rows of this address are removed; name its id to erase all of it"},
		"typo": {"typo rows=0 refused="},
		"merchant@example.com": {"sold rows=0 refused=it is of somebody else, and names it as address: only the rows of this address are " +
			"removed; name its id to erase all of it", "list rows=0 refused=it is of somebody else, and names it as address: only the rows of " +
			"this address are removed; name its id to erase all of it"},
		"DD010": {"sold rows=0 refused=", "list rows=0 refused="},
	} {
		found, err := act.TracesOf(t.Context(), r, word, nil, time.Now().Add(30*24*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range found.Requests {
			got = append(got, fmt.Sprintf("%s rows=%d refused=%s", e.RequestID, len(found.Rows), e.Refused))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", word, diff)
		}
	}
	if err := erase(t, p, messages.Send, "gone"); err != nil || len(left(t, p, "mail.delivery.delivered.gone")) > 0 {
		t.Errorf("by its id: %v, left %q", err, left(t, p, "gone"))
	}
}

// What lists show of no request goes by an id as well, which is of none: with it, everybody's would be erased.
func TestWhatMatchesNoRequestIsNotErasedAsOne(t *testing.T) {
	t.Parallel()
	p := ann(t)
	for _, subject := range []string{"mandate.deduction.failed.unmatched", "mail.delivery.delivered.unmatched"} {
		store(t, p, subject, `{"entry":`+row+`}`, "ce-id", "01")
		for _, op := range []messages.Operation{messages.Enroll, messages.Send} {
			if err := erase(t, p, op, messages.Unmatched); !errors.Is(err, act.ErrNothingDone) || len(left(t, p, subject)) == 0 {
				t.Errorf("%s: %v, left %q", op, err, left(t, p, subject))
			}
		}
	}
	r := inspect.Reader{Conn: p.Conn, JS: p.JS}
	if found, err := r.Find(t.Context(), messages.Unmatched, nil, time.Time{}, bus.Known{}); err != nil || len(found.Found) > 0 {
		t.Errorf("found as a request: %+v, %v", found.Found, err)
	}
}

// Whatever came before the request is not read: neither dead letters, nor of whom mail bounced.
func TestAnErasureReadsNothingOlderThanItsRequest(t *testing.T) {
	t.Parallel()
	p := ann(t)
	const before = 500
	for i := range before {
		store(t, p, "dead.mail.send.requested", `{}`, bus.HeaderRequestID, fmt.Sprint("other", i))
	}
	<-time.After(1100 * time.Millisecond) // what another server's clock may be behind
	store(t, p, "mail.send.failed.letter", `{"reason":"refused"}`)
	store(t, p, "dead.mail.send.requested", `{"to":"ann@example.com"}`, bus.HeaderRequestID, "letter")
	store(t, p, "mail.delivery.bounced.letter", `{"entry":{"to":"ann@example.com"}}`)
	for key, id := range map[string]string{"0000000000000001": "letter", "0000000000000002": "other1"} {
		store(t, p, "suppression.bounced."+key, fmt.Sprintf(`{"request_id":%q}`, id))
	}
	read := p.Conn.Stats().InMsgs
	e, err := act.ErasureOf(t.Context(), inspect.Reader{Conn: p.Conn, JS: p.JS}, messages.Send, "letter", time.Now())
	if read = p.Conn.Stats().InMsgs - read; err != nil || e.DeadLetters != 1 || e.Recipients != 1 || read > before/2 {
		t.Fatalf("%d messages were read for %+v, %v", read, e, err)
	}
	if err := p.Erase(t.Context(), e, "letter 17"); err != nil {
		t.Fatal(err)
	}
	for key, there := range map[string]bool{"0000000000000001": false, "0000000000000002": true} {
		if _, is, err := bus.Last(t.Context(), p.Conn, bus.Suppressions, "suppression.bounced."+key); err != nil || is != there {
			t.Errorf("%s is there: %v, %v, want %v", key, is, err, there)
		}
	}
}

func TestADeadLetterThatWasRedrivenWithoutItsHistoryIsErased(t *testing.T) {
	t.Parallel()
	p := ann(t)
	store(t, p, "dead.mail.send.requested", `{"to":"ann@example.com"}`, bus.HeaderRequestID, "letter")
	<-time.After(1100 * time.Millisecond) // what another server's clock may be behind
	store(t, p, "mail.send.reopened.letter", `{"by":"ben","why":"x"}`)
	store(t, p, "mail.send.accepted.letter", `{"recipients":1,"accepted":1}`)
	e, err := act.ErasureOf(t.Context(), inspect.Reader{Conn: p.Conn, JS: p.JS}, messages.Send, "letter", time.Now())
	if err != nil || e.DeadLetters != 1 {
		t.Errorf("got %+v, %v, want its dead letter", e, err)
	}
}

// A log-poller that dies once it has stored a suppression stores its row when it starts again, or finds the request erased. An
// erasure that dies leaves what it needs to be done again.
func TestASuppressionIsErasedWhoeverDied(t *testing.T) {
	t.Parallel()
	for _, erasureDies := range []bool{false, true} {
		p := ann(t)
		store(t, p, "mail.send.started.letter", `{"recipients":2,"batches":1,"fingerprint":"f"}`)
		store(t, p, "mail.send.accepted.letter", `{"recipients":2,"accepted":2}`)
		store(t, p, "suppression.bounced.0000000000000001", `{"request_id":"letter"}`)
		if erasureDies {
			store(t, p, "mail.delivery.bounced.letter", `{"entry":{"to":"ann@example.com"}}`)
			s, err := p.JS.Stream(t.Context(), bus.MailEvents)
			if err != nil {
				t.Fatal(err)
			}
			c := s.CachedInfo().Config
			c.DenyPurge = true
			if _, err := p.JS.UpdateStream(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		if err := erase(t, p, messages.Send, "letter"); (err != nil) != erasureDies {
			t.Fatal(err)
		}
		if _, is, err := bus.Last(t.Context(), p.Conn, bus.Suppressions, "suppression.>"); err != nil || is {
			t.Errorf("the erasure dies: %v; it is there: %v, %v", erasureDies, is, err)
		}
	}
}
