package inspect

import (
	"context"
	"encoding/json"
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
	// Transactions is how far the transaction list is published; nil when no poller of it ever ran.
	Transactions *Poller  `json:"transaction_poller,omitempty"`
	Streams      []Stream `json:"streams"`
	Storage      Storage  `json:"storage"`

	due [2]Queue // what of the schedules is not in its queue though its time has come
}

// Outcome is how many requests of an operation came into a state.
type Outcome struct {
	Operation messages.Operation `json:"operation"`
	State     messages.State     `json:"state"`
	Count     uint64             `json:"count"`

	Still             uint64 `json:"-"` // of Count, whose last event it is; of up to fewUncertain
	Recent            uint64 `json:"-"` // in recentWindow
	Cancelled         uint64 `json:"-"` // of Count; 0 when fewer than failedMost failed
	RecentlyCancelled uint64 `json:"-"` // of Recent
}

// Poller is how far a list is published: the sending log, or the transaction list.
type Poller struct {
	ReadThrough *messages.Time `json:"read_through,omitempty"` // as pollers say; nil when none answers or has read anything
	Watermark   *messages.Time `json:"watermark,omitempty"`    // as it published last
	Marked      *messages.Time `json:"marked,omitempty"`       // when it did
}

// Stream is how full a stream is.
type Stream struct {
	Name     string `json:"name"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	MaxBytes int64  `json:"max_bytes"` // -1 means no limit
	Replicas int    `json:"replicas"`
	Current  int    `json:"replicas_current"`
	// Created is when it was made, or restored from a backup: what was stored before is
	// what the backup had.
	Created messages.Time `json:"created"`
}

// Storage is what the account has on the servers' disks.
type Storage struct {
	Bytes uint64 `json:"bytes"`
	Limit int64  `json:"limit"` // -1 means no limit
}

// How far back outcomes are counted: shown, and as the alert for failures does.
const (
	window       = time.Hour
	recentWindow = 15 * time.Minute
)

// Status asks for everything at once.
func (r Reader) Status(ctx context.Context, now time.Time) (Status, error) {
	s := Status{At: messages.Time{Time: now}}
	questions := []func() error{
		func() (err error) { s.Programs, err = bus.AskStatus(ctx, r.Conn); return err },
		func() (err error) { s.Outcomes, err = r.outcomes(ctx, now); return err },
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
		func() (err error) { s.due[0], err = r.due(ctx, messages.Enroll, bus.EnrollSchedules); return err },
		func() (err error) { s.due[1], err = r.due(ctx, messages.Send, bus.SendSchedules); return err },
		func() (err error) { s.Storage, err = r.storage(ctx); return err },
		func() (err error) { s.Queues, err = r.Queues(ctx, now, Operations...); return err },
	}
	configs := slices.DeleteFunc(bus.Streams(bus.Limits{}), func(c jetstream.StreamConfig) bool {
		return c.Discard == jetstream.DiscardOld || c.Name == bus.Keys // full as a rule
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
	s.Poller.readBy(s.Programs, bus.LogPoller)
	if s.Transactions != nil {
		s.Transactions.readBy(s.Programs, bus.TransactionPoller)
	}
	s.Problems = Problems(s)
	return s, nil
}

// Answers reports whether at least one replica of a program answers.
func (s Status) Answers(program string) bool {
	return slices.ContainsFunc(s.Programs, func(p bus.ProgramStatus) bool { return p.Program == program })
}

// Leads reports whether a replica of a poller says that it leads.
func (s Status) Leads(poller string) bool {
	return slices.ContainsFunc(s.Programs, func(p bus.ProgramStatus) bool { return p.Program == poller && !p.Standby })
}

// readBy notes how far the replicas of a poller have read: the furthest counts.
func (p *Poller) readBy(programs []bus.ProgramStatus, name string) {
	for _, of := range programs {
		if of.Program == name && of.ReadThrough != nil && (p.ReadThrough == nil || of.ReadThrough.After(p.ReadThrough.Time)) {
			p.ReadThrough = of.ReadThrough
		}
	}
}

// Read is when the list was last read, as far as is known: as a poller says, or when the last watermark was stored.
func (p *Poller) Read() *messages.Time {
	if p.ReadThrough != nil && (p.Marked == nil || p.ReadThrough.After(p.Marked.Time)) {
		return p.ReadThrough
	}
	return p.Marked
}

// fewUncertain is how many are looked at one by one, whether they still are. More is a fault of the service, which shows anyway.
const fewUncertain = 1000

func (r Reader) outcomes(ctx context.Context, now time.Time) ([]Outcome, error) {
	var list []Outcome
	for _, op := range Operations {
		for _, state := range append([]messages.State{messages.Deferred}, finals(op)...) {
			list = append(list, Outcome{Operation: op, State: state})
		}
	}
	return list, each(len(list), func(i int) (err error) {
		o := &list[i]
		stream, filter := bus.EventsOf(o.Operation), o.Operation.Subject(o.State, "*")
		if o.Count, _, err = bus.Count(ctx, r.Conn, stream, filter, now.Add(-window)); err == nil && o.Count > 0 {
			o.Recent, _, err = bus.Count(ctx, r.Conn, stream, filter, now.Add(-recentWindow))
		}
		if o.Still = o.Count; err == nil && o.State == messages.Uncertain && o.Count > 0 && o.Count <= fewUncertain {
			still, err := r.List(ctx, Query{Operations: []messages.Operation{o.Operation}, States: []messages.State{o.State},
				Since: now.Add(-window)}, now)
			o.Still = uint64(len(still))
			return err
		}
		if err == nil && o.State == messages.Failed && o.Count >= failedMost { // fewer are not a problem, cancelled or not
			err = r.cancelled(ctx, o, now)
		}
		return err
	})
}

// cancelled counts what people cancelled, by the records in AUDIT of how it went.
func (r Reader) cancelled(ctx context.Context, o *Outcome, now time.Time) error {
	acts := bus.Scan{Stream: bus.Audit, Filter: "audit.cancel.*.*", Since: now.Add(-window)}
	return acts.Each(ctx, r.Conn, func(m bus.Message) bool {
		var record struct {
			Operation messages.Operation `json:"operation"`
			Result    string             `json:"result"`
		}
		if json.Unmarshal(m.Data, &record) == nil && record.Operation == o.Operation && record.Result == "done" {
			o.Cancelled++
			if now.Sub(m.Time) < recentWindow {
				o.RecentlyCancelled++
			}
		}
		return true
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

func (r Reader) due(ctx context.Context, op messages.Operation, of bus.Queue) (q Queue, err error) {
	q.Operation = op
	if q.Untaken, q.FirstFree, err = r.from(ctx, of, 1); hidden(err) { // a lost stream is its program's fault
		err = nil
	}
	return q, err
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
	info := s.CachedInfo()
	return Stream{Name: info.Config.Name, Messages: info.State.Msgs, Bytes: info.State.Bytes, MaxBytes: max(info.Config.MaxBytes, -1),
		Replicas: info.Config.Replicas, Current: bus.CurrentReplicas(info.Cluster), Created: messages.Time{Time: info.Created}}, nil
}

// Short is an operation as people write it: enroll, transactions, send, account.
func Short(op messages.Operation) string {
	_, short, _ := strings.Cut(string(op), ".")
	return short
}
