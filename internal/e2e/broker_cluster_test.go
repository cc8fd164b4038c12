package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox"
)

// One round by default. More of them:
//
//	go test ./internal/e2e -run TestClusterLosesItsServers -v -timeout 30m -broker.rounds 10
var brokerRounds = flag.Int("broker.rounds", 1, "how often the servers of the cluster are made to fail, each way")

// cluster is a storm over three servers, that fail instead of the programs.
type cluster struct {
	*storm
	servers  []*broker
	programs []*process
}

// Three servers, two replicas of each program, and requests all the while. Leaders are
// stepped down, killed and stopped; then two servers of three are gone until a program
// says that it cannot work. Every promise is kept, and all come back.
func TestClusterLosesItsServers(t *testing.T) {
	dir := releaseBuild.programs(t)
	parallel(t)
	c := &cluster{servers: brokers(t, 3, "")}
	c.storm = &storm{began: time.Now(), installation: installAt(t, dir, urls(c.servers), 3, "RETRY_MAX=500ms", "MAIL_BATCH_SIZE=100", "POLL_LIMIT=500")}
	c.set(func(s *sandbox.Settings) {
		s.Latency, s.LogDelay = sandbox.Duration(300*time.Millisecond), sandbox.Duration(200*time.Millisecond)
	})
	for range 2 {
		for _, program := range []string{"mandate-consumer", "mail-consumer", "log-poller"} {
			p := c.start(program)
			c.programs = append(c.programs, p)
			c.untilReady(p)
		}
	}
	failing := make(chan struct{})
	go func() {
		defer close(failing)
		for range *brokerRounds {
			c.fail()
		}
	}()
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	for n := 0; ; n++ {
		select {
		case <-failing:
			c.settle()
			for _, p := range c.programs {
				p.stop(time.Minute)
			}
			c.judge()
			return
		case <-pace.C:
			if id := fmt.Sprint("r", n); n%10 == 0 {
				c.insist("mail.send.requested", message(id, letterSize, "on_unknown", "report"))
				c.letters = append(c.letters, id)
			} else {
				c.insist("mandate.enroll.requested", enrollment(id, "on_unknown", "report"))
				c.enrollments = append(c.enrollments, id)
			}
		}
	}
}

// fail makes the servers fail, each way once.
func (c *cluster) fail() {
	c.stepDown()
	l := c.leader(bus.MandateEvents)
	l.kill()
	c.log("the leader of the mandate events is killed")
	l.start()
	l.ready()
	c.stepDown()

	l = c.leader(bus.MailEvents)
	l.pause()
	c.log("the leader of the mail events is paused")
	wait(c.t.Context(), 6*time.Second)
	l.resume()
	l.ready()

	l = c.leader(bus.MandateRequests)
	gone := slices.DeleteFunc(slices.Clone(c.servers), func(b *broker) bool { return b == l })
	for _, b := range gone {
		b.kill()
	}
	c.log("two of three servers are gone")
	for _, p := range c.programs {
		c.until(p.name+" to say that it cannot work", time.Minute, func() bool {
			status, _ := p.get("/readyz")
			return status == http.StatusServiceUnavailable
		})
	}
	for _, b := range gone {
		b.start()
	}
	for _, b := range c.servers {
		b.ready()
	}
	c.log("all servers are there again")
	for _, p := range c.programs {
		c.untilReady(p)
	}
	c.until("every queue to have a leader", time.Minute, func() bool {
		led := 0
		for _, q := range bus.Queues() {
			ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
			if _, err := c.js.Consumer(ctx, q.Stream, q.Name); err == nil {
				led++
			}
			cancel()
		}
		return led == len(bus.Queues())
	})
	c.log("all programs work")
}

// stepDown makes every stream and every consumer change its leader.
func (c *cluster) stepDown() {
	asked := 0
	for _, s := range bus.Streams(bus.Limits{}) {
		asked += c.ask("$JS.API.STREAM.LEADER.STEPDOWN." + s.Name)
	}
	for _, q := range bus.Queues() {
		asked += c.ask("$JS.API.CONSUMER.LEADER.STEPDOWN." + q.Stream + "." + q.Name)
	}
	c.log(fmt.Sprint(asked, " leaders stepped down"))
}

func (c *cluster) ask(subject string) int {
	if _, err := c.js.Conn().Request(subject, nil, 5*time.Second); err != nil {
		return 0 // without a leader there is none to step down
	}
	return 1
}

// leader is the server that leads a stream.
func (c *cluster) leader(stream string) (found *broker) {
	c.until("a leader of "+stream, time.Minute, func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		defer cancel()
		s, err := c.js.Stream(ctx, stream)
		if err != nil || s.CachedInfo().Cluster == nil {
			return false
		}
		n := 0
		_, err = fmt.Sscanf(s.CachedInfo().Cluster.Leader, "n%d", &n)
		found = c.servers[n]
		return err == nil
	})
	return found
}

func (c *cluster) log(what string) { c.t.Logf("%v: %s", time.Since(c.began).Round(time.Second), what) }
