package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/internal/sandbox"
)

// One round by default. More of them, in which queues forget requests or deliver them again, and streams of events and of dead
// letters are full, while their leaders change:
//
//	go test ./internal/e2e -run TestClusterLosesItsServers -v -timeout 30m -broker.rounds 10
var brokerRounds = flag.Int("broker.rounds", 1, "how often the servers of the cluster are made to fail, each way")

// cluster is a storm over three servers, that fail instead of the programs.
type cluster struct {
	*storm
	draw     *rand.Rand
	servers  []*broker
	programs []*process
}

// Three servers, two replicas of each program, and requests all the while. Leaders are
// stepped down, killed and stopped; then two servers of three are gone until a program
// says that it cannot work. Every promise is kept, and all come back.
func TestClusterLosesItsServers(t *testing.T) {
	dir := releaseBuild.programs(t)
	parallel(t)
	c := &cluster{draw: rand.New(rand.NewPCG(24, 3)), servers: brokers(t, 3, "")}
	c.storm = &storm{began: time.Now(), installation: installAt(t, dir, urls(c.servers), 3, "RETRY_MAX=500ms", "MAIL_BATCH_SIZE=100",
		"POLL_LIMIT=500")}
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
			c.until("everything to leave the queues", 10*time.Minute, func() bool {
				return c.stored(bus.MandateRequests)+c.stored(bus.MailRequests) == 0
			})
			c.settle()
			for _, p := range c.programs {
				p.stop(time.Minute)
			}
			c.judge()
			return
		case <-pace.C:
			if id := fmt.Sprint("r", n); n%10 == 0 {
				c.mail(id, false)
			} else {
				c.enroll(id, false)
			}
		}
	}
}

// fail makes the servers fail, each way once.
func (c *cluster) fail() {
	if *brokerRounds > 1 {
		c.forget() // programs wait for minutes before they start a queue over
		c.fill()
	}
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
	c.until("no stream to have a leader", busy, func() bool {
		return !slices.ContainsFunc(bus.Streams(bus.Limits{}), func(s jetstream.StreamConfig) bool { return c.leaderOf(s.Name) != "" })
	})
	const why = "JetStream does not answer"
	for _, p := range c.programs {
		c.until(p.name+" to say that it cannot work", busy, p.says(http.StatusServiceUnavailable, why))
	}
	wait(c.t.Context(), 2*retry.NATSCheck) // the server still answers for streams without a leader, which must not pass for health
	for _, p := range c.programs {
		errorIf(c.t, !p.says(http.StatusServiceUnavailable, why)(), "%s can work, as it says, and no stream has a leader", p.name)
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
	c.until("every queue to have a leader", busy, func() bool {
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

// forget moves each queue past what waits in it or to anywhere, as servers with a lost state do, while its leader changes.
func (c *cluster) forget() {
	for _, q := range bus.Queues() {
		c.until(q.Name+" to forget", busy, func() bool {
			ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
			defer cancel()
			s, err := c.js.Stream(ctx, q.Stream)
			if err != nil {
				return false
			}
			to := s.CachedInfo().State.LastSeq + 1
			if c.draw.IntN(2) == 0 {
				to = 1 + c.draw.Uint64N(to)
			}
			_, err = c.js.ResetConsumerToSequence(ctx, q.Stream, q.Name, to)
			return err == nil
		})
		c.ask("$JS.API.CONSUMER.LEADER.STEPDOWN." + q.Stream + "." + q.Name)
	}
	c.log("the queues have forgotten what waited")
}

// fill leaves streams no room for some seconds, in which their leaders change.
func (c *cluster) fill() {
	streams := []string{bus.MandateEvents, bus.MailEvents, bus.DeadLetters}
	limit := func(full bool, what string) {
		for _, stream := range streams {
			c.until(stream+what, busy, func() bool { return c.limitStream(stream, full) == nil })
		}
	}
	limit(true, " to be full")
	c.stepDown()
	wait(c.t.Context(), around(5*time.Second, c.draw))
	limit(false, " to have room")
	c.log("the streams had no room")
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
		return 0 // there is no leader to step down
	}
	return 1
}

// leader is the server that leads a stream.
func (c *cluster) leader(stream string) (found *broker) {
	c.until("a leader of "+stream, busy, func() bool {
		n := 0
		_, err := fmt.Sscanf(c.leaderOf(stream), "n%d", &n)
		found = c.servers[n]
		return err == nil
	})
	return found
}

// leaderOf is what the servers say of a stream's leader; "" where they say that there is none.
func (c *cluster) leaderOf(stream string) string {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
	defer cancel()
	s, err := c.js.Stream(ctx, stream)
	if err != nil || s.CachedInfo().Cluster == nil {
		return "unknown"
	}
	return s.CachedInfo().Cluster.Leader
}

func (c *cluster) log(what string) { c.t.Logf("%v: %s", time.Since(c.began).Round(time.Second), what) }

// islands are the servers of a cluster whose routes pass through proxies of the test's
// own, so that one server can be cut off from the others while its clients are not.
type islands struct {
	servers []*broker
	routes  map[[2]int]*proxy // from, to
}

// dispersed starts such a cluster of three and waits until it works.
func dispersed(t *testing.T) *islands {
	const n = 3
	free := ports(t, 3*n)
	clients, monitors, listens := free[:n], free[n:2*n], free[2*n:]
	c := &islands{routes: map[[2]int]*proxy{}}
	for i := range n {
		var routes []string
		for j := range n {
			if i != j {
				l := newProxy(t, "nats://"+listens[j], nil)
				c.routes[[2]int{i, j}] = l
				routes = append(routes, l.url)
			}
		}
		dir := t.TempDir()
		text := fmt.Sprintf("server_name: n%d\nlisten: %s\nhttp: %s\njetstream { store_dir: %q }\n%s", i, clients[i], monitors[i], dir,
			natsConfig(t)) +
			fmt.Sprintf("cluster { name: e2e, listen: %s, advertise: \"127.0.0.1:1\", no_advertise: true, routes: [%s] }\n", listens[i],
				strings.Join(routes, ", "))
		c.servers = append(c.servers, startBroker(t, dir, text, clients[i], monitors[i]))
	}
	for _, b := range c.servers {
		b.ready()
	}
	return c
}

// cutOff parts a server from the others, in silence, until the returned function is called.
func (c *islands) cutOff(server int) (heal func()) {
	for pair, l := range c.routes {
		if pair[0] == server || pair[1] == server {
			l.partition()
		}
	}
	return func() {
		for pair, l := range c.routes {
			if pair[0] == server || pair[1] == server {
				l.heal()
			}
		}
	}
}

// leads makes a server the leader of everything.
func (c *islands) leads(in *installation, server int) {
	name := fmt.Sprint("n", server)
	body := encode(in.t, map[string]any{"placement": map[string]any{"preferred": name}})
	in.until(name+" to lead all", time.Minute, func() bool {
		all := true
		for _, s := range bus.Streams(bus.Limits{}) {
			all = c.led(in, "$JS.API.STREAM.INFO."+s.Name, "$JS.API.STREAM.LEADER.STEPDOWN."+s.Name, name, body) && all
		}
		for _, q := range bus.Queues() {
			all = c.led(in, "$JS.API.CONSUMER.INFO."+q.Stream+"."+q.Name, "$JS.API.CONSUMER.LEADER.STEPDOWN."+q.Stream+"."+q.Name, name, body) && all
		}
		return all
	})
}

// led reports whether a server leads a stream or consumer, and asks for it if it does not.
func (c *islands) led(in *installation, info, stepDown, name string, body []byte) bool {
	ctx, cancel := context.WithTimeout(in.t.Context(), 2*time.Second)
	defer cancel()
	m, err := in.js.Conn().RequestWithContext(ctx, info, nil)
	if err != nil {
		return false
	}
	var answer struct{ Cluster struct{ Leader string } }
	if json.Unmarshal(m.Data, &answer) == nil && answer.Cluster.Leader == name {
		return true
	}
	_, _ = in.js.Conn().RequestWithContext(ctx, stepDown, body) // asked for again if it did not help
	return false
}

// The server that a program is connected to, and that leads its streams, is cut off from the two others while a call is
// under way: it takes the outcome and cannot store it, and says of the same event, written again, that it is in
// process. The outcome is kept until the others have it: no call becomes one of unknown fate.
func TestAnOutcomeOutlivesTheLeaderThatCouldNotStoreIt(t *testing.T) {
	t.Parallel()
	for _, p := range writes {
		t.Run(p.program, func(t *testing.T) {
			dir := releaseBuild.programs(t)
			parallel(t)
			c := dispersed(t)
			in := installAt(t, dir, urls(c.servers), 3, "UPSTREAM_TIMEOUT=45s")
			c.leads(in, 0)
			program := in.start(p.program, "NATS_URL="+c.servers[0].url)
			in.untilReady(program)
			in.fault(sandbox.Fault{Operation: p.call, Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(2 * time.Second)})
			in.publish(p.Requested(), p.request("r1", "on_unknown", "report"))
			in.until("the call", time.Minute, func() bool { return in.calls(p.call) == 1 })
			heal := c.cutOff(0)
			wait(t.Context(), 14*time.Second) // the answer, the write and its repetition, and until the others have a leader
			heal()
			in.waitOutcomes(p.events(), 1, 2*time.Minute)
			in.untilSettled(p.queue)
			in.untilReady(program)
			program.stop(time.Minute)
			e := in.wantFinal(p.events())
			errorIf(t, in.count(p.good()) != 1 || in.calls(p.call) != 1, "%d calls, %s %s", in.calls(p.call), e.Subject, e.Raw)
		})
	}
}
