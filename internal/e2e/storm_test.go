package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox"
)

// The storm is short by default. The long one, with figures as it goes; the same seed
// gives the same faults, in the same order, and the same draws of times:
//
//	go test ./internal/e2e -run TestStorm -v -timeout 0 -storm.for 20m -storm.seed 7
var (
	stormFor    = flag.Duration("storm.for", 12*time.Second, "how long requests come in while things break")
	stormRate   = flag.Float64("storm.rate", 6, "requests a second; one in ten is a message")
	stormShare  = flag.Float64("storm.share", 0.05, "share of the upstream calls that each of a dozen faults hits, 0 to 0.08")
	stormKill   = flag.Duration("storm.kill", time.Second, "time between two ends of a program, on average")
	stormBroker = flag.Duration("storm.broker", 4*time.Second, "time between two kills of the nats-server, on average")
	stormSeed   = flag.Uint64("storm.seed", 1, "of the faults and of the times of the kills")
)

// letterSize is how many recipients a message of the storm has: three batches.
const letterSize = 250

// storm is what was asked of an installation under faults, kills and restarts.
type storm struct {
	*installation
	broker                            *broker
	enrollments, letters              []string // request ids
	kills, stops, pauses, brokerKills atomic.Int64
	began                             time.Time
	rows, deliveries                  int // of the sending log, counted by the judge
	killers, pausers                  sync.WaitGroup
	trouble
}

// Every fault that the sandbox knows, on every operation; of each program one instance that is killed or stopped about
// once a second, and one that is paused for longer than a call's deadline; a nats-server that is killed too, and has no
// room for some seconds; operations that hang; and requests come in all the while, some of which nobody takes or can
// read. Each of them ends exactly once, nobody is enrolled or gets a mail twice, what is published agrees with what was
// done, and each state of each row of the sending log is published once.
func TestStormOfFaultsKillsAndRestarts(t *testing.T) {
	dir := releaseBuild.programs(t)
	parallel(t)
	b := brokers(t, 1, "")[0]
	s := &storm{broker: b, began: time.Now(), installation: installAt(t, dir, b.url, 1, "RETRY_MAX=500ms",
		"MAIL_BATCH_SIZE=100", "MAIL_BATCH_PARALLEL=1", "POLL_LIMIT=500", "POLL_OVERLAP=30s")}
	s.set(func(s *sandbox.Settings) {
		s.Latency, s.LogDelay, s.DeferredFor = sandbox.Duration(300*time.Millisecond), sandbox.Duration(500*time.Millisecond),
			sandbox.Duration(2*time.Second)
		s.ShareDeferred, s.ShareBounced = 0.1, 0.1
	})
	s.web.Config.Handler = s.hangable(s.web.Config.Handler)
	s.refuseSome()
	s.unleash(*stormShare)
	work, over := context.WithCancel(t.Context())
	defer s.pausers.Wait()
	defer s.killers.Wait()
	defer over()
	for n, program := range []string{"mandate-consumer", "mail-consumer", "log-poller"} {
		ended, paused := s.draw(uint64(n)), s.draw(uint64(n+8))
		s.killers.Go(func() { s.kill(work, program, ended) })
		s.pausers.Go(func() { s.pause(work, program, paused) })
	}
	s.killers.Go(func() { s.killBroker(work, s.draw(16)) })
	if *stormHang > 0 {
		s.killers.Go(func() { s.hang(work, s.draw(17)) })
	}
	if *stormFull > 0 {
		s.killers.Go(func() { s.leaveNoRoom(work, s.draw(18)) })
	}
	s.ask()
	over()
	s.killers.Wait()
	s.pausers.Wait()
	s.settle()
	for _, p := range s.processes() {
		if !p.exited() {
			s.until(p.name+" to work", time.Minute, func() bool { return p.logged(`"message":"started"`) })
			p.stop(time.Minute)
		}
	}
	s.until("the sandbox to be done with the calls of the dead", time.Minute, func() bool { return s.inFlight.Load() == 0 })
	s.judge()
}

// draw returns the random numbers of one part of the storm.
func (s *storm) draw(part uint64) *rand.Rand { return rand.New(rand.NewPCG(*stormSeed, part)) }

// unleash gives the sandbox its faults, in a drawn order for each operation. The first
// rule that applies fires, so that later ones hit a little less than their share.
func (s *storm) unleash(share float64) {
	const late = sandbox.Duration(3 * time.Second) // longer than UPSTREAM_TIMEOUT
	kinds := []sandbox.Fault{{Kind: sandbox.Delay, Delay: late}, {Kind: sandbox.DelayAnswer, Delay: late},
		{Kind: sandbox.Cut}, {Kind: sandbox.AcceptCut}, {Kind: sandbox.Truncate}, {Kind: sandbox.Garbage}, {Kind: sandbox.AcceptEmpty},
		{Kind: sandbox.Status, Status: 500}, {Kind: sandbox.AcceptStatus, Status: 500}, {Kind: sandbox.Status, Status: 422},
		{Kind: sandbox.Status, Status: 503, Headers: map[string]string{"Retry-After": "1"}}}
	draw := s.draw(1 << 32)
	for _, operation := range []string{"enroll", "transactions", "send", "logs"} {
		faults := slices.Clone(kinds)
		if operation == "send" {
			faults = append(faults, sandbox.Fault{Kind: sandbox.Short})
		}
		draw.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		for _, f := range faults {
			f.Operation, f.Share, f.Seed = operation, share, draw.Uint64()
			s.fault(f)
		}
	}
	// Refused credentials stop a program completely; that is rarer.
	s.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 401, Share: share / 5, Seed: draw.Uint64()})
	s.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 402, Share: share / 5, Seed: draw.Uint64()})
	s.fault(sandbox.Fault{Operation: "logs", Kind: sandbox.Status, Status: 403, Share: share / 5, Seed: draw.Uint64()})
}

// around draws a time of d on average.
func around(d time.Duration, draw *rand.Rand) time.Duration {
	return d/2 + time.Duration(draw.Int64N(int64(d)+1))
}

// kill ends a program again and again, mostly by SIGKILL, and starts it again at once; the last run lives.
func (s *storm) kill(ctx context.Context, program string, draw *rand.Rand) {
	for {
		p, err := s.launch(program)
		if err != nil {
			s.t.Error(err)
			return
		}
		select {
		case <-time.After(around(*stormKill, draw)):
		case <-p.ended:
			s.t.Errorf("%s ended by itself with %d\n%s", program, p.status, p.lastOutput())
			return
		case <-ctx.Done():
			return
		}
		if draw.IntN(4) > 0 {
			p.kill()
			s.kills.Add(1)
			continue
		}
		p.expectEnd()
		p.signal(syscall.SIGTERM)
		s.stops.Add(1)
		select {
		case <-p.ended:
			// 1: the server was gone for too long to settle all. On a busy machine the signal may come before main does.
			if p.status != 0 && p.status != 1 && p.output.String() != "" {
				s.t.Errorf("%s, asked to end, ended with %d\n%s", program, p.status, p.lastOutput())
			}
		case <-time.After(time.Minute):
			s.t.Errorf("%s, asked to end, is still there\n%s", program, p.lastOutput())
			return
		}
	}
}

// pause pauses a program again and again, each time for so long that others take its work over.
func (s *storm) pause(ctx context.Context, program string, draw *rand.Rand) {
	const still = 9 * time.Second // UPSTREAM_TIMEOUT, the margin of a deadline, ackWait
	p, err := s.launch(program)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer p.resume()
	for wait(ctx, around(*stormKill, draw)) {
		p.pause()
		s.pauses.Add(1)
		wait(s.t.Context(), still)
		p.resume()
	}
}

// killBroker kills the server again and again and starts it again over its store.
func (s *storm) killBroker(ctx context.Context, draw *rand.Rand) {
	for wait(ctx, around(*stormBroker, draw)) {
		s.brokerUse.Lock()
		s.broker.kill()
		s.brokerKills.Add(1)
		s.broker.start()
		s.broker.ready()
		s.brokerUse.Unlock()
	}
}

// publishRequests publishes requests for as long as the storm lasts. Without an acknowledgement it
// publishes again, as any producer does: some are in the queue twice.
func (s *storm) ask() {
	s.t.Helper()
	pace := time.NewTicker(time.Duration(float64(time.Second) / *stormRate))
	defer pace.Stop()
	report := time.NewTicker(time.Minute)
	defer report.Stop()
	for n, draw := 0, s.draw(1<<33); time.Since(s.began) < *stormFor; n++ {
		switch {
		case draw.Float64() < *stormPoison:
			s.poison(n, draw)
		case draw.IntN(10) > 0:
			s.enroll(fmt.Sprint("e", n), false)
		default:
			s.mail(fmt.Sprint("m", n), false)
		}
		select {
		case <-pace.C:
		case <-report.C:
			s.t.Logf("%v: %d enrollments and %d messages asked for, %d kills, %d SIGTERM, %d pauses, %d kills of the server",
				time.Since(s.began).Round(time.Second),
				len(s.enrollments), len(s.letters), s.kills.Load(), s.stops.Load(), s.pauses.Load(), s.brokerKills.Load())
		}
	}
}

// insist publishes until the server has acknowledged; bytes as they are.
func (s *storm) insist(subject string, body any, options ...jetstream.PublishOpt) {
	s.t.Helper()
	data := encode(s.t, body)
	for end := time.Now().Add(busy); ; {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		_, err := s.js.Publish(ctx, subject, data, options...)
		cancel()
		if err == nil {
			return
		}
		fatalIf(s.t, time.Now().After(end), "%s is not acknowledged: %v", subject, err)
		wait(s.t.Context(), 50*time.Millisecond)
	}
}

// settle waits until nothing is left in the queues and all of the sending log is published, and logs how far it is.
func (s *storm) settle() {
	s.t.Helper()
	report := time.NewTicker(5 * time.Second)
	defer report.Stop()
	succeed := time.NewTicker(2 * time.Second)
	defer succeed.Stop()
	within := 2*time.Minute + *stormFor
	s.until("empty queues", within, func() bool {
		enrollments, letters := s.unsettled(bus.EnrollQueue), s.unsettled(bus.SendQueue)
		select {
		case <-report.C:
			s.t.Logf("%v: %d enrollments and %d messages left", time.Since(s.began).Round(time.Second), enrollments, letters)
		case <-succeed.C:
			s.keepSucceeding()
		default:
		}
		return enrollments+letters == 0
	})
	s.box.ClearFaults("*")
	// pollers may read all the time
	s.until("the sandbox to be done with its calls", time.Minute, func() bool { return s.changing.Load() == 0 })
	s.until("all of the sending log to be published", within, func() bool {
		return s.count("mail.delivery.delivered.*")+s.count("mail.delivery.bounced.*") >= int(s.totals().Mail.Recipients)
	})
}
