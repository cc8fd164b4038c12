package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// Status is how everything is now.
type Status struct {
	At       messages.Time       `json:"at"`
	Problems []Problem           `json:"problems"`
	Programs []bus.ProgramStatus `json:"programs"`
	Queues   []Queue             `json:"queues"`
	Outcomes []Outcome           `json:"outcomes"` // of the last hour
	Poller   Poller              `json:"poller"`
	// Transactions is how far the transaction list is published; nil: no poller of it was ever there.
	Transactions *Poller  `json:"transaction_poller,omitempty"`
	Streams      []Stream `json:"streams"`
	Storage      Storage  `json:"storage"`
}

// Problem is something that is wrong, and where: at the upstream, a program, a queue, NATS.
type Problem struct {
	Where string `json:"where"`
	What  string `json:"what"`
}

// Outcome is how many requests of an operation came into a state.
type Outcome struct {
	Operation messages.Operation `json:"operation"`
	State     messages.State     `json:"state"`
	Count     uint64             `json:"count"`
}

// Poller is how far a list is published: the sending log, or that of transactions.
type Poller struct {
	ReadThrough *messages.Time `json:"read_through,omitempty"` // as the active poller says; nil: none answers, or it has read nothing yet
	Watermark   *messages.Time `json:"watermark,omitempty"`    // as it published last
	Marked      *messages.Time `json:"marked,omitempty"`       // when it did
}

// Stream is how full a stream is.
type Stream struct {
	Name     string `json:"name"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	MaxBytes int64  `json:"max_bytes"` // -1: no limit of its own
	Replicas int    `json:"replicas"`
	Current  int    `json:"replicas_current"`
	// Created is when it was made, or restored from a backup: what was stored before is
	// what the backup had.
	Created messages.Time `json:"created"`
}

// Storage is what the account has on the servers' disks.
type Storage struct {
	Bytes uint64 `json:"bytes"`
	Limit int64  `json:"limit"` // -1: none
}

// window is how far back outcomes are counted.
const window = time.Hour

// Status asks for everything at once.
func (r Reader) Status(ctx context.Context, now time.Time) (Status, error) {
	s := Status{At: messages.Time{Time: now}, Queues: make([]Queue, len(Operations))}
	questions := []func() error{
		func() (err error) { s.Programs, err = bus.AskStatus(ctx, r.Conn); return err },
		func() (err error) { s.Outcomes, err = r.outcomes(ctx, now.Add(-window)); return err },
		func() (err error) {
			s.Poller, err = r.watermark(ctx, bus.MailDeliveries, messages.Log)
			return err
		},
		func() error {
			poller, err := r.watermark(ctx, bus.MandateEvents, messages.Transactions)
			if poller.Marked != nil {
				s.Transactions = &poller
			}
			return err
		},
		func() (err error) { s.Storage, err = r.storage(ctx); return err },
	}
	for i, op := range Operations {
		questions = append(questions, func() (err error) { s.Queues[i], err = r.Queue(ctx, op, now); return err })
	}
	configs := slices.DeleteFunc(bus.Streams(bus.Limits{}), func(c jetstream.StreamConfig) bool {
		return c.Discard == jetstream.DiscardOld // it drops, and is full as a rule
	})
	s.Streams = make([]Stream, len(configs))
	for i, c := range configs {
		questions = append(questions, func() (err error) { s.Streams[i], err = r.stream(ctx, c.Name); return err })
	}
	if err := each(len(questions), func(i int) error { return questions[i]() }); err != nil {
		return s, err
	}
	if s.Transactions == nil && s.Answers(bus.TransactionPoller) {
		s.Transactions = &Poller{}
	}
	for _, p := range s.Programs {
		switch {
		case p.ReadThrough == nil:
		case p.Program == bus.TransactionPoller:
			s.Transactions.read(p.ReadThrough)
		default:
			s.Poller.read(p.ReadThrough)
		}
	}
	s.Problems = Problems(s)
	return s, nil
}

// Answers reports whether a program does, one replica of it at least.
func (s Status) Answers(program string) bool {
	return slices.ContainsFunc(s.Programs, func(p bus.ProgramStatus) bool { return p.Program == program })
}

// read notes how far one of the pollers has read: the furthest counts.
func (p *Poller) read(through *messages.Time) {
	if p.ReadThrough == nil || through.After(p.ReadThrough.Time) {
		p.ReadThrough = through
	}
}

// outcomes counts what came into a state since a time.
func (r Reader) outcomes(ctx context.Context, since time.Time) ([]Outcome, error) {
	var list []Outcome
	for _, op := range Operations {
		for _, state := range append([]messages.State{messages.Deferred}, finals(op)...) {
			list = append(list, Outcome{Operation: op, State: state})
		}
	}
	return list, each(len(list), func(i int) (err error) {
		o := &list[i]
		o.Count, _, err = bus.Count(ctx, r.Conn, bus.EventsOf(o.Operation), o.Operation.Subject(o.State, "*"), since)
		return err
	})
}

func (r Reader) watermark(ctx context.Context, stream string, list messages.Operation) (p Poller, err error) {
	m, there, err := bus.Last(ctx, r.Conn, stream, list.Subject(messages.Marked, ""))
	if err != nil || !there {
		return p, err
	}
	var body messages.Watermark
	if err := messages.DecodeEvent(m.Data, &body); err != nil {
		return p, err
	}
	return Poller{Watermark: optional(body.CompleteThrough.Time), Marked: optional(m.Time)}, nil
}

func (r Reader) storage(ctx context.Context) (Storage, error) {
	info, err := r.JS.AccountInfo(ctx)
	if err != nil {
		return Storage{}, fmt.Errorf("nats: account: %w", err)
	}
	return Storage{Bytes: info.Store, Limit: info.Limits.MaxStore}, nil
}

func (r Reader) stream(ctx context.Context, name string) (Stream, error) {
	s, err := r.JS.Stream(ctx, name)
	if err != nil {
		return Stream{}, fmt.Errorf("stream %s: %w", name, err)
	}
	return streamFrom(s.CachedInfo()), nil
}

func streamFrom(info *jetstream.StreamInfo) Stream {
	return Stream{Name: info.Config.Name, Messages: info.State.Msgs, Bytes: info.State.Bytes, MaxBytes: max(info.Config.MaxBytes, -1),
		Replicas: info.Config.Replicas, Current: bus.CurrentReplicas(info), Created: messages.Time{Time: info.Created}}
}

// From when on something is wrong, as the shipped alerts have it.
const (
	longWait = 15 * time.Minute // that nobody took
	longLag  = 5 * time.Minute  // of the poller of the sending log
	listLag  = 10 * time.Minute // of that of transactions
	markLag  = 2 * time.Hour    // of its watermark, where none answers: an idle one stores it once an hour
	fullPart = 0.8              // of a limit
)

// Problems are what is wrong, the most pressing first.
func Problems(s Status) []Problem {
	list := []Problem{}
	add := func(where, format string, args ...any) {
		list = append(list, Problem{where, fmt.Sprintf(format, args...)})
	}
	now := s.At.Time
	seen := map[string]bool{}
	for _, p := range s.Programs {
		for _, h := range p.Holds {
			if text := string(h.Operation) + h.Why; !seen[text] { // its replicas say the same
				seen[text] = true
				add("upstream", "%s is held for %s: %s", h.Operation, Span(now.Sub(h.Since.Time)), h.Why)
			}
		}
	}
	for _, name := range bus.MissingPrograms(s.Programs) {
		add("program", "no %s answers: does one run?", name)
	}
	for _, p := range s.Programs {
		for _, fault := range p.Faults {
			add("program", "%s on %s: %s", p.Program, p.Host, fault)
		}
	}
	for _, q := range s.Queues {
		if q.PausedUntil != nil {
			add("queue", "%s is paused until %s%s", q.Operation, q.PausedUntil.In(now.Location()).Format(time.DateTime), q.Pause)
		}
		if q.FirstFree != nil && now.Sub(q.FirstFree.Time) > longWait {
			add("queue", "%s: %d wait that nobody took, the oldest for %s", q.Operation, q.Untaken, Span(now.Sub(q.FirstFree.Time)))
		}
	}
	if read := s.Poller.ReadThrough; read != nil && now.Sub(read.Time) > longLag {
		add("poller", "the sending log is read up to %s ago", Span(now.Sub(read.Time)))
	}
	if t := s.Transactions; t != nil {
		switch {
		case t.ReadThrough != nil && now.Sub(t.ReadThrough.Time) > listLag:
			add("poller", "the transaction list is read up to %s ago", Span(now.Sub(t.ReadThrough.Time)))
		case !s.Answers(bus.TransactionPoller) && t.Marked != nil && now.Sub(t.Marked.Time) > markLag:
			add("program", "no transaction-poller answers, and none has read the list for %s: does one run?", Span(now.Sub(t.Marked.Time)))
		}
	}
	for _, q := range s.Queues {
		i := slices.IndexFunc(s.Streams, func(st Stream) bool { return st.Name == bus.EventsOf(q.Operation) })
		if i >= 0 && q.Oldest != nil && q.Oldest.Before(s.Streams[i].Created.Time) {
			add("nats", "%s was made at %s, after requests of %s that still wait: whether these were run before is not known to it", s.Streams[i].Name, s.Streams[i].Created.In(now.Location()).Format(time.DateTime), q.Operation)
		}
	}
	for _, st := range s.Streams {
		if st.MaxBytes > 0 && float64(st.Bytes) > fullPart*float64(st.MaxBytes) {
			add("nats", "%s has %d%% of its maximum size", st.Name, int(100*st.Bytes)/int(st.MaxBytes))
		}
		if st.Current < st.Replicas {
			add("nats", "%s has %d of %d replicas", st.Name, st.Current, st.Replicas)
		}
	}
	if s.Storage.Limit > 0 && float64(s.Storage.Bytes) > fullPart*float64(s.Storage.Limit) {
		add("nats", "its storage is %d%% full", int(100*s.Storage.Bytes)/int(s.Storage.Limit))
	}
	return list
}

// Says is the number of problems in words.
func (s Status) Says() string {
	switch n := len(s.Problems); n {
	case 0:
		return "nothing is wrong"
	case 1:
		return "1 problem"
	default:
		return fmt.Sprintf("%d problems", n)
	}
}

// Short is an operation as people write it: enroll, transactions, send, account.
func Short(op messages.Operation) string {
	_, short, _ := strings.Cut(string(op), ".")
	return short
}
