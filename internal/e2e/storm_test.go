//go:build unix

package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// The storm is short by default. The long one, with figures as it goes:
//
//	go test ./internal/e2e -run TestStorm -v -timeout 20m -storm.enrollments 500 -storm.messages 50 -storm.kills 40
var (
	stormEnrollments = flag.Int("storm.enrollments", 60, "enrollments of the storm")
	stormMessages    = flag.Int("storm.messages", 8, "messages of the storm, 2,500 recipients each")
	stormShare       = flag.Float64("storm.share", 0.05, "share of the upstream calls that each fault hits, 0 to 0.08")
	stormKill        = flag.Duration("storm.kill", time.Second, "time between two kills of a program, on average")
	stormKills       = flag.Int("storm.kills", 12, "how often each program is killed; 0 kills none")
	stormSeed        = flag.Uint64("storm.seed", 1, "of the faults and of the times of the kills")
)

// letterSize is how many recipients a message of the storm has: three batches.
const letterSize = 2500

// storm is what was asked of an installation under faults and kills.
type storm struct {
	*installation
	enrollments, letters []string // request ids
	kills, pauses        atomic.Int64
	began                time.Time
}

// Every fault that the sandbox knows, on every operation; of each program one instance
// that is killed about once a second and one that stands still longer than a call's
// deadline; and requests come in all the while. Each of them ends exactly once, nobody
// is enrolled or written to twice, and what is told agrees with what was done.
func TestStormOfFaultsAndKills(t *testing.T) {
	s := &storm{installation: install(t, "RETRY_MAX=500ms", "MAIL_BATCH_PARALLEL=1"), began: time.Now()}
	s.set(func(s *sandbox.Settings) { s.Latency = sandbox.Duration(500 * time.Millisecond) })
	s.unleash(*stormShare)
	work, over := context.WithCancel(t.Context())
	var killers, pausers sync.WaitGroup
	defer pausers.Wait()
	defer killers.Wait()
	defer over()
	for n, program := range []string{"mandate-consumer", "mail-consumer"} {
		killed, paused := rand.New(rand.NewPCG(*stormSeed, uint64(n))), rand.New(rand.NewPCG(*stormSeed, uint64(n+8)))
		killers.Go(func() { s.kill(work, program, killed) })
		pausers.Go(func() { s.pause(work, program, paused) })
	}
	s.ask()
	killers.Wait()
	over()
	pausers.Wait()
	s.settle()
	for _, p := range s.all() {
		if !p.gone() {
			s.until(p.name+" to work", 10*time.Second, func() bool { return p.says(`"message":"ready"`) })
			p.stop(20 * time.Second)
		}
	}
	s.until("the sandbox to be done with the calls of the dead", 10*time.Second, func() bool { return s.inFlight.Load() == 0 })
	s.judge()
}

// unleash gives the sandbox its faults, in a drawn order for each operation. The first
// rule that applies fires, so that later ones hit a little less than their share.
func (s *storm) unleash(share float64) {
	s.t.Helper()
	const late = sandbox.Duration(3 * time.Second) // longer than UPSTREAM_TIMEOUT
	kinds := []sandbox.Fault{{Kind: sandbox.Delay, Delay: late}, {Kind: sandbox.DelayAnswer, Delay: late},
		{Kind: sandbox.Cut}, {Kind: sandbox.AcceptCut}, {Kind: sandbox.Truncate}, {Kind: sandbox.Garbage}, {Kind: sandbox.AcceptEmpty},
		{Kind: sandbox.Status, Status: 500}, {Kind: sandbox.AcceptStatus, Status: 500}, {Kind: sandbox.Status, Status: 422},
		{Kind: sandbox.Status, Status: 503, Headers: map[string]string{"Retry-After": "1"}}}
	draw := rand.New(rand.NewPCG(*stormSeed, 1<<32))
	for _, operation := range []string{"enroll", "transactions", "send"} {
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
	// Refused credentials stop a program as a whole; that is rarer.
	s.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 401, Share: share / 5, Seed: draw.Uint64()})
	s.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 402, Share: share / 5, Seed: draw.Uint64()})
}

// kill kills a program again and again and starts it anew at once; the last run lives.
func (s *storm) kill(ctx context.Context, program string, draw *rand.Rand) {
	for range *stormKills {
		p, err := s.launch(program)
		if err != nil {
			s.t.Error(err)
			return
		}
		select {
		case <-time.After(*stormKill/2 + time.Duration(draw.Int64N(int64(*stormKill)+1))):
		case <-p.ended:
			s.t.Errorf("%s ended by itself with %d\n%s", program, p.status, p.last())
			return
		case <-ctx.Done():
			return
		}
		p.kill()
		s.kills.Add(1)
	}
	if _, err := s.launch(program); err != nil {
		s.t.Error(err)
	}
}

// pause lets a program stand still again and again, each time for so long that others
// take its work over.
func (s *storm) pause(ctx context.Context, program string, draw *rand.Rand) {
	const still = 9 * time.Second // UPSTREAM_TIMEOUT, the margin of a deadline, ackWait
	p, err := s.launch(program)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer p.resume()
	for *stormKills > 0 {
		if !wait(ctx, *stormKill/2+time.Duration(draw.Int64N(int64(*stormKill)+1))) {
			return
		}
		p.pause()
		s.pauses.Add(1)
		wait(s.t.Context(), still)
		p.resume()
	}
}

// wait reports whether d passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// ask publishes all requests, in a drawn order, over most of the time of the kills.
func (s *storm) ask() {
	s.t.Helper()
	n := *stormEnrollments + *stormMessages
	pace := time.NewTicker(time.Millisecond + time.Duration(*stormKills)**stormKill*4/5/time.Duration(max(n, 1)))
	defer pace.Stop()
	for _, i := range rand.New(rand.NewPCG(*stormSeed, 1<<33)).Perm(n) {
		if i < *stormEnrollments {
			id := fmt.Sprint("e", i)
			s.publish("mandate.enroll.requested", enrollment(id, "on_unknown", "report"))
			s.enrollments = append(s.enrollments, id)
		} else {
			id := fmt.Sprint("m", i-*stormEnrollments)
			s.publish("mail.send.requested", message(id, letterSize, "on_unknown", "report"))
			s.letters = append(s.letters, id)
		}
		<-pace.C
	}
}

// settle waits until nothing is left in the queues, telling how far it is.
func (s *storm) settle() {
	s.t.Helper()
	tell := time.NewTicker(5 * time.Second)
	defer tell.Stop()
	s.until("empty queues", 2*time.Minute+s.length(), func() bool {
		enrollments, letters := s.left(bus.EnrollQueue), s.left(bus.SendQueue)
		select {
		case <-tell.C:
			s.t.Logf("%v: %d kills, %d enrollments and %d messages left", time.Since(s.began).Round(time.Second), s.kills.Load(), enrollments, letters)
		default:
		}
		return enrollments+letters == 0
	})
}

// length is a generous guess of how long the work itself takes.
func (s *storm) length() time.Duration {
	return time.Duration(len(s.enrollments)+10*len(s.letters)) * 250 * time.Millisecond
}

// judge holds what was told against what was asked and what was done.
func (s *storm) judge() {
	s.t.Helper()
	o := s.box.Oracle(sandbox.Query{})
	if o.Enroll.TwiceCount != 0 || o.Mail.TwiceCount != 0 {
		s.t.Errorf("enrolled twice: %v; served twice: %d, such as %v", o.Enroll.Twice, o.Mail.TwiceCount, o.Mail.Twice[:min(5, len(o.Mail.Twice))])
	}
	enrollments, letters := s.ends("mandate.enroll", s.enrollments), s.ends("mail.send", s.letters)
	for id, e := range enrollments {
		switch n := o.Enroll.ByOrder["order-"+id]; {
		case e.state() == messages.Succeeded && n == 1, e.state() == messages.Failed && n == 0:
		case e.state() == messages.Uncertain && (n == 1 || n == 0 && e.reason() != "link_lost"):
		default:
			s.t.Errorf("%s is %s, the sandbox has %d enrollments: %s", id, e.state(), n, e.Raw)
		}
	}
	served := s.served(letterSize)
	for id, e := range letters {
		told, got := decode[messages.SendOutcome](s.t, e), sum(served[id])
		if told.Accepted > got || told.Accepted != got && e.state() != messages.Uncertain || told.Recipients != letterSize {
			s.t.Errorf("%s: %d were served: %s", id, got, e.Raw)
		}
	}
	batches := s.histories("mail.batch.*.*.*")
	for batch, history := range batches {
		id := decode[messages.Common](s.t, history[0]).RequestID
		e, err := end(history)
		if err == nil {
			err = batchAgrees(s.t, e, served[id])
		}
		if err != nil {
			s.t.Errorf("%s: %v", batch, err)
		}
	}
	if want := 3 * len(s.letters); len(batches) != want {
		s.t.Errorf("%d batches have a history, want %d", len(batches), want)
	}
	s.wantDeadLetters("dead.mandate.enroll.requested", enrollments)
	s.wantDeadLetters("dead.mail.send.requested", letters)
	s.report(o, enrollments, letters)
}

// ends gives the one end of each request; what has none or several is an error.
func (s *storm) ends(operation messages.Operation, ids []string) map[string]event {
	s.t.Helper()
	histories := s.histories(string(operation) + ".*.*")
	out := map[string]event{}
	for _, id := range ids {
		e, err := end(histories[id])
		if err != nil {
			s.t.Errorf("%s: %v\n%s", id, err, s.about(id))
			continue
		}
		out[id] = e
	}
	if len(histories) != len(ids) {
		s.t.Errorf("%s: %d histories of %d requests", operation, len(histories), len(ids))
	}
	return out
}

// wantDeadLetters wants one for each request that failed or is uncertain, and no other.
func (s *storm) wantDeadLetters(subject string, ends map[string]event) {
	s.t.Helper()
	letters := map[string]int{}
	for _, d := range s.told(subject) {
		letters[d.Header.Get("Errand-Request-Id")]++
	}
	for id, e := range ends {
		want := 0
		if e.state() == messages.Failed || e.state() == messages.Uncertain {
			want = 1
		}
		if letters[id] != want {
			s.t.Errorf("%s is %s and has %d dead letters", id, e.state(), letters[id])
		}
		delete(letters, id)
	}
	if len(letters) > 0 {
		s.t.Errorf("dead letters of nobody: %v", letters)
	}
}
