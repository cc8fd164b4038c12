package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// sendingLog is the upstream's log, filled by the test, and the pollers that publish it.
type sendingLog struct {
	*installation
	rows []*trackedRow
}

// trackedRow is a row of the log and the states it was in.
type trackedRow struct {
	envelope, to string
	created      time.Time
	states       []messages.State // the last one is the present one
}

// installLog makes the installation for pollers; limit is the rows of a page. The server's
// duplicate window would hide what is published twice at short distance, so there is no such window.
func installLog(t *testing.T, limit int) *sendingLog {
	t.Helper()
	l := &sendingLog{installation: installWith(t, failpointBuild, fmt.Sprint("POLL_LIMIT=", limit))}
	l.shrinkDuplicateWindow()
	return l
}

// add puts n rows into the log, each third of them deferred.
func (l *sendingLog) add(n int) {
	l.t.Helper()
	for range n {
		i := len(l.rows)
		r := &trackedRow{envelope: fmt.Sprintf("%018x", i), to: fmt.Sprintf("p%d@example.test", i), created: time.Now()}
		l.rows = append(l.rows, r)
		l.show(r, []messages.State{messages.Deferred, messages.Delivered, messages.Bounced}[i%3])
	}
}

// deliver has the deferred rows among the last n delivered.
func (l *sendingLog) deliver(n int) {
	l.t.Helper()
	for _, r := range l.rows[max(0, len(l.rows)-n):] {
		if r.is() == messages.Deferred {
			l.show(r, messages.Delivered)
		}
	}
}

func (r *trackedRow) is() messages.State { return r.states[len(r.states)-1] }

func (l *sendingLog) show(r *trackedRow, state messages.State) {
	l.t.Helper()
	r.states = append(r.states, state)
	reply := map[messages.State]string{messages.Deferred: "451 4.7.1 later", messages.Delivered: "250 2.0.0 OK",
		messages.Bounced: "550 5.1.1 no"}[state]
	delivered := state == messages.Delivered
	l.insertRow(map[string]any{"created_at": r.created.UTC(), "envelope_id": r.envelope, "to": r.to,
		"delivered": map[bool]int{true: 1}[delivered], "status": map[string]any{"delivered": delivered, "response": reply}})
}

// caughtUp waits until p has swept its list twice from now on, or is a standby: what it has not published then
// it never will, and what it publishes twice it has published twice.
func (in *installation) caughtUp(p *process) {
	in.t.Helper()
	sweeps := func() int { return strings.Count(p.output.String(), `"message":"sweep: done"`) }
	from := sweeps()
	in.until("two more sweeps", time.Minute, func() bool { return sweeps() >= from+3 || p.standby() }) // one was under way
}

// standby reports whether the process is ready, and says that another replica leads.
func (p *process) standby() bool { return p.says(http.StatusOK, "standby")() }

// untilLeads waits until a poller has taken the leadership, and fails if that takes longer than the next one may be away.
func (in *installation) untilLeads(p *process, within time.Duration) {
	in.t.Helper()
	began := time.Now()
	in.until("it to lead", time.Minute, func() bool {
		said := p.output.String()
		return strings.LastIndex(said, "sweep: leads") > strings.LastIndex(said, "sweep: standby")
	})
	took := time.Since(began)
	in.t.Logf("it leads after %v", took.Round(100*time.Millisecond))
	errorIf(in.t, took > within, "it leads after %v, want %v", took, within)
}

// wantEnd lets pollers catch up and end, and one that knows them by their events alone read
// the log again; and wants the log to be published.
func (l *sendingLog) wantEnd(pollers ...*process) {
	l.t.Helper()
	pollers = append(pollers, l.start("log-poller"))
	// A state that changed deep in the log is found by the next round.
	l.until("each row's state to be published", 3*time.Minute, l.published)
	for _, p := range pollers {
		l.caughtUp(p)
	}
	// One that was paused may have said last how many rows there were before.
	l.until("a watermark that counts every row", 2*time.Minute, func() bool { return l.marked() == len(l.rows) })
	for _, p := range pollers {
		p.stop(time.Minute)
	}
	l.wantEachOnce()
}

// published reports whether there are as many events of each state as rows are in it, or more.
func (l *sendingLog) published() bool {
	l.t.Helper()
	rows := map[messages.State]int{}
	for _, r := range l.rows {
		rows[r.is()]++
	}
	for state, n := range rows {
		if l.count(messages.Delivery.Subject(state, "*")) < n {
			return false
		}
	}
	return true
}

// wantEachOnce wants the present state of each row to be published once, each earlier one at
// most once, and nothing else.
func (l *sendingLog) wantEachOnce() {
	got := map[string]int{}
	for _, e := range l.events("mail.delivery.*.*") {
		row := rowOf(l.t, e)
		got[fmt.Sprint(row.EnvelopeID, " ", row.To, " ", e.state())]++
	}
	wrong := 0
	for _, r := range l.rows {
		for i, state := range r.states {
			key := fmt.Sprint(r.envelope, " ", r.to, " ", state)
			if n := got[key]; n > 1 || n == 0 && i == len(r.states)-1 {
				l.t.Logf("%s is published %d times", key, n)
				wrong++
			}
			delete(got, key)
		}
	}
	if wrong > 0 || len(got) > 0 {
		l.t.Errorf("%d states of %d rows are not published once, and %d that were never shown\n%s", wrong, len(l.rows), len(got), l.lastOutput())
	}
}

// marked is how many rows the last watermark counts.
func (l *sendingLog) marked() int {
	l.t.Helper()
	m, err := l.stream(bus.MailDeliveries).GetLastMsgForSubject(l.t.Context(), "mail.log.watermark")
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0
	}
	must(l.t, err)
	var w messages.Watermark
	must(l.t, messages.DecodeEvent(m.Data, &w))
	return w.TotalRecord
}

// What the sending log does not show of a call proves something only in a log that was
// watched since before the call and that goes on after it: by mail of others.

// othersMail puts a row of mail of others into the log, made at a time.
func (in *installation) othersMail(at time.Time) {
	in.t.Helper()
	in.insertRow(map[string]any{"created_at": at.UTC().Format(time.RFC3339Nano)})
}

// watched waits until a poller has published a row from before now: the log is watched from now on.
func (in *installation) watched() {
	in.t.Helper()
	in.othersMail(time.Now().Add(-time.Minute))
	in.until("the log to be watched", time.Minute, func() bool { return in.count("mail.log.watermark") > 0 })
}

// readBefore has the log be read once by a poller, which shows a row from a time.
func (in *installation) readBefore(at time.Time) {
	in.othersMail(at)
	p := in.start("log-poller")
	in.until("the log to be read", time.Minute, func() bool { return in.count("mail.log.watermark") > 0 })
	p.stop(time.Minute)
}

// wantBatchesMatchOracle compares the end of each batch with what the sandbox did.
func (in *installation) wantBatchesMatchOracle(id string, recipients, batches int) {
	in.t.Helper()
	served := in.served(recipients)[id]
	histories := in.histories("mail.batch.*." + id + ".*")
	errorIf(in.t, len(histories) != batches, "%d batches have a history, want %d", len(histories), batches)
	for batch, history := range histories {
		e, err := finalEvent(history)
		if err == nil {
			err = checkBatch(in.t, e, served)
		}
		errorIf(in.t, err != nil, "%s: %v", batch, err)
	}
}

// logRow is what a row of the sending log is known by.
type logRow struct {
	EnvelopeID string `json:"envelope_id"`
	To, From   string
}

// rowOf is the row that a delivery event is about.
func rowOf(t *testing.T, e event) logRow {
	t.Helper()
	return decode[struct{ Entry logRow }](t, e).Entry
}

// served is how often the sandbox took each recipient of the messages made by message, by request and number.
func (in *installation) served(recipients int) map[string][]int {
	in.t.Helper()
	out := map[string][]int{}
	for _, r := range in.oracle().Mail.ByRecipient {
		name, _, _ := strings.Cut(r.Recipient, "@")
		at := strings.LastIndexByte(name, '-')
		id, n := name[:at], 0
		_, err := fmt.Sscan(name[at+1:], &n)
		fatalIf(in.t, err != nil || r.Subject != "story "+id, "the sandbox served %s for %q", r.Recipient, r.Subject)
		if out[id] == nil {
			out[id] = make([]int, recipients)
		}
		out[id][n] += r.Count
	}
	return out
}

// checkBatch compares the end of a batch with how often each recipient of its request
// was served: accepted is the number reported, refused is nobody, and uncertain is anything.
func checkBatch(t *testing.T, e event, served []int) error {
	t.Helper()
	b := decode[messages.BatchBody](t, e)
	got := 0
	if served != nil {
		got = sum(served[b.First : b.First+b.Count])
	}
	switch state := e.state(); {
	case state == messages.Accepted && b.Accepted != nil && *b.Accepted == got:
	case state == messages.Refused && got == 0:
	case state == messages.Uncertain:
	default:
		return fmt.Errorf("batch is %s, %d of %d were served: %s", state, got, b.Count, e.Raw)
	}
	return nil
}

func sum(numbers []int) (total int) {
	for _, n := range numbers {
		total += n
	}
	return total
}

// counts is a summary's numbers as text.
func counts(s messages.SummaryBody) string {
	return fmt.Sprintf("%d of %d: %d delivered, %d deferred, %d bounced, %d unknown, %d queued, final %t",
		s.Accepted, s.Recipients, s.Delivered, s.Deferred, s.Bounced, s.Unknown, s.Queued, s.Final)
}
