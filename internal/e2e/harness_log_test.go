package e2e

import (
	"errors"
	"fmt"
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
// duplicate window would hide what is published twice at short distance, so there is none.
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
	reply := map[messages.State]string{messages.Deferred: "451 4.7.1 later", messages.Delivered: "250 2.0.0 OK", messages.Bounced: "550 5.1.1 no"}[state]
	delivered := state == messages.Delivered
	l.insertRow(map[string]any{"created_at": r.created.UTC(), "envelope_id": r.envelope, "to": r.to,
		"delivered": map[bool]int{true: 1}[delivered], "status": map[string]any{"delivered": delivered, "response": reply}})
}

// caughtUp waits until p has swept its list twice from now on: what it has not published then
// it never will, and what it publishes twice it has published twice.
func (in *installation) caughtUp(p *process) {
	in.t.Helper()
	sweeps := func() int { return strings.Count(p.output.String(), `"message":"sweep: done"`) }
	from := sweeps()
	in.until("two more sweeps", time.Minute, func() bool { return sweeps() >= from+3 }) // one was under way
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
	l.t.Helper()
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
