package act

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/oncall/inspect"
	"errand/internal/style"
	"errand/pkg/messages"
)

// Item is a dead letter and what is to be done about it.
type Item struct {
	RequestID string             `json:"request_id"`
	Operation messages.Operation `json:"operation"`
	Sequence  uint64             `json:"sequence"` // of the dead letter
	Class     inspect.Class      `json:"class"`
	State     messages.State     `json:"state,omitempty"` // of the request now; "" when its events are gone
	Reason    messages.Reason    `json:"reason,omitempty"`
	Says      string             `json:"says"`
	// Batches are the batches of a message that are sent, Unknown the ones of unknown fate: they are sent
	// where that is accepted.
	Batches []int `json:"batches,omitempty"`
	Unknown []int `json:"unknown_batches,omitempty"`
	// Evidence is what the sending log shows of these.
	Evidence *inspect.LogEvidence `json:"log_evidence,omitempty"`

	opening
}

// opening is what it takes to open the request again.
type opening struct {
	letter       inspect.DeadLetter
	last         uint64    // sequence of the event that reopened follows, or of reopened itself
	lastAt       time.Time // when that event was stored
	was          messages.PriorOutcome
	afterUnknown bool
	batchSize    int                  // how a message was cut into batches; 0 if nobody knows, or nothing was done
	fingerprint  string               // of the dead letter's contents
	uncertain    []messages.Unsettled // batches, as its outcome lists them
}

func (i Item) as(c inspect.Class, format string, args ...any) Item {
	i.Class, i.Says = c, fmt.Sprintf(format, args...)
	return i
}

// Batched is the message's batches in words; "" without batches.
func (i Item) Batched() string {
	said := ""
	if len(i.Batches) > 0 {
		said = style.Plural(len(i.Batches), "batch", "batches") + " not accepted"
	}
	if len(i.Unknown) > 0 {
		said = strings.TrimPrefix(said+", "+style.Plural(len(i.Unknown), "batch", "batches")+" of unknown fate", ", ")
	}
	return said
}

// PlanID names the dead letters of a plan, of which there is at least one: the first and last sequence, and a checksum of all.
func PlanID(items []Item) string {
	sequences := make([]uint64, len(items))
	for n, i := range items {
		sequences[n] = i.Sequence
	}
	slices.Sort(sequences)
	return fmt.Sprintf("%d-%d-%08x", sequences[0], sequences[len(sequences)-1], crc32.ChecksumIEEE(fmt.Append(nil, sequences)))
}

// maxLooked is the maximum number of messages of a plan that are looked for in the sending log.
const maxLooked = 20

// Plan classifies dead letters, newest first per request, and says which of them somebody has discarded. It changes nothing.
func (r Requests) Plan(ctx context.Context, letters []inspect.DeadLetter) ([]Item, error) {
	if err := SayDiscarded(ctx, r.Reader, letters); err != nil {
		return nil, err
	}
	items := make([]Item, 0, len(letters))
	reopened, waiting := map[messages.Operation]map[string]time.Time{}, map[messages.Operation]map[string]bool{}
	for _, letter := range letters {
		item, err := classify(ctx, r.Log, letter)
		if err != nil {
			return nil, err
		}
		if item.Class == inspect.Reopened {
			if reopened[item.Operation] == nil {
				reopened[item.Operation] = map[string]time.Time{}
			}
			reopened[item.Operation][item.RequestID] = item.lastAt
		}
		items = append(items, item)
	}
	for op, at := range reopened {
		var err error
		if waiting[op], err = r.Queues.Queued(ctx, op, at); err != nil {
			return nil, err
		}
	}
	looked, log := 0, inspect.Poller{}
	for i, item := range items {
		if item.Class == inspect.Twice && len(item.uncertain) > 0 && looked < maxLooked && r.Reader.Conn != nil { // a simulation has no log
			if looked++; looked == 1 {
				var err error
				if log, err = r.Reader.LogPoller(ctx); err != nil {
					return nil, err
				}
			}
			e, err := r.Reader.LogEvidence(ctx, item.RequestID, item.uncertain, log)
			if err != nil {
				return nil, err
			}
			if items[i].Evidence = e; e != nil {
				items[i].Says += "; " + e.Says()
			}
		}
		if item.Class == inspect.Reopened && waiting[item.Operation][item.RequestID] {
			items[i] = item.as(inspect.Underway, "it is reopened already, and waits in its queue")
		}
	}
	for i, letter := range letters {
		if letter.Discarded != "" {
			items[i].Says += "; " + letter.Discarded
		}
	}
	return items, nil
}

// maxDiscards is how many of the newest SayDiscarded looks at.
const maxDiscards = 1000

// SayDiscarded says of dead letters who discarded them, and why, as far as this person may read it. They may still
// be run, but a person is asked first.
func SayDiscarded(ctx context.Context, r inspect.Reader, letters []inspect.DeadLetter) error {
	if len(letters) == 0 || r.Conn == nil { // a simulation has no audit
		return nil
	}
	discards, err := Acts(ctx, r.Conn, Query{Verb: Discard, Limit: maxDiscards})
	if errors.Is(err, bus.ErrNoStream) { // or this person may not read it
		err = nil
	}
	for i, l := range letters {
		ending := bus.EndingOf(l.Operation, l.RequestID, l.Event.Message.Header)
		for _, d := range discards {
			same := d.DeadLetter == l.Sequence || ending > 0 && d.Ending == ending // a repeat left l since
			if d.discards() && same && d.Target == l.RequestID && d.Operation == l.Operation {
				letters[i].Discarded = d.Actor + " discarded it: " + d.Why
				break
			}
		}
	}
	return err
}

// Letters returns the newest dead letter of each request: of the ids and sequences that are named, or else of a query's.
func (r Requests) Letters(ctx context.Context, names []string, q inspect.Query) (letters []inspect.DeadLetter, err error) {
	if len(names) == 0 {
		letters, err = r.Reader.DeadLetters(ctx, q)
	}
	for _, name := range names {
		found, err := r.Reader.DeadLettersOf(ctx, name)
		if err != nil {
			return nil, err
		}
		letters = append(letters, found...)
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(letters, func(d inspect.DeadLetter) bool {
		key := string(d.Operation) + " " + d.RequestID
		before := seen[key]
		seen[key] = true
		return before
	}), err
}

func classify(ctx context.Context, log history.Log, letter inspect.DeadLetter) (Item, error) {
	op, id := letter.Operation, letter.RequestID
	item := Item{RequestID: id, Operation: op, Sequence: letter.Sequence, Reason: letter.Reason,
		opening: opening{letter: letter, fingerprint: fingerprintOf(op, letter.Event.Message.Data)}}
	if bus.QueueOf(op) == (bus.Queue{}) || !inspect.IsID(id) {
		return item.as(inspect.CannotRun, "it names no request"), nil
	}
	last, err := log.Leader(ctx, op, op.Filter(id))
	if err != nil {
		return item, err
	}
	if last.Sequence == 0 {
		return item.expired(), nil
	}
	item.State, item.last, item.lastAt = messages.StateOf(last.Subject), last.Sequence, last.At
	f, err := history.ReadFacts(last.Body)
	if err != nil {
		return item.as(inspect.CannotRun, "its last event cannot be read"), nil
	}
	switch item.Reason = f.Reason; {
	case item.State == messages.Reopened:
		return item.reopened(f), nil
	case item.State.Final(op) && f.Fingerprint != "" && f.Fingerprint != item.fingerprint:
		return item.as(inspect.Superseded, "other contents have its id now: it was corrected"), nil
	case item.State.Final(op):
		return item.ended(ctx, log, last, f)
	}
	item.Class, item.Says = inspect.ClassOf(op, item.State, f)
	return item, nil
}

func (i Item) expired() Item {
	i.was, i.afterUnknown = messages.PriorOutcome{State: messages.Failed, Reason: i.Reason}, true
	switch i.Reason {
	case messages.ReasonNoAnswer, messages.ReasonBadAnswer, messages.ReasonInterrupted, messages.ReasonLinkLost:
		i.was.State = messages.Uncertain
	}
	if i.Operation == messages.Send {
		i.Unknown, i.batchSize = []int{1}, messages.MaxBatch
		request, _, _ := messages.Decode[messages.SendRequest](i.letter.Event.Message.Data) // what cannot be read is refused again
		if request.ToObject != nil || len(slices.Collect(request.Addresses())) > 1 {
			return i.as(inspect.CannotRun,
				"its events have expired, and it may have been of several batches: publish to whom it is still meant for, under another id")
		}
	}
	i.Class, i.Says = inspect.ClassOf(i.Operation, "", history.Facts{})
	return i
}

func (i Item) reopened(f history.Facts) Item {
	switch {
	case f.Fingerprint != i.fingerprint:
		return i.as(inspect.Superseded, "it was reopened with other contents: it was corrected")
	case f.By == messages.ByCorrection:
		return i.as(inspect.Underway, "it was corrected by these contents, and waits")
	}
	return i.as(inspect.Reopened, "reopened by %s (%s) and not published since", f.By, f.Why)
}

func (i Item) ended(ctx context.Context, log history.Log, last history.Entry, f history.Facts) (Item, error) {
	outcome := last
	if i.State == messages.Resolved {
		var err error
		if outcome, err = log.Leader(ctx, i.Operation, i.Operation.Subject(messages.Uncertain, i.RequestID)); err != nil {
			return i, err
		}
		uncertain, _ := history.ReadFacts(outcome.Body) // expired, it has no reason
		i.Reason, f.Reason = uncertain.Reason, uncertain.Reason
	}
	i.was = messages.PriorOutcome{State: messages.StateOf(outcome.Subject), Reason: i.Reason}
	if i.was.State == "" {
		i.was.State = messages.Uncertain
	}
	i.afterUnknown = f.AfterUnknown || i.was.State == messages.Uncertain
	left := i.letter.Event.Message.Header.Get(nats.MsgIdHdr) // names the event that it was left for
	if outcome.Sequence > 0 && left != bus.DeadLetterID(i.Operation, i.RequestID, outcome.Sequence) {
		return i.as(inspect.Superseded, "it ended again since: see errand show %s", inspect.Argument(i.RequestID)), nil
	}
	i.Class, i.Says = inspect.ClassOf(i.Operation, i.State, f)
	named, _ := messages.Check(i.Operation, i.letter.Event.Message.Data)
	switch {
	case f.Reason == messages.ReasonConflict && named.RequestID == "": // nobody looks up what that one did
		return i.as(inspect.Twice, "another request has the id that it was published with, %s: it may ask for what that one did",
			f.ConflictsWith), nil
	case i.Operation == messages.Send && (i.Class == inspect.Safe || i.Class == inspect.Twice):
		return i.batched(ctx, log, outcome, last)
	}
	return i, nil
}

// fingerprintOf is the fingerprint of a message's contents, as the programs make it.
func fingerprintOf(op messages.Operation, data []byte) string {
	meta, _ := messages.Check(op, data) // what is invalid has a fingerprint, too
	return meta.FingerprintOf(data)
}
