//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

const (
	crowd  = 40  // requests, the last two of them to the same people
	people = 500 // recipients of each
)

// mailing is crowd requests to 20,000 recipients and the mail of others among it.
type mailing struct {
	*sendingLog
	foreign int // rows
	between time.Time
}

// post publishes the n-th request; the last two are to the same people.
func (m *mailing) post(n int) {
	m.t.Helper()
	body := message(fmt.Sprint("r", min(n, crowd-2)), people, "from", "sender@example.test")
	body["request_id"], body["subject"] = fmt.Sprint("r", n), fmt.Sprint("subject ", n)
	m.publish("mail.send.requested", body)
}

// others puts mail of somebody else into the log: to the recipients of request n from
// another sender now, and from the same one long ago; with an id that tells nothing; and
// to people that nobody here knows.
func (m *mailing) others(n int) {
	m.t.Helper()
	to := fmt.Sprintf("r%d-%d@example.test", n, m.foreign%people)
	old := time.Now().Add(-50 * time.Hour)
	for _, row := range []map[string]any{
		{"to": to, "from": "else@example.test"},
		{"to": to, "from": "else@example.test", "envelope_id": fmt.Sprint("forged ", m.foreign)},
		{"to": to, "from": "sender@example.test", "envelope_id": fmt.Sprintf("%011x%07x", old.UnixMilli(), m.foreign)},
		{"to": fmt.Sprintf("else-%d@example.test", m.foreign), "from": "sender@example.test"},
	} {
		text, err := json.Marshal(row)
		if err == nil {
			err = m.box.InsertLog(text, false)
		}
		if err != nil {
			m.t.Fatal(err)
		}
		m.foreign++
	}
}

// truth is the request and the place of the recipient that a row is about; "": it is
// somebody else's.
func (m *mailing) truth(to, from, envelope string) (id, recipient string) {
	ms, err := strconv.ParseInt(envelope[:min(11, len(envelope))], 16, 64)
	if from != "sender@example.test" || strings.HasPrefix(to, "else-") || err != nil || time.Since(time.UnixMilli(ms)) > 40*time.Hour {
		return "", ""
	}
	var n, i int
	if _, err := fmt.Sscanf(to, "r%d-%d@", &n, &i); err != nil {
		m.t.Fatal(to)
	}
	if n == crowd-2 && time.UnixMilli(ms).After(m.between) {
		n++
	}
	return fmt.Sprint("r", n), fmt.Sprint(i/100+1, ".", i)
}

// Three pollers tell the log of 40 requests, mail of others among it, while one after
// the other is killed. Every row's every state is one event, none is told of the wrong
// request, and every summary ends with the counts of what was told.
func TestDeliveriesAreMatchedRightUnderKills(t *testing.T) {
	m := &mailing{sendingLog: installLog(t, 500)}
	m.set(func(s *sandbox.Settings) {
		s.ShareBounced, s.ShareDeferred = 0.1, 0.1
		s.LogDelay, s.LogSpread, s.DeferredFor = sandbox.Duration(200*time.Millisecond), sandbox.Duration(2*time.Second), sandbox.Duration(3*time.Second)
	})
	draw := rand.New(rand.NewPCG(4, 4))
	m.start("mail-consumer", "MAIL_BATCH_SIZE=100")
	pollers := []*process{m.start("log-poller"), m.start("log-poller"), m.start("log-poller")}
	m.post(crowd - 2)
	m.waitTold(fmt.Sprint("mail.send.*.r", crowd-2), 1, time.Minute)
	m.between = time.Now().Add(3 * time.Second)
	for n := range crowd - 2 {
		m.post(n)
		m.others(n)
		wait(t.Context(), time.Duration(draw.IntN(300))*time.Millisecond)
		if n%4 == 3 {
			victim := draw.IntN(len(pollers))
			pollers[victim].kill()
			pollers[victim] = m.start("log-poller")
		}
	}
	wait(t.Context(), time.Until(m.between.Add(3*time.Second)))
	m.post(crowd - 1)
	m.waitTold("mail.send.accepted.*", crowd, 2*time.Minute)
	const rows = crowd * people
	m.until("every row to be told", 3*time.Minute, func() bool {
		return m.count("mail.delivery.delivered.*")+m.count("mail.delivery.bounced.*") >= rows+m.foreign
	})
	read := 0
	m.until("every summary to be final", 3*time.Minute, func() bool {
		n := m.count("mail.delivery.summary.*")
		if n == read { // looked at already
			return false
		}
		read = n
		final := 0
		for _, e := range m.told("mail.delivery.summary.*") {
			if e.Body["final"] == true {
				final++
			}
		}
		return final >= crowd
	})
	for _, p := range pollers {
		p.stop(20 * time.Second)
	}
	m.judge(rows)
}

// judge holds every event against what is true.
func (m *mailing) judge(rows int) {
	m.t.Helper()
	seen, ends, shares := map[string]int{}, map[string]map[messages.State]int{}, map[messages.Confidence]int{}
	wrong := 0
	for _, e := range m.told("mail.delivery.*.*") {
		if e.state() == messages.Summary {
			continue
		}
		body := read[messages.DeliveryBody](m.t, e)
		var entry struct {
			EnvelopeID string `json:"envelope_id"`
			To, From   string
		}
		if err := json.Unmarshal(body.Entry, &entry); err != nil {
			m.t.Fatal(err)
		}
		key := fmt.Sprint(entry.EnvelopeID, " ", entry.To, " ", e.state())
		if seen[key]++; seen[key] > 1 {
			m.t.Errorf("%s is told %d times", key, seen[key])
		}
		shares[body.Match.Confidence]++
		id, recipient := m.truth(entry.To, entry.From, entry.EnvelopeID)
		told := strings.Split(e.Subject, ".")[3]
		sure := body.Match.Confidence == messages.MatchExact || body.Match.Confidence == messages.MatchUnique
		if sure && (told != id || e.Header.Get("Errand-Recipient") != recipient) || !sure && (told != messages.Unmatched || id != "") {
			m.t.Logf("%s: %s, recipient %q, is %q of %q", e.Subject, body.Match.Confidence, e.Header.Get("Errand-Recipient"), recipient, id)
			wrong++
		}
		if id != "" && e.state() != messages.Deferred {
			if ends[id] == nil {
				ends[id] = map[messages.State]int{}
			}
			ends[id][e.state()]++
		}
	}
	if wrong > 0 {
		m.t.Errorf("%d events are not of the request that they name\n%s", wrong, m.last())
	}
	m.t.Logf("%d rows, %d of others, %d events: %v", rows+m.foreign, m.foreign, len(seen), shares)
	finals := 0
	for _, e := range m.told("mail.delivery.summary.*") {
		s := read[messages.SummaryBody](m.t, e)
		if !s.Final {
			continue
		}
		finals++
		if got := ends[s.RequestID]; s.Delivered != got[messages.Delivered] || s.Bounced != got[messages.Bounced] || s.Delivered+s.Bounced != people || s.Accepted != people {
			m.t.Errorf("%s: %s, told are %v", s.RequestID, counts(s), got)
		}
	}
	if finals != crowd {
		m.t.Errorf("%d final summaries of %d requests", finals, crowd)
	}
}
