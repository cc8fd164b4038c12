package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// A poller dies in its first sweep of three pages, at each of its steps and with a page half published; rows change and
// come in before the next one starts, which goes on from there. It publishes 100 rows of the first page, 50 of the last
// one, 98 and 2 of those between. Up to three of these are on their way at once, and what was written is not yet sent.
func TestAPollerSurvivesEveryCrash(t *testing.T) {
	failpointBuild.programs(t)
	for _, c := range []struct {
		die         string
		least, most int // events published when it crashed
	}{
		{"page", 0, 0}, {"before publish", 0, 0}, {"publishing@60", 0, 60}, {"before publish@2", 0, 100}, {"page@2", 0, 150}, {"page@3", 0, 150},
		{"publishing@160", 0, 160}, {"publishing@240", 0, 240}, {"after publish", 100, 248}, {"before publish@4", 100, 248},
		{"after publish@2", 150, 250},
		{"after publish@3", 248, 250}, {"after publish@4", 250, 250}, {"before mark", 250, 250}, {"after mark", 250, 250},
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
			l.caughtUp(other)
			stopped.resume()
			l.caughtUp(stopped)
			other.stop(time.Minute)
			l.add(20)
			l.wantEnd(stopped)
		})
	}
}

// Of two pollers one after the other is paused, at a random time, while the
// other one publishes what comes and changes meanwhile.
func TestTwoPollersPausedInTurnPublishNothingTwice(t *testing.T) {
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

// One of two pollers is killed: the other one publishes what comes from then on, and nothing
// that was published. How soon, the log of the test says.
func TestTheOtherPollerGoesOnWhenOneIsKilled(t *testing.T) {
	l := installLog(t, 100)
	l.add(200)
	pollers := []*process{l.start("log-poller"), l.start("log-poller")}
	for _, p := range pollers {
		l.caughtUp(p)
	}
	for n := range 4 {
		l.add(50)
		l.until("publishing to be under way", time.Minute, func() bool { return l.count("mail.delivery.*.*") > len(l.rows)-50 })
		pollers[n%2].kill()
		killed := time.Now()
		l.add(20)
		l.until("the other one to publish all", time.Minute, func() bool { return l.count("mail.delivery.*.*") >= len(l.rows) })
		t.Logf("the other one has published what came after %v", time.Since(killed))
		pollers[n%2] = l.start("log-poller")
		l.caughtUp(pollers[n%2])
	}
	l.wantEnd(pollers...)
}
