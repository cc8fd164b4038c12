package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// DeadLetter is the message of a request that ended failed or uncertain.
type DeadLetter struct {
	Sequence  uint64             `json:"sequence"`
	Time      messages.Time      `json:"time"`
	RequestID string             `json:"request_id"`
	Operation messages.Operation `json:"operation"`
	Reason    messages.Reason    `json:"reason"`
	Message   string             `json:"message,omitempty"`
	Now       messages.State     `json:"now,omitempty"` // the state that the request is in
	Bytes     int                `json:"bytes"`
	Discarded string             `json:"discarded,omitempty"` // who left it as it is, and why; see act.SayDiscarded

	Event Event `json:"-"`
}

func deadLetterOf(m bus.Message) DeadLetter {
	return DeadLetter{Sequence: m.Sequence, Time: messages.Time{Time: m.Time}, RequestID: m.Header.Get(bus.HeaderRequestID),
		Operation: messages.ParseSubject(m.Subject).Operation, Reason: messages.Reason(m.Header.Get(bus.HeaderReason)),
		Message: m.Header.Get(bus.HeaderMessage), Bytes: len(m.Data), Event: EventOf(m)}
}

// DeadLetters returns the dead letters that a query asks for, the newest first, each with the state that its request
// is in now. The query's states do not count.
func (r Reader) DeadLetters(ctx context.Context, q Query) ([]DeadLetter, error) {
	var letters []DeadLetter
	for _, op := range operations(q.Operations) {
		scan := bus.Scan{Stream: bus.DeadLetters, Filter: bus.DeadOf(op), From: q.From, Since: q.Since}
		some, err := scan.ToNewest(ctx, r.Conn, q.limitOfScan())
		if err == nil && some {
			err = scan.Each(ctx, r.Conn, func(m bus.Message) bool {
				if q.Through > 0 && m.Sequence > q.Through {
					return false
				}
				if d := deadLetterOf(m); q.wantsReason(d.Reason) {
					letters = append(letters, d)
				}
				return true
			})
		}
		if err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(letters, func(a, b DeadLetter) int { return b.Time.Compare(a.Time.Time) })
	letters = letters[:min(len(letters), cmp.Or(q.Limit, len(letters)))]
	return letters, each(len(letters), func(i int) error {
		last, there, err := r.last(ctx, letters[i].Operation, letters[i].RequestID)
		if there {
			letters[i].Now = messages.StateOf(last.Subject)
		}
		return err
	})
}

// ErrNoDeadLetter means that no dead letter has that sequence or request.
var ErrNoDeadLetter = errors.New("there is no such dead letter: see `errand dead list`")

// BySequence begins a name that is a sequence: seq:17. Anything else is the id of a request.
const BySequence = "seq:"

// Name is the dead letter's in commands: a request may get another one.
func Name(sequence uint64) string { return BySequence + strconv.FormatUint(sequence, 10) }

// DeadLettersOf returns the dead letters of a request's last outcomes, the newest first, or the one with a sequence.
// Errors: ErrNoDeadLetter, or the connection's.
func (r Reader) DeadLettersOf(ctx context.Context, name string) (letters []DeadLetter, err error) {
	if number, is := strings.CutPrefix(name, BySequence); is {
		sequence, _ := strconv.ParseUint(number, 10, 64) // none has 0
		m, there, err := bus.At(ctx, r.Conn, bus.DeadLetters, "dead.>", sequence)
		switch {
		case err != nil:
			return nil, err
		case there:
			return []DeadLetter{deadLetterOf(m)}, nil
		}
	} else if letters, err = r.lettersOfRequest(ctx, name); err != nil || len(letters) > 0 {
		return letters, err
	}
	return nil, fmt.Errorf("%s: %w", name, ErrNoDeadLetter)
}

// lettersOfRequest returns the dead letters of a request's last outcomes, the newest first; of one without events, all.
func (r Reader) lettersOfRequest(ctx context.Context, name string) (letters []DeadLetter, err error) {
	gone := true // all its events, but for that it was reopened since
	for _, op := range Operations {
		last, there, err := r.last(ctx, op, name)
		if err != nil {
			return nil, err
		}
		if !there {
			continue
		}
		s := Story{RequestID: name, Operation: op}
		for _, state := range leavesOne {
			m, there, err := bus.Last(ctx, r.Conn, bus.EventsOf(op), op.Subject(state, name))
			if err != nil {
				return nil, err
			}
			if there {
				s.Events = append(s.Events, eventOf(m))
			}
		}
		found, err := r.deadOf(ctx, s)
		if err != nil {
			return nil, err
		}
		letters = append(letters, found...)
		gone = gone && len(found) == 0 && messages.StateOf(last.Subject) == messages.Reopened
	}
	if gone && IsID(name) {
		err = bus.Scan{Stream: bus.DeadLetters, Filter: "dead.>"}.Each(ctx, r.Conn, func(m bus.Message) bool {
			if d := deadLetterOf(m); d.RequestID == name && slices.Contains(Operations, d.Operation) {
				letters = append(letters, d)
			}
			return true
		})
	}
	slices.SortStableFunc(letters, func(a, b DeadLetter) int { return b.Time.Compare(a.Time.Time) })
	return letters, err
}

// leavesOne are the outcomes that leave a dead letter.
var leavesOne = []messages.State{messages.Failed, messages.Uncertain, messages.Partial}

// deadOf looks for the dead letters of a request: one is stored right after each of its
// outcomes that leave one, so that is where it looks; later where a program died between.
func (r Reader) deadOf(ctx context.Context, s Story) (letters []DeadLetter, err error) {
	for _, e := range s.Events {
		subject := messages.ParseSubject(e.Subject)
		if subject.Operation != s.Operation || !slices.Contains(leavesOne, subject.State) {
			continue
		}
		// Another server's clock may be behind.
		scan := bus.Scan{Stream: bus.DeadLetters, Filter: bus.DeadOf(s.Operation), Since: e.Time.Add(-time.Second), Page: 64}
		id := bus.DeadLetterID(s.Operation, s.RequestID, e.Sequence)
		err := scan.Each(ctx, r.Conn, func(m bus.Message) bool {
			if m.Header.Get(nats.MsgIdHdr) != id {
				return true
			}
			letters = append(letters, deadLetterOf(m))
			return false
		})
		if err != nil {
			return nil, err
		}
	}
	return letters, nil
}
