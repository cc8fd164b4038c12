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

// truths are those of the batches of which anybody was served, by <request id>.<n>.
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
		if err != nil || bad != nil {
			m.t.Fatalf("%s of %s: %v, %v", r.EnvelopeID, r.To, err, bad)
		}
		batch := messages.BatchID("r"+number, i/inBatch+1)
		out[batch] = truth{out[batch].served + 1, time.UnixMilli(ms)}
	}
	return out
}

// inDoubt reports whether a request that ended as uncertain may stay so: the log shows of
// one of its batches no row that was accepted within its call, but one that was accepted
// when the caller had left, or somebody else's to the same people.
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
		return strings.HasSuffix(batch, ".1") // others mail to the first batches
	}
	late := false
	for _, e := range m.events("mail.batch.*." + batch) {
		if e.at(m.t).Before(of.accepted) {
			late = e.state() == messages.Deferred || e.state() == messages.Uncertain
		}
	}
	return late
}

// judgeOutcomes checks the end of each request, what the log showed of those that were
// uncertain, and what was concluded meanwhile, against whom the sandbox served.
func (m *mailing) judgeOutcomes() {
	m.t.Helper()
	o, truths := m.box.Oracle(sandbox.Query{Summary: true}), m.truths()
	if o.Mail.TwiceCount != 0 {
		m.t.Errorf("%d recipients are served twice: %v", o.Mail.TwiceCount, o.Mail.Twice[:min(5, len(o.Mail.Twice))])
	}
	resolved, open, batches := 0, 0, map[messages.Conclusion]int{}
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
			m.judgeResolved(truths, served, end, last, batches)
		case last.state() == messages.Uncertain && m.inDoubt(truths, end):
			open++
		default:
			m.t.Errorf("%s served %d: %s %s", id, served, last.Subject, last.Raw)
		}
	}
	concluded := m.judgeConclusions(truths, batches)
	m.t.Logf("%d requests were uncertain and are resolved, %d stay in doubt, %d conclusions: batches %v", resolved, open, concluded, batches)
	if resolved == 0 || concluded == 0 || batches[messages.WasAccepted] == 0 || batches[messages.WasNotSent] == 0 {
		m.t.Error("the kills and mishaps left nothing to resolve, or only one way")
	}
}

// judgeResolved checks what a request was resolved as, of which so many were served.
func (m *mailing) judgeResolved(truths map[string]truth, served int, end, last event, batches map[messages.Conclusion]int) {
	m.t.Helper()
	r := decode[messages.SendResolved](m.t, last)
	want := messages.Partial
	switch served {
	case 0:
		want = messages.Failed
	case people:
		want = messages.Accepted
	}
	if outcome := decode[messages.SendOutcome](m.t, end); r.Outcome != want || len(r.Evidence.Batches) != outcome.UnsettledCount {
		m.t.Errorf("%s served %d, is resolved as %s: %s", r.RequestID, served, r.Outcome, last.Raw)
	}
	for _, b := range r.Evidence.Batches {
		batches[b.Outcome]++
		if !isTrue(b.Outcome, truths[messages.BatchID(r.RequestID, b.Batch)]) {
			m.t.Errorf("%s, batch %d: %s", r.RequestID, b.Batch, last.Raw)
		}
	}
}

// judgeConclusions checks what was concluded of batches that waited, each once, and gives
// how many there are.
func (m *mailing) judgeConclusions(truths map[string]truth, batches map[messages.Conclusion]int) int {
	m.t.Helper()
	concluded := map[string]int{}
	for _, e := range m.events("mail.log.concluded.>") {
		b := decode[messages.ConcludedBody](m.t, e)
		batches[b.Outcome]++
		key := fmt.Sprint(e.Subject, " ", b.Outcome, " ", b.Until)
		if concluded[key]++; concluded[key] > 1 {
			m.t.Errorf("%s is concluded %d times", key, concluded[key])
		}
		of := truths[e.id()]
		switch {
		case b.Outcome == messages.WasNotSent && of.served > 0: // it was sent again, and not before
			if of.accepted.Before(b.At.Time) {
				m.t.Errorf("%s, and it was accepted at %v: %s", key, of.accepted, e.Raw)
			}
		case b.Outcome == messages.WasAccepted && of.served != inBatch, b.Outcome == messages.Unclear && !m.doubtful(truths, e.id()):
			m.t.Errorf("%s, served %d: %s", key, of.served, e.Raw)
		}
	}
	return len(concluded)
}

// isTrue compares what was concluded of a batch with what became of it.
func isTrue(c messages.Conclusion, of truth) bool {
	switch c {
	case messages.WasAccepted:
		return of.served == inBatch
	case messages.WasNotSent:
		return of.served == 0
	}
	return false
}

// place is the recipient that a delivery event is of, without what is noted of the doubts.
func place(e event) string {
	at := e.Header.Get("Errand-Recipient")
	if i := strings.IndexAny(at, "?!"); i >= 0 {
		at = at[:i]
	}
	return at
}
