package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/history"
	"errand/internal/wire"
	"errand/pkg/messages"
)

// index is what the server knows of a stream without reading it.
type index struct {
	Created time.Time
	State   struct {
		First    uint64            `json:"first_seq"`
		Last     uint64            `json:"last_seq"`
		Begins   time.Time         `json:"first_ts"`
		Subjects map[string]uint64 `json:"subjects"` // stored up to Last or later: how many messages each has
	}
	Total int
	Error *jetstream.APIError
}

// askIndex asks a stream's leader for its subjects under a filter, "" for none. It costs the server what they are, however
// much is stored: a question for the next message under a wildcard reads the stream, and writes wait as long.
func askIndex(ctx context.Context, nc *nats.Conn, stream, filter string) (all index, err error) {
	for what := map[string]any{"subjects_filter": filter}; ; what["offset"] = len(all.State.Subjects) {
		m, err := ask(ctx, nc, api(nc, "STREAM.INFO."+stream), what)
		var part index
		if err == nil {
			err = json.Unmarshal(m.Data, &part)
		}
		if err == nil && part.Error != nil {
			err = part.Error
		}
		if err != nil {
			return all, fmt.Errorf("nats: ask for the subjects of %s: %w", stream, noStream(stream, err))
		}
		if all.State.Subjects == nil {
			all = part
		}
		got := len(part.State.Subjects)
		maps.Copy(all.State.Subjects, part.State.Subjects)
		if got == 0 || len(all.State.Subjects) >= part.Total {
			return all, nil
		}
	}
}

// Rare yields the events of an operation in a state that few requests come to: of each request the last one, one at a time.
// It asks the server's index of subjects for them.
type Rare struct {
	Store     EventStore
	Operation messages.Operation
	State     messages.State

	known map[string]place // by subject
	end   history.Entry    // until where all are known
}

// place is where the last message of a subject is.
type place struct {
	count    uint64 // of messages with the subject
	sequence uint64
	at       time.Time
}

// Next returns the first event at or behind a sequence of the events stream or, where that is 0, a time; see mandates.FollowUp.
func (r *Rare) Next(ctx context.Context, from uint64, since time.Time) (history.Entry, error) {
	nc, learned := r.Store.Publisher.nc, false
	return insist(ctx, nc, r.Operation, func() (history.Entry, error) {
		for {
			subject, p := "", place{}
			for s, other := range r.known {
				if (from > 0 && other.sequence >= from || from == 0 && !other.at.Before(since)) && (subject == "" || other.sequence < p.sequence) {
					subject, p = s, other
				}
			}
			switch {
			case subject == "" && learned:
				return r.end, nil
			case subject == "": // others come later than those that are known
				if err := r.learn(ctx); err != nil {
					return history.Entry{}, err
				}
				learned = true
			default:
				got, err := anywhere(ctx, nc, EventsOf(r.Operation), map[string]any{"seq": p.sequence})
				if err != nil || got != nil && got.Subject == subject {
					return entryIn(got), err
				}
				delete(r.known, subject) // it was removed, or the stream was made again
			}
		}
	})
}

// learn asks where the last message of each subject is, unless that is known.
func (r *Rare) learn(ctx context.Context) error {
	nc, stream := r.Store.Publisher.nc, EventsOf(r.Operation)
	has, err := askIndex(ctx, nc, stream, r.Operation.Subject(r.State, "*"))
	if err != nil {
		return err
	}
	known := make(map[string]place, len(has.State.Subjects))
	for subject, count := range has.State.Subjects {
		if p := r.known[subject]; p.count == count {
			known[subject] = p
			continue
		}
		got, err := fromLeader(ctx, nc, stream, lastOf(subject))
		if err != nil {
			return err
		}
		if got != nil && got.Sequence <= has.State.Last { // there may be others before a later one
			known[subject] = place{count, got.Sequence, got.Time}
		}
	}
	r.known, r.end = known, history.Entry{Sequence: has.State.Last, At: has.Created}
	return nil
}

// Open returns the first event of an operation in a state at or behind a sequence of the events stream or, where that is 0, a
// time; see mandates.FollowUp. Many requests must come to that state: the server reads all that lies before the event.
func (s EventStore) Open(ctx context.Context, op messages.Operation, state messages.State, from uint64, since time.Time) (
	history.Entry, error,
) {
	nc, stream, filter := s.Publisher.nc, EventsOf(op), op.Subject(state, "*")
	return insist(ctx, nc, op, func() (history.Entry, error) {
		has, err := askIndex(ctx, nc, stream, "")
		if err != nil {
			return history.Entry{}, err
		}
		first, none := has.State.First, history.Entry{Sequence: has.State.Last, At: has.Created}
		what := map[string]any{"next_by_subj": filter, "seq": from}
		switch {
		case from > has.State.Last || has.State.Last == 0:
			return none, nil
		case from == 0 && since.After(has.State.Begins):
			delete(what, "seq")
			what["start_time"] = since.UTC()
		case from <= first: // from the first message on, the server would go through all subjects
			got, err := fromLeader(ctx, nc, stream, map[string]any{"seq": first})
			if err != nil || got != nil && wire.MatchSubject(filter, got.Subject) {
				return entryIn(got), err
			}
			what["seq"] = first + 1
		}
		got, err := fromLeader(ctx, nc, stream, what)
		if err != nil || got == nil {
			return none, err
		}
		return entryIn(got), nil
	})
}
