// Package sink stores the events of pollers in JetStream, and reads back what they need to know.
//
//	Lead ─► become the active publisher ─► Learn: read what was published up to there
//	Publish ─► store events, each fenced on that leadership
//	Kept ─► since when the stream has everything that was published
//
//	store.go   the two lists, Kept, Mark, and Learn and Requests, which read a stream once
//	write.go   who leads; Publish, alone or in atomic batches
//
// Whether NATS stored an event is decided in bus (bus.Writes); what an error of Publish means, in settle.
package sink

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/lists"
	"errand/internal/lists/sweep"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// List says what a store keeps, and what it reads.
type List struct {
	Operation messages.Operation // of the watermarks; its stream has all the events
	Events    []string           // subjects of the events
	Requests  bus.Replay         // of the events about requests
}

// The lists.
var (
	SendingLog      = List{messages.Log, []string{messages.Delivery.Subject("*", "*")}, bus.Replay{Operation: messages.Send}}
	TransactionList = List{messages.Transactions, []string{messages.Application.Subject("*", "*"), messages.Deduction.Subject("*", "*")},
		bus.Replay{Operation: messages.Enroll, Filters: []string{messages.Enroll.Subject(messages.Started, "*"),
			messages.Enroll.Subject(messages.Failed, "*"), messages.Enroll.Subject(messages.Resolved, "*")}}}
)

// Store keeps the events of one list, for one sweeper and its goroutine.
type Store struct {
	operation messages.Operation // of the watermarks
	js        jetstream.JetStream
	events    bus.EventStore
	stream    string
	writer    string   // names this store in its messages
	message   nats.Msg // that was sent last

	// Every event is stored on condition that the last message on the subject of turns is still the publisher's, whose sequence is
	// its fencing token. So a poller that writes there and reads the stream up to its message knows all that was ever published.
	turns   string
	turn    uint64             // sequence of our message there; 0 means that another poller may be active
	token   uint64             // turn, once all before it was learned; 0 means that nothing may be published
	leader  string             // the subject on which a standby asks whether anybody leads; nothing of it is stored
	answers *nats.Subscription // to standbys; nil of one, and of one that resigned

	// ReadSince is when the last complete sweep began, in nanoseconds since 1970; 0 before the first. A leader answers standbys
	// with it, and these note it, so that one of them knows how far the list was read when the leader is gone.
	ReadSince *atomic.Int64

	highest   *uint64    // sequence of our messages that is known to be stored
	marked    uint64     // sequence of the last watermark, as far as is known
	atomic    bool       // the stream has replicas: events are stored in atomic batches
	published bus.Replay // of the list's events
	requests  bus.Replay
	made      time.Time // when the stream was, as far as is known
}

// New makes a store over the connection that js and p share; source is the ce-source of the events.
func New(js jetstream.JetStream, p *bus.Publisher, source string, of List) *Store {
	turns := string(of.Operation) + ".turn"
	return &Store{operation: of.Operation, turns: turns, leader: "errand.leader." + string(of.Operation), js: js,
		stream: bus.EventsOf(of.Operation), events: bus.EventStore{Publisher: p, Source: source}, writer: rand.Text()[:13],
		ReadSince: new(atomic.Int64), highest: new(uint64), message: nats.Msg{Header: nats.Header{}}, requests: of.Requests,
		published: bus.Replay{Operation: of.Operation, Filters: append(slices.Clone(of.Events), turns), HeadersOnly: true}}
}

// Kept returns since when everything that was published is in the stream; zero means always. An unknown row that is older
// was published, and its event has aged out.
//
// It is the age that messages may have, or the time of the oldest message: they may have had to be younger before. But after
// a long absence of pollers, or a purge, that may be the message by which one became active: what was made after the last
// mark has not been published yet.
//
// sweep.ErrReset: it is another stream than before, as when an older copy was restored.
func (s *Store) Kept(ctx context.Context) (time.Time, error) {
	info, err := s.info(ctx)
	if err != nil {
		return time.Time{}, err
	}
	state, maxAge, again := info.State, info.Config.MaxAge, !s.made.IsZero() && !info.Created.Equal(s.made)
	if s.made = info.Created; again {
		return time.Time{}, s.reset()
	}
	m, err := s.LastMark(ctx)
	if err != nil || state.LastSeq == 0 || state.Msgs > 0 && state.FirstSeq <= 1 {
		return time.Time{}, err
	}
	oldest := time.Now().Add(-maxAge)
	if last := state.LastTime; maxAge > 0 && state.Msgs == 0 && !last.IsZero() && last.Before(oldest) {
		return last.Add(time.Minute), nil // everything aged out: what came since was not published, but clocks may differ
	}
	// A row's time is by another clock, and before its event's.
	since := slices.MinFunc([]time.Time{m.CompleteThrough, state.FirstTime.Add(time.Hour)}, time.Time.Compare)
	if maxAge > 0 {
		since = slices.MaxFunc([]time.Time{since, oldest.Add(max(time.Hour, maxAge/60))}, time.Time.Compare)
	}
	return since, nil
}

// info is what the stream's leader says of it.
func (s *Store) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.Storage)
	defer cancel()
	return bus.StreamInfo(ctx, s.js, s.stream)
}

// Reset lets everything be read again.
func (s *Store) Reset() { s.requests.Next, s.published.Next = 0, 0 }

// reset gives up the leadership, because published events may be gone, and returns the error that says so.
func (s *Store) reset() error {
	s.turn, s.token, s.marked = 0, 0, 0
	s.highest = new(uint64) // what is under way still raises the other one
	return fmt.Errorf("sink: %s: %w", s.stream, sweep.ErrReset)
}

// Mark stores how far the list was published, as a watermark, if the last one is still there. Errors: as for Publish.
func (s *Store) Mark(ctx context.Context, m sweep.Mark) error {
	_, err := s.LastMark(ctx)
	if err == nil {
		_, err = s.Publish(ctx, []messages.Event{{Operation: s.operation, State: messages.Marked, Body: watermarkOf(m)}})()
	}
	if err == nil {
		s.marked = *s.highest
	}
	return err
}

// LastMark returns what the last watermark says; a zero mark if there is none. sweep.ErrReset: a later one was there, in a stream to
// which others may have written more since than it has lost.
func (s *Store) LastMark(ctx context.Context) (sweep.Mark, error) {
	var w messages.Watermark
	e, err := s.end(ctx, s.operation, s.operation.Subject(messages.Marked, ""))
	switch {
	case err != nil, e.Sequence == 0: // or it has aged out
	case e.Sequence < s.marked:
		err = s.reset()
	default:
		s.marked, err = e.Sequence, messages.DecodeEvent(e.Body, &w)
	}
	return markOf(w), err
}

func watermarkOf(m sweep.Mark) *messages.Watermark {
	w := &messages.Watermark{Common: messages.Common{At: messages.Time{Time: m.At}}, CompleteThrough: messages.Time{Time: m.CompleteThrough},
		TotalRecord: m.Total, New: m.New, By: messages.ByWholeLog, Scanned: m.Scanned}
	if m.NewestFirst {
		w.By = messages.ByNewestFirst
	}
	w.Anchor, _ = binary.Append(nil, binary.BigEndian, m.Anchor) // numbers always encode
	if !m.Since.IsZero() {
		w.Since = &messages.Time{Time: m.Since}
	}
	return w
}

func markOf(w messages.Watermark) sweep.Mark {
	m := sweep.Mark{At: w.At.Time, CompleteThrough: w.CompleteThrough.Time, Since: cmp.Or(w.Since, &messages.Time{}).Time,
		Total: w.TotalRecord, New: w.New, Scanned: w.Scanned, NewestFirst: w.By == messages.ByNewestFirst}
	for key := range slices.Chunk(w.Anchor[:len(w.Anchor)/8*8], 8) {
		m.Anchor = append(m.Anchor, binary.BigEndian.Uint64(key))
	}
	return m
}

// Learn calls take with what the headers of the events say, once each: see lists.Store. It goes up to the turn or, of a standby, up
// to the last event. sweep.ErrReset: the stream lost some of what it had.
func (s *Store) Learn(ctx context.Context, take func(lists.Stored) error) error {
	last := s.turn
	if last == 0 {
		info, err := s.info(ctx)
		if err == nil && (info.State.LastSeq < *s.highest || info.State.LastSeq+1 < s.published.Next) {
			err = s.reset()
		}
		if err != nil {
			return err
		}
		last = info.State.LastSeq
	}
	err := s.published.UpTo(ctx, s.js, last, s.turn == 0, func(m bus.Message) error {
		if m.Subject == s.turns {
			return nil
		}
		return take(lists.Stored{Subject: messages.ParseSubject(m.Subject), At: m.Time, ID: m.Header.Get(eventID),
			Recipient: m.Header.Get(recipient)})
	})
	if err != nil {
		return fmt.Errorf("sink: read what was published: %w", err)
	}
	s.token = s.turn
	return nil
}

// Requests calls take with the unread events about requests, since a time: see lists.Store. It asks the stream's leader for the last.
func (s *Store) Requests(ctx context.Context, since time.Time, take func(history.Entry) error) error {
	r := &s.requests
	end, err := s.end(ctx, r.Operation, r.Filters...)
	if err != nil {
		return err
	}
	if end.Sequence+1 < r.Next && end.At.After(r.At) { // the stream was made again
		r.Next = 0
	}
	if r.Next == 0 {
		r.Since = since
	}
	return r.UpTo(ctx, s.js, end.Sequence, false, func(m bus.Message) error {
		return take(history.Entry{Subject: m.Subject, Sequence: m.Sequence, At: m.Time, Body: m.Data})
	})
}

// end is the last event under filters: the last of the stream's state may have been removed.
func (s *Store) end(ctx context.Context, op messages.Operation, filters ...string) (history.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.Storage)
	defer cancel()
	return s.events.Newest(ctx, op, filters...)
}

// Resolve stores what became of a request over its uncertain event, with its trace, attempts and lane. Another poller's is as good.
func (s *Store) Resolve(ctx context.Context, e messages.Event, over uint64) error {
	ctx, cancel := context.WithTimeout(ctx, retry.Storage)
	defer cancel()
	uncertain, err := s.events.At(ctx, e.Operation, over)
	if err == nil {
		was, _ := history.ReadFacts(uncertain.Body) // gone, it says nothing
		e.Body.Head().Attempt, e.Body.Head().Lane = was.Attempt, was.Lane
		_, err = s.events.Append(ctx, history.Record{Event: e, Last: over, Writer: s.writer, Trace: uncertain.Trace})
	}
	if errors.Is(err, history.ErrFenced) {
		return nil
	}
	return err
}
