// Package sink stores the events of pollers in JetStream, and reads back what they need to know.
//
//	Lead ─► become the active publisher ─► Learn: read what was published up to there
//	Publish ─► store events, each fenced on that leadership, several pages at once
//	Kept ─► since when the stream has everything that was published
//
// Store is for any list; Deliveries, of the sending log, also reads the records of calls and the outcomes of requests.
//
//	store.go         Learn, Kept                     write.go   Publish, alone or in atomic batches
//	lead.go          who leads                       encode.go  messages of events
//	replay.go        reading a stream once
//	deliveries.go, calls.go, transactions.go         what the two lists add
//
// Whether NATS stored an event is decided in bus (bus.Writes); what an error of Publish means, in settle.
package sink

import (
	"context"
	"crypto/rand"
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

// Events says what the events of a list are.
type Events struct {
	Operation messages.Operation // of the list's watermarks; its stream has all the events
	// Leadership is the subject on which pollers become the active publisher. Every event is stored on condition that
	// the last message there is still the publisher's, whose sequence is its fencing token: once another poller has
	// written there, nothing of the former one is stored, however long it was on its way. So a poller that takes the
	// leadership and reads the stream up to its message knows everything that was ever published.
	//
	// A fence on the stream's last sequence would not do: in a chain of writes with predicted sequences, those behind a
	// refused one fit again as soon as others have written as many messages as were refused.
	Leadership string
	Filters    []string // subjects of the events that Learn returns
	Source     string   // ce-source
}

// Store keeps the events of one list, for one sweeper and its goroutine.
type Store struct {
	Events
	js      jetstream.JetStream
	events  bus.EventStore
	stream  string
	writer  string // names this store in its messages
	encoder encoder

	turn      uint64             // sequence of our message on Leadership; 0 means that another poller may be active
	token     uint64             // turn, once all before it was learned; 0 means that nothing may be published
	led       bool               // it has led, and no other poller was seen to have taken the leadership since
	answers   *nats.Subscription // to standbys; nil of one, and of one that resigned
	highest   *uint64            // sequence of our messages that is known to be stored
	atomic    bool               // the stream has replicas: events are stored in atomic batches
	published reader
	readers   []*reader // whose messages are read again with those of this stream
	made      time.Time // when the stream was, as far as is known
}

// Stored is what the headers of a stored event say.
type Stored struct {
	Subject string
	At      time.Time // when it was stored
	ID      string    // ce-id
	Note    string    // Errand-Recipient
}

func open(js jetstream.JetStream, p *bus.Publisher, e Events) *Store {
	stream := bus.EventsOf(e.Operation)
	s := &Store{Events: e, js: js, events: bus.EventStore{Publisher: p, Source: e.Source}, stream: stream,
		writer: rand.Text()[:13], highest: new(uint64),
		encoder: encoder{source: e.Source, limit: js.Conn().MaxPayload}, published: reader{stream: stream}}
	s.readers = []*reader{&s.published}
	return s
}

// Kept returns since when everything that was published is in the stream; zero means always. An unknown row that is older
// was published, and its event has aged out: without that limit the rows of the retention's last hours would be published
// again day after day, each a while after it was dropped.
//
// It is not the time of the oldest message: after a long absence of pollers, or a purge, that is the message by which one
// became active, and older rows have not been published yet.
//
// sweep.ErrReset: it is another stream than before, as when an older copy was restored.
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
		return last.Add(time.Minute), nil // everything aged out: what came since was not published, but clocks may differ
	}
	return oldest.Add(max(time.Hour, maxAge/60)), nil // a row's time is by another clock, and before its event's
}

// last returns the last message on a subject of the stream, a zero one when there is none.
func (s *Store) last(ctx context.Context, subject string) (history.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.Storage)
	defer cancel()
	return s.events.Last(ctx, s.Operation, subject)
}

// lastSequence is that of the stream. sweep.ErrReset: the stream lost some of what it had.
func (s *Store) lastSequence(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.Storage)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.stream)
	if err != nil {
		return 0, err
	}
	last := stream.CachedInfo().State.LastSeq
	if last < *s.highest || last+1 < s.published.next {
		return 0, s.reset()
	}
	return last, nil
}

// Learn returns the headers of the events in the stream, each only once: see sweep.Sink. It must not be called before all
// waits have ended. sweep.ErrReset: the stream lost some of what it had.
func (s *Store) Learn(ctx context.Context) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		complete, err := s.replay(ctx, yield)
		if err != nil {
			yield(Stored{}, fmt.Errorf("sink: read what was published: %w", err))
		}
		if err == nil && complete {
			s.token = s.turn
		}
	}
}

// reset lets everything be read again, since some of it may be gone, and returns the error that says so.
func (s *Store) reset() error {
	s.turn, s.token = 0, 0
	s.highest = new(uint64) // what is under way still raises the other one
	for _, r := range s.readers {
		r.next = 0
	}
	return fmt.Errorf("sink: %s: %w", s.stream, sweep.ErrReset)
}

// end asks a stream's leader for its last message on a subject: the last of the stream's state may have been removed.
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
