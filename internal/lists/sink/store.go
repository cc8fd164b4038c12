// Package sink stores the events of pollers in JetStream, and reads back what they need to
// know.
//
//	Learn ─► become the active publisher ─► read what was published up to there
//	Publish ─► store events, each fenced on that leadership, several pages at once
//	Kept ─► since when the stream has all that was published
//
// A Store is that of any list; Deliveries is that of the sending log, which reads the records
// of calls and the outcomes of requests too.
package sink

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/lists/sweep"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// Events are those of one list.
type Events struct {
	Operation messages.Operation // whose stream has them, and that its watermarks are of
	// Leadership is the subject on which pollers become the active publisher. Every event is
	// stored on condition that the last message there is still the publisher's own, whose
	// sequence is its fencing token: from the moment another poller has written there nothing
	// of the former one is stored any more, however long it was on its way. So whoever takes
	// the leadership and then reads the stream up to its own message knows all that was ever
	// published.
	//
	// A fence on the stream's last sequence would not do: of a chain of writes with predicted
	// sequences, those behind a refused one fit again as soon as others have written as many
	// messages as were refused.
	Leadership string
	Filters    []string // subjects of those that Learn gives
	Source     string   // ce-source
	// Identify gives the ce-id of an event and, if it has one, what the header
	// Errand-Recipient says; "": it is none of this list.
	Identify func(messages.Event) (id, note string)
}

// Store keeps the events of one list, for one sweeper and its goroutine.
type Store struct {
	Events
	js      jetstream.JetStream
	events  bus.EventStore
	stream  string
	writer  string // names this store, in what it writes
	encoder encoder

	token     uint64  // sequence of our message on Leadership; 0 means that another poller may be active
	highest   *uint64 // sequence of our messages that is known to be stored
	atomic    bool    // the stream has replicas: events are stored in atomic batches
	published reader
	readers   []*reader // whose messages are read again with those of this stream
	made      time.Time // when the stream was, as far as is known
}

// Stored is the headers of an event that was stored.
type Stored struct {
	Subject string
	At      time.Time // when it was stored
	ID      string    // ce-id
	Note    string    // Errand-Recipient
}

// open makes a store over the connection that js and p share; it ends with it.
func open(js jetstream.JetStream, p *bus.Publisher, e Events) *Store {
	stream := bus.EventsOf(e.Operation)
	s := &Store{Events: e, js: js, events: bus.EventStore{Publisher: p, Source: e.Source}, stream: stream, writer: rand.Text()[:13], highest: new(uint64),
		encoder: encoder{source: e.Source, limit: js.Conn().MaxPayload, identify: e.Identify}, published: reader{stream: stream}}
	s.readers = []*reader{&s.published}
	return s
}

// Kept gives since when everything that was published is in the stream; zero: since ever.
// A row that is older and not known was published, and its event has aged out: without
// that limit the rows of the last hours of the retention would be published again, day
// after day, each a while after it was dropped.
//
// It is not the time of the oldest message: after a long absence of pollers, or a purge,
// that is the message by which one of them became active, and rows older than it have
// not been published yet.
//
// sweep.ErrReset: the stream is another one than before, as where an older copy of it was restored.
func (s *Store) Kept(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.Storage)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.stream)
	if err != nil {
		return time.Time{}, fmt.Errorf("sink: read since when events are kept: %w", err)
	}
	info := stream.CachedInfo()
	state, maxAge, again := info.State, info.Config.MaxAge, !s.made.IsZero() && !info.Created.Equal(s.made)
	if s.made = info.Created; again {
		return time.Time{}, s.reset()
	}
	if maxAge == 0 || state.LastSeq == 0 || state.Msgs > 0 && state.FirstSeq <= 1 {
		return time.Time{}, nil
	}
	oldest := time.Now().Add(-maxAge)
	if last := state.LastTime; state.Msgs == 0 && !last.IsZero() && last.Before(oldest) {
		return last.Add(time.Minute), nil // all has aged out: what came since was not published, but clocks may differ
	}
	return oldest.Add(max(time.Hour, maxAge/60)), nil // a row's time is by another clock, and before its event's
}

// last gives the last message on a subject of the stream; a zero one when there is none.
func (s *Store) last(ctx context.Context, subject string) (history.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.Storage)
	defer cancel()
	return s.events.Last(ctx, s.Operation, subject)
}

// Learn takes the leadership and gives the events in the stream up to there, headers
// only: the first time all of them, then those that it did not give before. It must not
// be called before all waits have ended. sweep.ErrReset: the stream has not all that it had.
func (s *Store) Learn(ctx context.Context) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		token, err := s.lead(ctx)
		if err != nil {
			yield(Stored{}, err)
			return
		}
		older := token <= *s.highest
		if s.highest = &token; older || token < s.published.next {
			yield(Stored{}, s.reset())
			return
		}
		complete, err := s.replay(ctx, token, yield)
		if err != nil {
			yield(Stored{}, fmt.Errorf("sink: read what was published: %w", err))
		}
		if err == nil && complete {
			s.token = token
		}
	}
}

// reset has everything read again that was read, and says so: it may be there no more.
func (s *Store) reset() error {
	s.token = 0
	s.highest = new(uint64) // what is under way still raises the other one
	for _, r := range s.readers {
		r.next = 0
	}
	return fmt.Errorf("sink: %s: %w", s.stream, sweep.ErrReset)
}

// lead writes a message on Leadership and gives its sequence. Whoever was active cannot
// store anything after it, nor can an earlier write of ours that is still on its way.
func (s *Store) lead(ctx context.Context) (uint64, error) {
	s.token = 0
	body, _ := json.Marshal(map[string]string{"writer": s.writer}) // texts always encode
	for try := 1; ; try++ {
		last, err := s.last(ctx, s.Leadership)
		if err != nil {
			return 0, err
		}
		m := &nats.Msg{Subject: s.Leadership, Data: body, Header: nats.Header{"content-type": {"application/json"}}}
		bus.Fence(m.Header, s.Leadership, last.Sequence)
		a, err := s.events.Publisher.Publish(ctx, m)
		if err == nil {
			return a.Sequence, nil
		}
		if bus.IsFinal(err) || try == leadTries || !retry.Pause(ctx, time.Duration(try-1)*retry.LeadStep) {
			return 0, fmt.Errorf("sink: become the active publisher: %w", err)
		}
	}
}

const leadTries = 10

// end asks the leader of a stream for its last message on a subject. What the stream's
// state calls its last may have been removed: who waited for that would wait until there
// is another.
func (s *Store) end(ctx context.Context, stream, filter string) (bus.Message, error) {
	for try := 1; ; try++ {
		last, err := bus.LastOfLeader(ctx, s.js.Conn(), stream, filter)
		if err == nil || try == lastTries || !retry.Pause(ctx, time.Duration(try)*retry.PlaceStep) {
			return last, err
		}
	}
}

// lastTries is how often a stream's end is asked for before that is an error.
const lastTries = 5
