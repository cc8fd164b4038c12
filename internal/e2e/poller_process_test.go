//go:build unix

package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"errand/pkg/messages"
)

// sendingLog is the upstream's log, filled by hand, and the pollers that tell it.
type sendingLog struct {
	*installation
	rows []*logged
}

// logged is a row of the log and the states it was in.
type logged struct {
	envelope, to string
	created      time.Time
	states       []messages.State // the last one is the present one
}

// installLog makes the installation for pollers; limit is the rows of a page. The server's
// duplicate window would hide what is told twice at short distance, so there is none.
func installLog(t *testing.T, limit int) *sendingLog {
	t.Helper()
	l := &sendingLog{installation: installWith(t, mortal, fmt.Sprint("POLL_LIMIT=", limit))}
	l.hideNothing()
	return l
}

// add puts n rows into the log, each third of them deferred.
func (l *sendingLog) add(n int) {
	l.t.Helper()
	for range n {
		i := len(l.rows)
		r := &logged{envelope: fmt.Sprintf("%018x", i), to: fmt.Sprintf("p%d@example.test", i), created: time.Now()}
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

func (r *logged) is() messages.State { return r.states[len(r.states)-1] }

func (l *sendingLog) show(r *logged, state messages.State) {
	l.t.Helper()
	r.states = append(r.states, state)
	reply := map[messages.State]string{messages.Deferred: "451 4.7.1 later", messages.Delivered: "250 2.0.0 OK", messages.Bounced: "550 5.1.1 no"}[state]
	delivered := state == messages.Delivered
	insertRow(l.t, l.box, map[string]any{"created_at": r.created.UTC(), "envelope_id": r.envelope, "to": r.to,
		"delivered": map[bool]int{true: 1}[delivered], "status": map[string]any{"delivered": delivered, "response": reply}})
}

// deliveries is how many events are told.
func (l *sendingLog) deliveries() int {
	l.t.Helper()
	return l.count("mail.delivery.*.*")
}

// caughtUp waits until p has swept the log twice from now on: what it has not told then
// it never tells, and what it tells twice it has.
func (l *sendingLog) caughtUp(p *process) {
	l.t.Helper()
	sweeps := func() int { return strings.Count(p.said.String(), `"message":"poll: swept"`) }
	from := sweeps()
	l.until("two more sweeps", time.Minute, func() bool { return sweeps() >= from+3 }) // one was under way
}

// wantEnd lets pollers catch up and end, and wants the log to be told.
func (l *sendingLog) wantEnd(pollers ...*process) {
	l.t.Helper()
	for _, p := range pollers {
		l.caughtUp(p)
	}
	for _, p := range pollers {
		p.stop(20 * time.Second)
	}
	l.wantEachOnce()
	l.wantWatermark()
}

// wantEachOnce wants the present state of each row to be told once, each earlier one at
// most once, and nothing else.
func (l *sendingLog) wantEachOnce() {
	l.t.Helper()
	got := map[string]int{}
	for _, e := range l.told("mail.delivery.*.*") {
		row := rowOf(l.t, e)
		got[fmt.Sprint(row.EnvelopeID, " ", row.To, " ", e.state())]++
	}
	wrong := 0
	for _, r := range l.rows {
		for i, state := range r.states {
			key := fmt.Sprint(r.envelope, " ", r.to, " ", state)
			if n := got[key]; n > 1 || n == 0 && i == len(r.states)-1 {
				l.t.Logf("%s is told %d times", key, n)
				wrong++
			}
			delete(got, key)
		}
	}
	if wrong > 0 || len(got) > 0 {
		l.t.Errorf("%d states of %d rows are not told once, and %d that were never shown\n%s", wrong, len(l.rows), len(got), l.last())
	}
}

// wantWatermark wants the last one to count every row.
func (l *sendingLog) wantWatermark() {
	l.t.Helper()
	marks := l.told("mail.log.watermark")
	if len(marks) == 0 || number(marks[len(marks)-1].Body["total_record"]) != len(l.rows) {
		l.t.Errorf("%d watermarks, the last one of another number of rows than %d: %+v", len(marks), len(l.rows), marks[max(0, len(marks)-1):])
	}
}

// A poller dies in its first sweep of three pages, at each of its steps and with a page
// half told; rows change and come in before the next one starts, which goes on from there.
func TestAPollerOutlivesEveryDeath(t *testing.T) {
	mortal.programs(t)
	for _, c := range []struct {
		die         string
		least, most int // events told at its death
	}{
		{"page", 0, 0}, {"before tell", 0, 0}, {"telling@60", 1, 60}, {"after tell", 100, 100}, {"page@2", 0, 100}, {"before tell@2", 100, 100},
		{"telling@160", 101, 160}, {"after tell@2", 198, 200}, {"page@3", 198, 200}, {"telling@240", 199, 240}, {"after tell@3", 250, 250},
		{"before mark", 250, 250}, {"before tell@4", 250, 250}, {"after tell@4", 250, 250}, {"after mark", 250, 250},
	} {
		t.Run(c.die, func(t *testing.T) {
			l := installLog(t, 100)
			l.add(250)
			p := l.start("log-poller", "ERRAND_FAILPOINT="+c.die)
			p.wantKilled()
			l.until("NATS to be done with the dead one", 10*time.Second, func() bool { return !strings.Contains(fmt.Sprint(l.clients()), "log-poller") })
			if n := l.deliveries(); n < c.least || n > c.most {
				t.Errorf("%d events told at its death, want %d to %d", n, c.least, c.most)
			}
			l.deliver(100)
			l.add(20)
			p = l.start("log-poller")
			l.wantEnd(p)
		})
	}
}

// Two pollers tell one log while rows come in and change; one after the other is killed
// at a time that nobody chose, and started anew.
func TestTwoPollersKilledAtRandomTellEachStateOnce(t *testing.T) {
	const kills = 8
	draw := rand.New(rand.NewPCG(1, 2))
	l := installLog(t, 30)
	pollers := []*process{l.start("log-poller"), l.start("log-poller")}
	for n := range kills {
		for range 5 {
			l.add(20)
			wait(t.Context(), time.Duration(draw.IntN(150))*time.Millisecond)
			l.deliver(60)
		}
		pollers[n%2].kill()
		pollers[n%2] = l.start("log-poller")
	}
	l.wantEnd(pollers...)
}

// A poller stands still, between two sweeps or in the middle of telling a page, until
// another one has told everything. It lost its turn to tell: what it was about to tell,
// or believes untold, is not told again. It learns, and is as good as before.
func TestAStoppedPollerTellsNothingTwice(t *testing.T) {
	mortal.programs(t)
	for _, at := range []string{"after mark", "before tell", "before tell@2", "telling@60", "telling@160"} {
		t.Run(at, func(t *testing.T) {
			l := installLog(t, 100)
			l.add(250)
			stopped := l.start("log-poller", "ERRAND_FAILPOINT=stop at "+at)
			l.until("it to stand still", time.Minute, func() bool { return stopped.says("failpoint: stopped") })
			l.deliver(100)
			l.add(20)
			other := l.start("log-poller")
			l.caughtUp(other)
			stopped.resume()
			l.caughtUp(stopped)
			other.stop(20 * time.Second)
			l.add(20)
			l.wantEnd(stopped)
		})
	}
}

// Of two pollers one after the other stands still, at a time that nobody chose, while the
// other one tells what comes and changes meanwhile.
func TestTwoPollersThatStandStillInTurnTellNothingTwice(t *testing.T) {
	const turns = 4
	draw := rand.New(rand.NewPCG(3, 4))
	l := installLog(t, 30)
	pollers := []*process{l.start("log-poller"), l.start("log-poller")}
	for n := range turns {
		still, other := pollers[n%2], pollers[(n+1)%2]
		l.add(100)
		wait(t.Context(), time.Duration(draw.IntN(300))*time.Millisecond)
		still.pause()
		l.add(30)
		l.deliver(150)
		l.caughtUp(other)
		still.resume()
	}
	l.wantEnd(pollers...)
}

// One of two pollers is killed: the other one tells what comes from then on, and nothing
// that was told. How soon, the log of the test says.
func TestTheOtherPollerGoesOnWhenOneIsKilled(t *testing.T) {
	l := installLog(t, 100)
	l.add(200)
	pollers := []*process{l.start("log-poller"), l.start("log-poller")}
	for _, p := range pollers {
		l.caughtUp(p)
	}
	for n := range 4 {
		l.add(50)
		l.until("telling to be under way", time.Minute, func() bool { return l.deliveries() > len(l.rows)-50 })
		pollers[n%2].kill()
		killed := time.Now()
		l.add(20)
		l.until("the other one to tell all", time.Minute, func() bool { return l.deliveries() >= len(l.rows) })
		t.Logf("the other one has told what came after %v", time.Since(killed))
		pollers[n%2] = l.start("log-poller")
		l.caughtUp(pollers[n%2])
	}
	for _, p := range pollers {
		p.stop(20 * time.Second)
	}
	l.wantEachOnce()
	l.wantWatermark()
}
