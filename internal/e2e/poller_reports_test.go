package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"errand/pkg/messages"
)

// past is what a consumer published two hours ago, with the rows that came of it.
type past struct {
	*installation
	at   time.Time
	rows int
}

// message is one to two people that ended in a state, seen of them having a row.
func (p *past) message(id string, state messages.State, seen int) {
	p.t.Helper()
	common := messages.Common{RequestID: id, At: messages.Time{Time: p.at}, Attempt: 1}
	var keys []byte
	for i := range 2 {
		to := fmt.Sprintf("%s-%d@example.test", id, i)
		keys = messages.AppendKey(keys, messages.KeyOf(to))
		if i < seen {
			p.row(map[string]any{"to": to, "created_at": p.at.UTC().Format(time.RFC3339Nano),
				"envelope_id": fmt.Sprintf("%011x%07x", p.at.UnixMilli(), p.rows)})
		}
	}
	end := messages.Event{Operation: messages.Send, State: state, ID: id}
	switch state {
	case messages.Uncertain:
		end.Body = &messages.SendOutcome{Common: common, Recipients: 2, Batches: 1, Reason: messages.ReasonNoAnswer, Fingerprint: "f",
			UnsettledCount: 1,
			Unsettled:      []messages.Unsettled{{Batch: 1, Count: 2, State: messages.Uncertain, Reason: messages.ReasonNoAnswer}}}
	default:
		end.Body = &messages.SendOutcome{Common: common, Recipients: 2, Batches: 1, Accepted: 2, Fingerprint: "f"}
	}
	until := messages.Time{Time: p.at.Add(30 * time.Second)}
	for _, e := range []messages.Event{
		{Operation: messages.Send, State: messages.Started, ID: id, Body: &messages.SendStarted{Common: common, Deadline: until,
			Fingerprint: "f", Recipients: 2, Batches: 1, BatchSize: 1000}},
		{Operation: messages.Log, State: messages.Sent, ID: messages.BatchID(id, 1), Body: &messages.SentBody{Common: common, Batch: 1,
			Count: 2, Begin: messages.Time{Time: p.at.Add(-time.Second)}, Until: until, Keys: keys}},
		end,
	} {
		data, err := e.Encode()
		if err == nil {
			_, err = p.js.Publish(p.t.Context(), e.Subject(), data)
		}
		must(p.t, err)
	}
}

func (p *past) row(row map[string]any) {
	p.t.Helper()
	p.insertRow(row)
	p.rows++
}

// A poller dies before, while and after it publishes what the log says of requests, once and
// again; another one publishes the rest, and a third one beside it: each summary, resolution
// and recipient that is overdue is published, and once.
func TestReportsOnRequestsSurviveEveryCrashOfThePoller(t *testing.T) {
	failpointBuild.programs(t)
	const rows, mark, reports = 5, 1, 4 // two that are overdue, two summaries at least
	die := []string{"before mark", "after mark", "before publish report", "after publish report", "before publish resolved",
		"after publish resolved",
		"before publish resolved, before publish report", "after publish resolved, after publish report"}
	for n := 1; n <= reports; n++ {
		die = append(die, fmt.Sprint("publishing@", rows+mark+n))
	}
	die = append(die, fmt.Sprint("publishing@", rows+mark+2, ", publishing@2"))
	for _, deaths := range die {
		t.Run(deaths, func(t *testing.T) {
			p := &past{installation: installWith(t, failpointBuild, "POLL_INTERVAL=300ms", "OVERDUE_AFTER=1h"), at: time.Now().Add(-2 * time.Hour)}
			p.shrinkDuplicateWindow()
			p.readBefore(p.at.Add(-time.Hour))
			p.message("seen", messages.Accepted, 2)
			p.message("silent", messages.Accepted, 0)
			p.message("taken", messages.Uncertain, 2)
			p.message("lost", messages.Uncertain, 0)
			p.row(map[string]any{"to": "else@example.test"}) // the log goes on up to now
			fatalIf(t, p.rows != rows, "%d rows", p.rows)
			for at := range strings.SplitSeq(deaths, ", ") {
				p.start("log-poller", "ERRAND_FAILPOINT="+at).wantKilled()
			}
			last, l := p.start("log-poller"), &sendingLog{installation: p.installation}
			l.caughtUp(last) // alone: who loses the turn looks for those that are overdue a minute later
			beside := p.start("log-poller")
			l.caughtUp(beside)
			last.stop(time.Minute)
			beside.stop(time.Minute)
			p.wantReports()
		})
	}
}

func (p *past) wantReports() {
	if n := p.count("mail.delivery.delivered.*"); n != p.rows+1 { // and one from before
		p.t.Errorf("%d events of %d rows", n, p.rows+1)
	}
	r := decode[messages.SendResolved](p.t, p.wantOne("mail.send.resolved.*"))
	errorIf(p.t, r.RequestID != "taken" || r.Outcome != messages.Accepted, "%s is resolved as %s", r.RequestID, r.Outcome)
	overdue := map[string]int{}
	for _, e := range p.events("mail.delivery.overdue.*") {
		overdue[e.Subject+" "+e.Header.Get("Errand-Recipient")]++
	}
	errorIf(p.t, len(overdue) != 2 || overdue["mail.delivery.overdue.silent 1.0"] != 1 || overdue["mail.delivery.overdue.silent 1.1"] != 1,
		"overdue: %v", overdue)
	// One a minute at most: of the others the next one is not due yet.
	s := decode[messages.SummaryBody](p.t, p.wantOne("mail.delivery.summary.seen"))
	errorIf(p.t, !s.Final || s.Delivered != 2, "summary: %s", counts(s))
	p.wantOne("mail.delivery.summary.taken")
	equal(p.t, "summaries", p.count("mail.delivery.summary.*"), 2)
	if p.t.Failed() {
		p.t.Log(p.lastOutput())
	}
}
