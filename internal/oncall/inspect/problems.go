package inspect

import (
	"fmt"
	"slices"
	"time"

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/internal/style"
	"errand/pkg/messages"
)

// Problem is something that is wrong now, and where.
type Problem struct {
	Kind     string   `json:"kind"`
	Severity Severity `json:"severity"`
	Where    string   `json:"where"`
	What     string   `json:"what"`
}

// Severity is how urgent a problem is, as the label of its alert.
type Severity string

// The severities.
const (
	Critical Severity = "critical" // work has stopped
	Warning  Severity = "warning"
	Info     Severity = "info"
)

// ProblemKind is a kind of problem, as `errand status` and the console show it. Which alert fires for it is in the test.
type ProblemKind struct {
	Kind     string
	Severity Severity
	Where    string
	Says     string // format of Problem.What
}

// ProblemKinds are all kinds, the most pressing first.
var ProblemKinds = []ProblemKind{
	{"held", Critical, "upstream", "%s is held for %s: %s"},
	{"list_refused", Critical, "upstream", "%s on %s: %s"},
	{"missing", Critical, "program", "no %s answers: does one run?"},
	{"no_transaction_poller", Critical, "program", "no transaction-poller answers, and none has read the list for %s: does one run?"},
	{"nobody_ready", Critical, "program", "%s on %s: %s"},
	{"not_ready", Warning, "program", "%s on %s: %s"},
	{"queue_full", Critical, "nats", "%s has %d%% of its maximum size: new requests are refused"},
	{"stranded", Critical, "queue", "%s: the queue has forgotten %d of its requests: %s"},
	{"overdue", Critical, "queue", "%s: %d scheduled, due for %s and not in the queue: errand provision --missing --repair"},
	{"paused", Info, "queue", "%s is paused for another %s%s"},
	{"backlog", Warning, "queue", "%s: %d waiting for a worker, the oldest for %s"},
	{"failing", Warning, "requests", "%s: %d of %d failed in the last %s"},
	{"uncertain", Warning, "requests", "%s: %d ended uncertain in the last hour and still are"},
	{"duplicates", Warning, "requests", "the transaction list has two applications for %s: its payer may be enrolled twice"},
	{"log_not_read", Critical, "poller", "the sending log is read up to %s ago"},
	{"log_lag", Warning, "poller", "the sending log is read up to %s ago"},
	{"transactions_lag", Warning, "poller", "the transaction list is read up to %s ago"},
	{"restored", Warning, "nats",
		"%s was made %s ago, after requests of %s that still wait: whether these were run before is not known to it"},
	{"noted", Info, "program", "%s: %s"},
	{"stream_fills", Warning, "nats", "%s has %d%% of its maximum size"},
	{"replicas", Warning, "nats", "%s has %d of %d replicas"},
	{"storage", Warning, "nats", "its storage is %d%% full"},
}

// From when on something is wrong, as the alerts have it.
const (
	longWait    = 15 * time.Minute // that nobody took
	longLag     = 5 * time.Minute  // of the poller of the sending log
	stoppedRead = 10 * time.Minute // the same: none is at work
	listLag     = 10 * time.Minute // of the poller of transactions
	markLag     = 2 * time.Hour    // of its watermark, where none answers: an idle one stores it once an hour
	fullPart    = 0.8              // of a limit
	refusesPart = 0.95             // of a queue's limit
	failedPart  = 0.05             // of what ended
	failedMost  = 5                // fewer are not a problem
)

// Problems are what is wrong, the most pressing first.
func Problems(s Status) []Problem {
	p := problems{list: []Problem{}, now: s.At.Time}
	p.programs(s)
	p.queues(s)
	p.outcomes(s)
	p.pollers(s)
	p.nats(s)
	slices.SortStableFunc(p.list, func(a, b Problem) int { return rank(a.Kind) - rank(b.Kind) })
	return p.list
}

type problems struct {
	list []Problem
	now  time.Time
}

func (p *problems) add(kind string, args ...any) {
	k := ProblemKinds[rank(kind)]
	problem := Problem{kind, k.Severity, k.Where, fmt.Sprintf(k.Says, args...)}
	if !slices.Contains(p.list, problem) { // replicas and lanes say the same
		p.list = append(p.list, problem)
	}
}

func rank(kind string) int {
	return slices.IndexFunc(ProblemKinds, func(k ProblemKind) bool { return k.Kind == kind })
}

func (p *problems) since(t *messages.Time) time.Duration { return p.now.Sub(t.Time) }

func (p *problems) programs(s Status) {
	held := map[string]bool{}
	for _, program := range s.Programs {
		for _, note := range program.Notes {
			p.add("noted", program.Program, note)
		}
		for _, request := range program.Duplicates {
			p.add("duplicates", request)
		}
		for _, h := range program.Holds {
			if text := string(h.Operation) + h.Why; !held[text] { // of its replicas one
				held[text] = true
				p.add("held", h.Operation, style.Span(p.since(&h.Since)), h.Why)
			}
		}
		kind := "nobody_ready"
		if slices.ContainsFunc(s.Programs, func(o bus.ProgramStatus) bool { return o.Program == program.Program && len(o.Faults) == 0 }) {
			kind = "not_ready"
		}
		for _, fault := range program.Faults {
			if fault == program.Upstream && kind == "nobody_ready" {
				p.add("list_refused", program.Program, program.Host, fault)
			} else {
				p.add(kind, program.Program, program.Host, fault)
			}
		}
	}
	for _, name := range bus.MissingPrograms(s.Programs) {
		p.add("missing", name)
	}
	if t := s.Transactions; t != nil && !s.Answers(bus.TransactionPoller) && t.Marked != nil && p.since(t.Marked) > markLag {
		p.add("no_transaction_poller", style.Span(p.since(t.Marked)))
	}
}

func (p *problems) queues(s Status) {
	for _, q := range s.Queues {
		if q.PausedUntil != nil {
			p.add("paused", q, style.Span(p.since(q.PausedUntil)), q.Pause)
		}
		if q.Stranded > 0 {
			p.add("stranded", q, q.Stranded, repair(q.restored))
		}
		if q.FirstFree != nil && p.since(q.FirstFree) > longWait && stopped(q, s.Programs) == "" { // more programs would not help
			p.add("backlog", q, q.Untaken, style.Span(p.since(q.FirstFree)))
		}
		for _, st := range s.Streams {
			if st.Name == bus.EventsOf(q.Operation) && q.Oldest != nil && q.Oldest.Before(st.Created.Time) {
				p.add("restored", st.Name, style.Span(p.since(&st.Created)), q.Operation)
			}
		}
	}
	for _, q := range s.due {
		works := func(o bus.ProgramStatus) bool { return o.Program == bus.ProgramOf(q.Operation) && len(o.Faults) == 0 }
		if q.FirstFree != nil && p.since(q.FirstFree) > retry.Stranded && slices.ContainsFunc(s.Programs, works) {
			p.add("overdue", q, q.Untaken, style.Span(p.since(q.FirstFree)))
		}
	}
}

func (p *problems) outcomes(s Status) {
	for _, op := range Operations {
		failed, recent := s.failed(op)
		all, recently := s.ended(op, finals(op)...)
		switch many := func(n, of uint64) bool { return n >= failedMost && float64(n) >= failedPart*float64(of) }; {
		case many(failed, all):
			p.add("failing", op, failed, all, "hour")
		case many(recent, recently):
			p.add("failing", op, recent, recently, style.Span(recentWindow))
		}
	}
	for _, o := range s.Outcomes {
		if o.State == messages.Uncertain && o.Still > 0 {
			p.add("uncertain", o.Operation, o.Still)
		}
	}
}

// failed is how many requests of an operation failed without the cancelled ones, as ErrandFailing counts them: a cancel stores
// its outcome before a worker takes the request, which errand_requests_total counts as repeated.
func (s Status) failed(op messages.Operation) (n, recent uint64) {
	n, recent = s.ended(op, messages.Failed)
	for _, o := range s.Outcomes {
		if o.Operation == op {
			n, recent = n-min(n, o.Cancelled), recent-min(recent, o.RecentlyCancelled)
		}
	}
	return n, recent
}

// ended is how many requests of an operation came into some states, of those that outcomes are.
func (s Status) ended(op messages.Operation, states ...messages.State) (n, recent uint64) {
	for _, o := range s.Outcomes {
		if o.Operation == op && slices.Contains(states, o.State) && o.State != messages.Resolved && o.State != messages.Erased {
			n, recent = n+o.Count, recent+o.Recent
		}
	}
	return n, recent
}

func (p *problems) pollers(s Status) {
	if read, lag := p.lag(s, s.Poller, bus.LogPoller); lag > stoppedRead {
		p.add("log_not_read", style.Span(p.since(read)))
	} else if lag > longLag {
		p.add("log_lag", style.Span(p.since(read)))
	}
	if s.Transactions == nil {
		return
	}
	if read, lag := p.lag(s, *s.Transactions, bus.TransactionPoller); lag > listLag {
		p.add("transactions_lag", style.Span(p.since(read)))
	}
}

// lag returns when a list was last read, and for how long it was not, as the pollers' metrics have it: one that knows of no
// reading counts from its start.
func (p *problems) lag(s Status, of Poller, name string) (read *messages.Time, lag time.Duration) {
	if of.ReadThrough != nil {
		return of.ReadThrough, p.since(of.ReadThrough)
	}
	if of.Marked == nil || s.Leads(name) || !s.Answers(name) {
		return nil, 0
	}
	lag = p.since(of.Marked)
	for _, program := range s.Programs {
		if program.Program == name {
			lag = min(lag, p.since(&program.Started))
		}
	}
	return of.Marked, lag
}

func (p *problems) nats(s Status) {
	for _, st := range s.Streams {
		kind, part := "stream_fills", float64(st.Bytes)/float64(max(st.MaxBytes, 1))
		if part > refusesPart && slices.ContainsFunc(Operations, func(op messages.Operation) bool { return bus.QueueOf(op).Stream == st.Name }) {
			kind = "queue_full"
		}
		if st.MaxBytes > 0 && part > fullPart {
			p.add(kind, st.Name, int(100*part))
		}
		if st.Current < st.Replicas {
			p.add("replicas", st.Name, st.Current, st.Replicas)
		}
	}
	if s.Storage.Limit > 0 && float64(s.Storage.Bytes) > fullPart*float64(s.Storage.Limit) {
		p.add("storage", int(100*s.Storage.Bytes)/int(s.Storage.Limit))
	}
}
