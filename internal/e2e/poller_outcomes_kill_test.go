package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// truth is what the service did with a batch of the mailing.
type truth struct {
	served   int
	accepted time.Time // of the last call that was
}

// truths says what became of each batch of which anybody was served, by <request id>.<n>.
func (m *mailing) truths() map[string]truth {
	m.t.Helper()
	out := map[string]truth{}
	for _, r := range m.box.Oracle(sandbox.Query{Log: true}).Log {
		number, ours := strings.CutPrefix(r.Subject, "subject ")
		if !ours {
			continue
		}
		var n, i int
		_, err := fmt.Sscanf(r.To, "r%d-%d@", &n, &i)
		ms, bad := strconv.ParseInt(r.EnvelopeID[:11], 16, 64)
		fatalIf(m.t, err != nil || bad != nil, "%s of %s: %v, %v", r.EnvelopeID, r.To, err, bad)
		batch := messages.BatchID("r"+number, i/inBatch+1)
		out[batch] = truth{out[batch].served + 1, time.UnixMilli(ms)}
	}
	return out
}

// inDoubt reports whether a request that ended as uncertain may stay so: one of
// its batches was not sent, or when the caller had left.
func (m *mailing) inDoubt(truths map[string]truth, outcome event) bool {
	m.t.Helper()
	for _, u := range decode[messages.SendOutcome](m.t, outcome).Unsettled {
		if u.State == messages.Uncertain && m.doubtful(truths, messages.BatchID(outcome.id(), u.Batch)) {
			return true
		}
	}
	return false
}

func (m *mailing) doubtful(truths map[string]truth, batch string) bool {
	m.t.Helper()
	of, ok := truths[batch]
	if !ok {
		return true
	}
	late := false
	for _, e := range m.events("mail.batch.*." + batch) {
		if e.at(m.t).Before(of.accepted) {
			late = e.state() == messages.Deferred || e.state() == messages.Uncertain
		}
	}
	return late
}

// judgeOutcomes checks the end of each request, and what the log showed of those that were
// uncertain, against whom the sandbox served.
func (m *mailing) judgeOutcomes() {
	o, truths := m.totals(), m.truths()
	if o.Mail.TwiceCount != 0 {
		m.t.Errorf("%d recipients are served twice: %v", o.Mail.TwiceCount, o.Mail.Twice[:min(5, len(o.Mail.Twice))])
	}
	resolved, open := 0, 0
	for n := range *crowd {
		id := fmt.Sprint("r", n)
		history := m.events("mail.send.*." + id)
		end, err := finalEvent(history)
		if err != nil {
			m.t.Errorf("%s: %v", id, err)
			continue
		}
		served := 0
		for batch := range people / inBatch {
			served += truths[messages.BatchID(id, batch+1)].served
		}
		last := history[len(history)-1]
		switch {
		case last.state() == messages.Accepted && served == people:
		case last.state() == messages.Resolved:
			resolved++
			m.judgeResolved(truths, served, end, last)
		case last.state() == messages.Uncertain && m.inDoubt(truths, end):
			open++
		default:
			m.t.Errorf("%s served %d: %s %s", id, served, last.Subject, last.Raw)
		}
	}
	m.t.Logf("%d requests were uncertain and are resolved, %d stay in doubt", resolved, open)
	errorIf(m.t, resolved == 0 || open == 0, "the kills and mishaps left nothing to resolve, or nothing in doubt")
}

// judgeResolved checks what a request was resolved as, of which so many were served.
func (m *mailing) judgeResolved(truths map[string]truth, served int, end, last event) {
	r := decode[messages.SendResolved](m.t, last)
	want := messages.Partial
	if served == people {
		want = messages.Accepted
	}
	if outcome := decode[messages.SendOutcome](m.t, end); r.Outcome != want || len(r.Evidence.Batches) != outcome.UnsettledCount {
		m.t.Errorf("%s served %d, is resolved as %s: %s", r.RequestID, served, r.Outcome, last.Raw)
	}
	for _, b := range r.Evidence.Batches {
		errorIf(m.t, truths[messages.BatchID(r.RequestID, b.Batch)].served != inBatch, "%s, batch %d: %s", r.RequestID, b.Batch, last.Raw)
	}
}
