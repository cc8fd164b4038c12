package sim

import (
	"context"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/history"
	"errand/internal/mandates"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/consumer"
	"errand/internal/requests/enroll"
	"errand/internal/requests/hold"
	"errand/internal/requests/query"
	"errand/internal/requests/send"
	"errand/internal/retry"
	"errand/internal/throttle"
	"errand/internal/wire/mailkey"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// replica is a program that is started again when it ends: mandate-consumer or mail-consumer, wired as internal/programs does.
type replica struct {
	w    *world
	name string

	mu   sync.Mutex
	node *node
	stop context.CancelFunc // asks it to end
	down time.Duration      // until it is started again
	size int                // MAIL_BATCH_SIZE
}

const (
	timeout = 30 * time.Second // UPSTREAM_TIMEOUT
	grace   = 25 * time.Second // SHUTDOWN_GRACE
)

// run starts the program again and again, until the history ends.
func (r *replica) run() {
	for life := 1; r.w.ctx.Err() == nil; life++ {
		n := r.w.newNode(r.name)
		ends := context.AfterFunc(r.w.ctx, func() { n.kill(errKilled) })
		soft, stop := context.WithCancel(n.ctx)
		r.mu.Lock()
		r.node, r.stop, r.down = n, stop, time.Second
		size := r.size
		r.mu.Unlock()
		if life > 1 {
			r.w.tell("%s is started", r.name)
		}
		if r.w.Mail {
			r.mailConsumer(soft, n, size)
		} else {
			r.mandateConsumer(soft, n)
		}
		stop()
		ends()
		n.kill(errKilled)
		r.mu.Lock()
		down := min(r.down, max(time.Until(r.w.clear), time.Second)) // a kill may come long after its step
		r.mu.Unlock()
		retry.Pause(r.w.ctx, down)
	}
}

// meets lets a step of the script happen to the replica.
func (r *replica) meets(t step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, d := r.node, time.Duration(t.For)
	switch t.Do {
	case "kill":
		r.down = d
		n.killAt(t.N, t.N%2 == 0)
	case "restart":
		r.w.tell("%s is asked to end, and comes again with %d recipients a batch", r.name, t.N)
		r.down, r.size = d, t.N
		r.stop()
		time.AfterFunc(grace, func() { n.kill(errKilled) })
	case "stop":
		r.w.tell("%s stands still for %v", r.name, t.For)
		n.stop(d)
	case "cut":
		r.w.tell("%s is cut off from NATS for %v", r.name, t.For)
		n.cut(d)
	}
}

// program is what both consumers share.
type program struct {
	*node
	soft     context.Context
	log      history.Log
	caller   *attempt.Caller
	options  []clients.Option
	settings consumer.Settings
}

func (r *replica) program(soft context.Context, n *node) program {
	w := r.w
	p := program{node: n, soft: soft, log: client{w.log, n}, caller: &attempt.Caller{
		Policy:  retry.Policy{First: 200 * time.Millisecond, Max: 10 * time.Second, Tries: w.Tries, Steady: true},
		Timeout: timeout, Slots: admission.NewSlots(w.Concurrency, w.lanes()...), Stop: soft.Done()}}
	p.options = []clients.Option{clients.Timeout(timeout), clients.Wrap(func(http.RoundTripper) http.RoundTripper {
		return &link{node: n, service: w.service, timeout: timeout}
	})}
	if w.Rate > 0 {
		limit := &throttle.Limit{Replica: throttle.NewReplica(w.Rate), Stop: soft.Done(), Waited: func(time.Duration) {}}
		p.caller.Throttle, p.caller.Owe = limit.Wait, limit.Owe
		if w.Lanes {
			turn := admission.NewTurn(1+int(w.Rate), w.lanes()...)
			p.caller.Turn = &turn
		}
		p.options = append(p.options, clients.WaitToRead(limit.Wait))
	}
	p.settings = consumer.Settings{Log: p.log, Dead: letters{n, w.letters}.StoreDeadLetter, Later: schedules{n}.Schedule,
		InFlight:    admission.NewSlots(w.Concurrency+max(w.Concurrency/4, len(w.lanes()), 1), w.lanes()...),
		GiveUpAfter: time.Duration(w.GiveUp), Kept: w.keeps, Newer: func() bool { return w.is(newerProgram, 0) }, Logger: logger,
		Settled: func(consumer.Outcome) {}, Panicked: func(op messages.Operation) { w.fail("%s panics", op) }}
	return p
}

// lanes are those of LANES, none if there is one lane.
func (w *world) lanes() []admission.Lane {
	if !w.Lanes {
		return nil
	}
	return []admission.Lane{{Name: messages.DefaultLane, Weight: 2}, {Name: "bulk", Weight: 1}}
}

// bulk is the queue of the other lane.
func (p program) bulk(op messages.Operation) []consumer.Lane {
	if !p.w.Lanes {
		return nil
	}
	return []consumer.Lane{{Name: "bulk", Queue: puller{p.w.queues[op], p.node, "bulk"}}}
}

// logger is the programs'; SIM_LOG shows it.
var logger = func() zerolog.Logger {
	if os.Getenv("SIM_LOG") == "" {
		return zerolog.Nop()
	}
	return zerolog.New(os.Stderr)
}()

func (w *world) keeps() time.Duration {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	return w.kept
}

func (p program) hold(op messages.Operation, read func(context.Context) error) *hold.Hold {
	h := &hold.Hold{Service: string(op), Interval: p.caller.Policy.Max, Log: logger}
	h.Began = func(c hold.Cause) { p.w.held(p.node, op, c) }
	if read != nil {
		h.Read = func(ctx context.Context) error {
			if err := p.caller.Slots.Take(ctx); err != nil {
				return err
			}
			defer p.caller.Slots.Free()
			return read(ctx)
		}
	}
	return h
}

// work runs the consumers until they end.
func (p program) work(run ...func(soft, hard context.Context) error) {
	var all sync.WaitGroup
	for _, f := range run {
		all.Go(func() { _ = f(p.soft, p.ctx) })
	}
	all.Wait()
}

func (r *replica) mailConsumer(soft context.Context, n *node, size int) {
	p := r.program(soft, n)
	api, err := mail.New(mail.Config{URL: "http://127.0.0.1:1", Key: clients.NewSecret("key")}, p.options...)
	must(err)
	handler := &send.Handler{Upstream: api, Caller: p.caller, Size: size, Parallel: r.w.Parallel, Secret: mailkey.NewSecret("sim"),
		Suppressed: func(address string) (time.Time, string, bool) {
			return time.Now(), "bounced", r.w.suppressed(n, address)
		}}
	sends := consumer.New(p.settings, puller{r.w.queues[messages.Send], n, ""}, p.hold(messages.Send, func(ctx context.Context) error {
		_, err := api.Account(ctx)
		return err
	}), handler.Handle, send.Ended, p.bulk(messages.Send)...)
	accounts := consumer.New(p.settings, puller{r.w.queues[messages.Account], n, ""}, p.hold(messages.Account, nil),
		(&query.Account{Upstream: api, Caller: p.caller}).Handle, query.Ended)
	p.work(sends.Run, accounts.Run)
}

// kualaLumpur is MANDATE_TIMEZONE.
var kualaLumpur = time.FixedZone("Asia/Kuala_Lumpur", 8*60*60)

func (r *replica) mandateConsumer(soft context.Context, n *node) {
	p := r.program(soft, n)
	config := mandate.Config{URL: "http://127.0.0.1:1", Token: clients.NewSecret("token"), PortalKey: clients.NewSecret("portal")}
	api, err := mandate.New(config, p.options...)
	must(err)
	aside, err := mandate.New(config, p.options...) // takes no slot
	must(err)
	times := &mandates.Times{Zone: kualaLumpur, Client: aside, Policy: p.caller.Policy, Last: p.log.Last, Logger: logger}
	list := &mandates.List{Client: api, Policy: p.caller.Policy, Stop: p.caller.Stop, Settle: listSettle, Times: times}
	handler := &enroll.Handler{Upstream: api, List: list, Caller: p.caller, Zone: kualaLumpur}
	enrollHold := p.hold(messages.Enroll, func(ctx context.Context) error {
		_, err := api.TransactionsPage(ctx, mandate.Filter{}, 1, nil)
		return err
	})
	enrollments := consumer.New(p.settings, puller{r.w.queues[messages.Enroll], n, ""}, enrollHold,
		handler.Handle, enroll.Ended, p.bulk(messages.Enroll)...)
	listings := consumer.New(p.settings, puller{r.w.queues[messages.Transactions], n, ""}, p.hold(messages.Transactions, nil),
		(&query.Transactions{Upstream: api, Caller: p.caller}).Handle, query.Ended)
	run := []func(soft, hard context.Context) error{enrollments.Run, listings.Run}
	if r.w.Resolve {
		later := &mandates.List{Client: aside, Policy: p.caller.Policy, Settle: retry.ResolveEnough, Times: times}
		run = append(run, p.resolver(later, enrollHold))
	}
	p.work(run...)
}

// resolver looks uncertain enrollments up again.
func (p program) resolver(list *mandates.List, held *hold.Hold) func(soft, hard context.Context) error {
	log := client{p.w.log, p.node}
	r := &enroll.Resolver{List: list, Held: held.Active, Log: log, Logger: logger, Ages: retry.ResolveAges, Resolved: func(messages.State) {},
		Next: func(ctx context.Context, from uint64, since time.Time) (history.Entry, error) {
			return log.open(ctx, messages.Enroll, messages.Uncertain, from, since)
		}}
	return func(soft, _ context.Context) error { r.Run(soft); return nil }
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
