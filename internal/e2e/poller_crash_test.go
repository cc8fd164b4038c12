package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"errand/internal/history"
	"errand/pkg/messages"
)

// A poller dies in its first sweep of three pages, at each of its steps and with a page half published; rows change and
// come in before the next one starts, which goes on from there. What was written is not yet sent.
func TestAPollerSurvivesEveryCrash(t *testing.T) {
	t.Parallel()
	failpointBuild.programs(t)
	for _, c := range []struct {
		die         string
		least, most int // events published when it crashed
	}{
		{"page", 0, 0}, {"before publish", 0, 0}, {"publishing@60", 0, 60}, {"before publish@2", 0, 100}, {"page@2", 0, 100},
		{"page@3", 100, 200}, {"publishing@160", 0, 160}, {"publishing@240", 100, 240}, {"after publish", 100, 200},
		{"after publish@2", 200, 250}, {"after publish@3", 250, 250}, {"before mark", 250, 250}, {"after mark", 250, 250},
	} {
		t.Run(c.die, func(t *testing.T) {
			l := installLog(t, 100)
			l.add(250)
			p := l.start("log-poller", "ERRAND_FAILPOINT="+c.die)
			p.wantKilled()
			l.until("NATS to be done with the dead one", time.Minute,
				func() bool { return !strings.Contains(fmt.Sprint(l.clients()), "log-poller") })
			n := l.count("mail.delivery.*.*")
			errorIf(t, n < c.least || n > c.most, "%d events published when it crashed, want %d to %d", n, c.least, c.most)
			l.deliver(100)
			l.add(20)
			p = l.start("log-poller")
			l.wantEnd(p)
		})
	}
}

// A poller is paused, between two sweeps or while it publishes a page, until
// another one has published everything. It is fenced: what it was about to publish,
// or believes unpublished, is not published again. It notices, and works as before.
func TestAStoppedPollerPublishesNothingTwice(t *testing.T) {
	t.Parallel()
	failpointBuild.programs(t)
	for _, at := range []string{"after mark", "before publish", "before publish@2", "publishing@60", "publishing@160"} {
		t.Run(at, func(t *testing.T) {
			l := installLog(t, 100)
			l.add(250)
			stopped := l.start("log-poller", "ERRAND_FAILPOINT=stop at "+at)
			l.until("it to stand still", time.Minute, func() bool { return stopped.logged("failpoint: stopped") })
			l.deliver(100)
			l.add(20)
			other := l.start("log-poller")
			l.untilLeads(other, takeover)
			l.caughtUp(other)
			stopped.resume()
			l.caughtUp(stopped)
			other.stop(time.Minute)
			l.add(20)
			l.wantEnd(stopped)
		})
	}
}

// takeover is the time within which a standby leads, once the leader is gone.
const takeover = 15 * time.Second

// A standby is ready and reads nothing: calls do not double. It takes over when the leader hands over, stands still or is
// killed; one that goes on after it stood still is a standby, and publishes nothing.
func TestAStandbyReadsNothingUntilItLeads(t *testing.T) {
	l := installLog(t, 30)
	l.add(100)
	first := l.start("log-poller")
	l.untilLeads(first, takeover)
	l.caughtUp(first)
	reads := func(p *process) (n float64) {
		for name, pages := range p.gauges() {
			if strings.HasPrefix(name, `errand_upstream_call_duration_seconds_count{call="logs"`) {
				n += pages
			}
		}
		return n
	}
	standsBy := func(p *process) {
		t.Helper()
		l.until("it to stand by", takeover, p.standby)
		leads, shown := p.gauges()["errand_poller_leads"]
		errorIf(t, !shown || leads != 0, "a standby's metric does not say that it does not lead")
	}
	second := l.start("log-poller")
	standsBy(second)
	before := reads(first)
	l.caughtUp(first)
	errorIf(t, reads(first) == before || reads(second) > 1, "the leader has read %v pages, the standby %v", reads(first), reads(second))

	l.add(10)
	first.stop(time.Minute)
	l.untilLeads(second, 5*time.Second)
	l.caughtUp(second)
	third := l.start("log-poller")
	standsBy(third)

	second.pause()
	l.add(10)
	l.untilLeads(third, takeover)
	l.caughtUp(third)
	second.resume()
	standsBy(second)
	pages := reads(second)
	l.caughtUp(third)
	equal(t, "pages that the one that was paused has read since it stands by", reads(second), pages)

	third.kill()
	l.add(10)
	l.untilLeads(second, takeover)
	l.wantEnd(second)
	equal(t, "takeovers", l.count("mail.log.turn"), 4) // one for each leader: the last poller of all stood by
}

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
	var to []string
	for i := range 2 {
		to = append(to, fmt.Sprintf("%s-%d@example.test", id, i))
		if i < seen {
			p.row(map[string]any{"to": to[i], "created_at": p.at.UTC().Format(time.RFC3339Nano),
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
	began := common
	began.At = messages.Time{Time: p.at.Add(-time.Second)}
	for _, e := range []messages.Event{
		{Operation: messages.Send, State: messages.Started, ID: id, Body: &messages.SendStarted{Common: began, Deadline: until,
			Fingerprint: "f", Recipients: 2, Batches: 1, BatchSize: 1000, Secret: history.KeysOf(secretOf(p.t, p.js), "", to)}},
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
// again; another one publishes the rest, and a third one beside it: each summary and
// resolution is published, and once.
func TestReportsOnRequestsSurviveEveryCrashOfThePoller(t *testing.T) {
	t.Parallel()
	failpointBuild.programs(t)
	const rows, mark, reports = 5, 1, 2 // two summaries at least
	die := []string{"before mark", "after mark", "before publish report", "after publish report", "before publish resolved",
		"after publish resolved",
		"before publish resolved, before publish report", "after publish resolved, after publish report"}
	for n := 1; n <= reports; n++ {
		die = append(die, fmt.Sprint("publishing@", rows+mark+n))
	}
	die = append(die, fmt.Sprint("publishing@", rows+mark+1, ", publishing@1"))
	for _, deaths := range die {
		t.Run(deaths, func(t *testing.T) {
			p := &past{installation: installWith(t, failpointBuild, "POLL_INTERVAL=300ms"), at: time.Now().Add(-2 * time.Hour)}
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
			l.caughtUp(last)
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
	// One a minute at most: of the others the next one is not due yet.
	s := decode[messages.SummaryBody](p.t, p.wantOne("mail.delivery.summary.seen"))
	errorIf(p.t, !s.Final || s.Delivered != 2, "summary: %s", counts(s))
	p.wantOne("mail.delivery.summary.taken")
	equal(p.t, "summaries", p.count("mail.delivery.summary.*"), 2)
	if p.t.Failed() {
		p.t.Log(p.lastOutput())
	}
}
