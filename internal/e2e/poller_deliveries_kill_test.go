package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// crowd is how many requests there are; the last two are to the same people.
var crowd = flag.Int("mailing.requests", 40, "requests of the mailing whose deliveries are matched, 500 recipients each")

const (
	people  = 500 // recipients of each
	inBatch = 100
)

// mailing is crowd requests to 20,000 recipients and the mail of others among it.
type mailing struct {
	*sendingLog
	foreign int // rows
	between time.Time
}

// post publishes the n-th request.
func (m *mailing) post(n int) {
	m.t.Helper()
	body := message(fmt.Sprint("r", min(n, *crowd-2)), people, "from", "sender@example.test")
	body["request_id"], body["subject"] = fmt.Sprint("r", n), fmt.Sprint("subject ", n)
	m.publish("mail.send.requested", body)
}

// others puts mail of another program into the log: to recipients in the first batch of request n from another sender
// now, and from the same one long ago; with an id that proves nothing; and to people that nobody here knows.
func (m *mailing) others(n int) {
	m.t.Helper()
	to := fmt.Sprintf("r%d-%d@example.test", n, m.foreign%inBatch)
	old := time.Now().Add(-50 * time.Hour)
	m.insert(map[string]any{"to": to, "from": "else@example.test"})
	m.insert(map[string]any{"to": to, "from": "else@example.test", "envelope_id": fmt.Sprint("forged ", m.foreign)})
	m.insert(map[string]any{"to": to, "from": "sender@example.test", "envelope_id": fmt.Sprintf("%011x%07x", old.UnixMilli(), m.foreign)})
	m.strangers()
}

// strangers puts mail to people that nobody here knows into the log.
func (m *mailing) strangers() {
	m.t.Helper()
	m.insert(map[string]any{"to": fmt.Sprintf("else-%d@example.test", m.foreign), "from": "sender@example.test"})
}

func (m *mailing) insert(row map[string]any) {
	m.t.Helper()
	m.insertRow(row)
	m.foreign++
}

// truth is the request and the place of the recipient that a row is about, "" for another program's.
func (m *mailing) truth(to, from, envelope string) (id, recipient string) {
	ms, err := strconv.ParseInt(envelope[:min(11, len(envelope))], 16, 64)
	if from != "sender@example.test" || strings.HasPrefix(to, "else-") || err != nil || time.Since(time.UnixMilli(ms)) > 40*time.Hour {
		return "", ""
	}
	var n, i int
	if _, err := fmt.Sscanf(to, "r%d-%d@", &n, &i); err != nil {
		m.t.Fatal(to)
	}
	if n == *crowd-2 && time.UnixMilli(ms).After(m.between) {
		n++
	}
	return fmt.Sprint("r", n), fmt.Sprint(i/inBatch+1, ".", i)
}

// mishaps are what leaves a call's fate unknown, beside the kills: it did nothing, or all
// but answer, or its work when its caller had left.
var mishaps = []sandbox.Fault{
	{Operation: "send", Kind: sandbox.Cut, Share: 0.05, Times: 5},
	{Operation: "send", Kind: sandbox.AcceptCut, Share: 0.05, Times: 5},
	{Operation: "send", Kind: sandbox.Delay, Skip: 150, Times: 3, Delay: sandbox.Duration(3 * time.Second)}, // when the kills are over
}

// Three pollers publish the log of 40 requests, mail of others among it, while one after the other is killed, and the
// consumer with calls in flight. Every row's every state is one event, which does not name a wrong request; nobody is served
// twice, and what nobody knew of a batch that was sent the log shows.
func TestDeliveriesAreMatchedRightUnderKills(t *testing.T) {
	m := &mailing{sendingLog: installLog(t, 500)}
	m.set(func(s *sandbox.Settings) {
		s.ShareBounced, s.ShareDeferred, s.Latency = 0.1, 0.1, sandbox.Duration(100*time.Millisecond)
		s.LogDelay, s.LogSpread, s.DeferredFor = sandbox.Duration(200*time.Millisecond), sandbox.Duration(2*time.Second),
			sandbox.Duration(3*time.Second)
	})
	draw := rand.New(rand.NewPCG(4, 4))
	work := func() *process {
		return m.start("mail-consumer", fmt.Sprint("MAIL_BATCH_SIZE=", inBatch), "MAIL_BATCH_PARALLEL=2")
	}
	poll := func() *process { return m.start("log-poller", "POLL_LIMIT=1000") }
	consumer, pollers := work(), []*process{poll(), poll(), poll()}
	m.watched()
	m.foreign++
	m.post(*crowd - 2)
	m.ended(1)
	m.between = time.Now().Add(time.Second)
	for _, f := range mishaps {
		m.fault(f)
	}
	for n := range *crowd - 2 {
		m.post(n)
		m.others(n)
		wait(t.Context(), time.Duration(draw.IntN(300))*time.Millisecond)
		if n%4 == 3 {
			victim := draw.IntN(len(pollers))
			pollers[victim].kill()
			pollers[victim] = poll()
		}
		if n%9 == 5 {
			m.until("calls at work", time.Minute, func() bool { return m.inFlight.Load() > 0 })
			consumer.kill()
			consumer = work()
		}
	}
	wait(t.Context(), time.Until(m.between.Add(time.Second)))
	m.post(*crowd - 1)
	m.ended(*crowd)
	m.resolved()
	consumer.stop(time.Minute)
	m.insert(map[string]any{"to": fmt.Sprintf("r%d-0@example.test", *crowd-2), "from": "sender@example.test", "envelope_id": "of nobody"})
	rows := m.foreign + int(m.totals().Mail.Recipients)
	m.until(fmt.Sprint(rows, " rows to be published"), 2*time.Minute, func() bool {
		return m.count("mail.delivery.delivered.*")+m.count("mail.delivery.bounced.*") >= rows
	})
	m.caughtUp(pollers[0]) // what is published twice is there
	for _, p := range pollers {
		p.stop(time.Minute)
	}
	m.judge(rows)
	m.judgeSummaries()
	m.judgeOutcomes()
}

// ended waits until n requests have. Mail of others goes on: the log is known up to its newest row.
func (m *mailing) ended(n int) {
	m.t.Helper()
	m.goesOn(fmt.Sprint(n, " ends"), func() bool {
		ends := 0
		for _, s := range []messages.State{messages.Accepted, messages.Partial, messages.Failed, messages.Uncertain} {
			ends += len(m.subjects(messages.Send.Subject(s, "*")))
		}
		return ends >= n
	})
}

// resolved waits until all that is uncertain is resolved, but for what stays in doubt.
func (m *mailing) resolved() {
	m.t.Helper()
	m.goesOn("all to be resolved", func() bool {
		open, truth := m.subjects("mail.send.uncertain.*"), m.truths()
		for subject := range m.subjects("mail.send.resolved.*") {
			delete(open, strings.Replace(subject, "resolved", "uncertain", 1))
		}
		for subject := range open {
			if !m.inDoubt(truth, m.wantFinal("mail.send.*."+(event{Subject: subject}).id())) {
				return false
			}
		}
		return true
	})
}

// goesOn waits while the log goes on with mail of others.
func (m *mailing) goesOn(until string, is func() bool) {
	m.t.Helper()
	last := time.Now()
	m.until(until, 10*time.Minute, func() bool {
		if time.Since(last) < 500*time.Millisecond {
			return false
		}
		last = time.Now()
		m.strangers()
		return is()
	})
}

// judge holds every delivery event against what is true.
func (m *mailing) judge(rows int) {
	m.t.Helper()
	seen, shares := map[string]int{}, map[messages.Confidence]int{}
	published, wrong := 0, 0
	for _, e := range m.events("mail.delivery.*.*") {
		if e.state() == messages.Summary {
			continue
		}
		body := decode[messages.DeliveryBody](m.t, e)
		entry := rowOf(m.t, e)
		key := fmt.Sprint(entry.EnvelopeID, " ", entry.To, " ", e.state())
		if seen[key]++; seen[key] > 1 {
			m.t.Errorf("%s is published %d times", key, seen[key])
		}
		if e.state() != messages.Deferred {
			published++
		}
		shares[body.Match.Confidence]++
		id, recipient := m.truth(entry.To, entry.From, entry.EnvelopeID)
		named := strings.Split(e.Subject, ".")[3]
		sure := body.Match.Confidence == messages.MatchExact || body.Match.Confidence == messages.MatchUnique
		place, _, _ := strings.Cut(e.Header.Get("Errand-Recipient"), "?")
		if sure && (named != id || place != recipient) || !sure && (named != messages.Unmatched || id != "") {
			m.t.Logf("%s: %s, recipient %q, is %q of %q", e.Subject, body.Match.Confidence, e.Header.Get("Errand-Recipient"), recipient, id)
			wrong++
		}
	}
	if wrong > 0 || published != rows {
		m.t.Errorf("%d events are not of the request that they name; %d rows of %d are published to their end\n%s", wrong, published, rows,
			m.lastOutput())
	}
	m.t.Logf("%d rows, %d of others, %d events", rows, m.foreign, len(seen))
	for _, c := range []messages.Confidence{messages.MatchExact, messages.MatchUnique, messages.MatchAmbiguous, messages.MatchNone} {
		m.t.Logf("%9s %6d, %6.2f%%", c, shares[c], 100*float64(shares[c])/float64(len(seen)))
	}
}

// judgeSummaries wants the summaries of a request to differ and to be true: a final one
// as it ended, an earlier one as it may have been.
func (m *mailing) judgeSummaries() {
	ends := map[string]map[messages.State]int{}
	for _, state := range []messages.State{messages.Delivered, messages.Bounced} {
		for subject, n := range m.subjects(messages.Delivery.Subject(state, "*")) {
			id := (event{Subject: subject}).id()
			if ends[id] == nil {
				ends[id] = map[messages.State]int{}
			}
			ends[id][state] = int(n)
		}
	}
	before, finals := map[string]bool{}, map[string]int{}
	for _, e := range m.events("mail.delivery.summary.*") {
		s := decode[messages.SummaryBody](m.t, e)
		got := ends[s.RequestID]
		switch said := s.RequestID + ": " + counts(s); {
		case before[said]:
			m.t.Errorf("%s, once more", said)
		case finals[s.RequestID] > 0:
			m.t.Errorf("%s, after the final one", said)
		case s.Final && (s.Delivered != got[messages.Delivered] || s.Bounced != got[messages.Bounced] || s.Queued != 0),
			s.Delivered > got[messages.Delivered] || s.Bounced > got[messages.Bounced] || s.Recipients > people || s.Accepted > people:
			m.t.Errorf("%s, published are %v", said, got)
		default:
			before[said] = true
		}
		if s.Final {
			finals[s.RequestID]++
		}
	}
	m.t.Logf("%d summaries, %d of them final", len(before), len(finals))
}
