package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/style"
	"errand/pkg/messages"
)

// maxEvents is how many events of batches and of deliveries a story has; the counts are of all.
const maxEvents = 100

// Story is all that is known of one request of one operation.
type Story struct {
	RequestID string             `json:"request_id"`
	Operation messages.Operation `json:"operation,omitempty"`
	State     messages.State     `json:"state"` // NeverSeen: no event of it is kept, and no queue has it
	Says      string             `json:"says"`  // where it is, in a sentence
	Waits     *Open              `json:"waits,omitempty"`
	Events    []Event            `json:"events"` // of batches too, by time
	// More is how many events of batches, deliveries and mandates are left out.
	More uint64 `json:"more,omitempty"`
	// What came of it after its outcome.
	Deliveries map[string]int `json:"deliveries,omitempty"` // of a message: events by state
	Delivered  []Event        `json:"delivery_events,omitempty"`
	// Evidence is what the sending log shows of an uncertain message.
	Evidence *LogEvidence `json:"log_evidence,omitempty"`
	// Mandate is what the transaction list says of an enrollment's application and deductions,
	// and the callbacks that came, by time. Their bodies are without the payer's data.
	Mandate []Event      `json:"mandate_events,omitempty"`
	Dead    []DeadLetter `json:"dead_letters,omitempty"`

	Request []byte `json:"-"` // while it is in its queue
}

// noQueues is what a story says of a request without an outcome when the queues are hidden.
const noQueues = "this account does not see the queues"

// NeverSeen is the state of a request of which no event is kept and that no queue has.
const NeverSeen messages.State = "never_seen"

// Unknown reports that nothing is known of the request, not even what came of it.
func (s Story) Unknown() bool {
	return s.State == NeverSeen && len(s.Mandate)+len(s.Delivered)+len(s.Dead) == 0
}

// Stories returns what is known of a request id: one story for each operation that knows it, or one that says that
// none does.
func (r Reader) Stories(ctx context.Context, id string, now time.Time) ([]Story, error) {
	stories := make([]Story, len(Operations))
	err := eachSeen(len(Operations), func(i int) (err error) {
		stories[i], err = r.story(ctx, Operations[i], id, now)
		return err
	})
	if err != nil {
		return nil, err
	}
	says := "never seen: no queue has it, and no event of it is kept"
	stories = slices.DeleteFunc(stories, func(s Story) bool {
		if s.Unknown() && s.Says != "" {
			says = "never seen: no event of it is kept; " + s.Says
		}
		return s.Unknown()
	})
	if len(stories) == 0 {
		letters, err := r.lettersOfRequest(ctx, id)
		if err != nil && !hidden(err) {
			return nil, err
		}
		for _, d := range letters {
			if i := slices.IndexFunc(stories, func(s Story) bool { return s.Operation == d.Operation }); i >= 0 {
				stories[i].Dead = append(stories[i].Dead, d)
				continue
			}
			stories = append(stories, Story{RequestID: id, Operation: d.Operation, State: NeverSeen, Events: []Event{}, Dead: []DeadLetter{d},
				Says: "no event of it is kept; its dead letter is"})
		}
	}
	if len(stories) == 0 {
		stories = []Story{{RequestID: id, State: NeverSeen, Events: []Event{}, Says: says}}
	}
	return stories, nil
}

// errMoved says that a request went on while it was looked for.
var errMoved = errors.New("the request has a new event")

func (r Reader) story(ctx context.Context, op messages.Operation, id string, now time.Time) (Story, error) {
	s := Story{RequestID: id, Operation: op, State: NeverSeen, Events: []Event{}}
	filters := []string{op.Filter(id)}
	if op == messages.Send {
		filters = append(filters, messages.Batch.Filter(id+".*"))
	}
	for _, filter := range filters {
		if err := r.read(ctx, &s, bus.EventsOf(op), filter, &s.Events); err != nil {
			return s, err
		}
	}
	slices.SortStableFunc(s.Events, func(a, b Event) int { return cmp.Compare(a.Sequence, b.Sequence) })
	last, there, err := r.last(ctx, op, id)
	if err != nil {
		return s, err
	}
	if !there || !messages.StateOf(last.Subject).Final(op) {
		err := r.waiting(ctx, &s, last, there, now)
		if errors.Is(err, errMoved) {
			return r.story(ctx, op, id, now)
		}
		if err != nil {
			return s, err
		}
	}
	if op == messages.Enroll {
		if err := r.mandate(ctx, &s); err != nil {
			return s, err
		}
	}
	if there {
		s.State = messages.StateOf(last.Subject)
	}
	if op == messages.Send {
		if err := r.deliveries(ctx, &s, id); err != nil && !hidden(err) {
			return s, err
		}
	}
	if !there {
		if s.State == NeverSeen && !s.Unknown() {
			s.Says = "no event of the request itself is kept; this came of it"
		}
		return s, nil
	}
	if s.Says == "" {
		s.Says = EndedAs(s.State, last.Data) + ", " + style.Ago(now.Sub(last.Time))
	}
	if op == messages.Send {
		if err := r.evidence(ctx, &s, last); err != nil {
			return s, err
		}
	}
	if s.Dead, err = r.deadOf(ctx, s); hidden(err) { // a service has no dead letters
		err = nil
	}
	return s, err
}

// read adds what a stream has under a filter, at most so much.
func (r Reader) read(ctx context.Context, s *Story, stream, filter string, into *[]Event) error {
	n := 0
	return bus.EachOf(ctx, r.Conn, stream, filter, func(m bus.Message) bool {
		if n++; n > maxEvents {
			s.More++
			return true
		}
		*into = append(*into, eventOf(m))
		return true
	})
}

func (r Reader) waiting(ctx context.Context, s *Story, last bus.Message, there bool, now time.Time) error {
	queues, err := r.Queues(ctx, now, s.Operation)
	switch {
	case hidden(err):
		s.Says = noQueues
		return nil
	case err != nil:
		return err
	}
	var found []request
	if f := factsOf(last.Data); f.Reason == messages.ReasonScheduled {
		err = r.Scheduled(ctx, s.Operation, s.RequestID, 0, func(m bus.Message) bool {
			if meta, _ := messages.Check(s.Operation, m.Data); meta.Fingerprint == f.Fingerprint { // not of what was cancelled
				found = append(found, requestOf(s.Operation, m))
			}
			return true
		})
	}
	if err == nil && len(found) == 0 { // which may be long
		found, err = r.search(ctx, s.Operation, s.RequestID, nil)
	}
	if long, ok := errors.AsType[*SkippedError](err); ok {
		s.Says = long.Error()
		return nil
	}
	if err != nil {
		return err
	}
	if len(found) == 0 {
		newest, _, err := r.last(ctx, s.Operation, s.RequestID)
		if err != nil {
			return err
		}
		if newest.Sequence != last.Sequence {
			return errMoved
		}
		switch f := factsOf(last.Data); {
		case !there:
		case messages.StateOf(last.Subject) == messages.Reopened && f.By != messages.ByCorrection:
			s.Says = reopenedBy(f) + " " + style.Ago(now.Sub(last.Time)) + ", and not published: `errand dead redrive " + Argument(s.RequestID) +
				"` finishes it"
		default:
			s.Says = string(messages.StateOf(last.Subject)) + ", and its queue no longer has it: was the stream made again?"
		}
		return nil
	}
	w, q := found[0], queues[0]
	for _, other := range queues {
		if other.Lane == messages.ParseSubject(w.Subject).Lane && other.Lane != "" {
			q = other
		}
	}
	if s.Request = w.Data; !there && w.Sequence > q.delivered {
		from, _, err := r.from(ctx, q.Of(), w.Sequence)
		if err != nil {
			return err
		}
		w.place = q.Untaken - min(from-1, q.Untaken)
	}
	o := r.openOf(q, w, last, there)
	programs, err := bus.AskStatus(ctx, r.Conn)
	if err != nil {
		return err
	}
	o.Why = why(&o, q, programs, now)
	s.Waits, s.State = &o, o.State
	s.Says = o.Says() + ", published " + style.Ago(now.Sub(o.Published.Time))
	if o.Next != nil && o.State == messages.Deferred {
		when := "as soon as it is taken again"
		if left := o.Next.Sub(now); left >= time.Second {
			when = "in " + style.Span(left)
		}
		s.Says += ", goes on " + when
	}
	return nil
}

// Says is where a request without an outcome is, and why.
func (o Open) Says() string {
	if o.Place > 0 {
		return fmt.Sprintf("queued, place %d: %s", o.Place, o.Why)
	}
	return string(o.State) + ": " + o.Why
}

// EndedAs is an outcome in words, with its reason.
func EndedAs(state messages.State, body []byte) string {
	text, f := string(state), factsOf(body)
	switch because := because(f); {
	case state == messages.Failed && f.Reason == messages.ReasonCancelled:
		return because // it says that it was cancelled, and by whom
	case state == messages.Resolved:
		text += ": " + string(f.Outcome)
	case state == messages.Erased && f.Was.State != "":
		text += ": it was " + strings.TrimSpace(string(f.Was.State)+" "+string(f.Was.Reason))
	case state == messages.Partial:
		text += fmt.Sprintf(": %d of %d recipients accepted", f.Accepted, f.Recipients)
	case because != "":
		text += ": " + because
	}
	if f.ConflictsWith != "" {
		text += ": " + f.ConflictsWith
	}
	return text
}

// RowStates are what the sending log says of a mail.
var RowStates = []messages.State{messages.Delivered, messages.Deferred, messages.Bounced, messages.Unknown}

func (r Reader) deliveries(ctx context.Context, s *Story, id string) error {
	for _, state := range RowStates {
		n, _, err := bus.Count(ctx, r.Conn, bus.MailDeliveries, messages.Delivery.Subject(state, id), time.Time{})
		if err != nil {
			return err
		}
		if n > 0 {
			if s.Deliveries == nil {
				s.Deliveries = map[string]int{}
			}
			s.Deliveries[string(state)] = int(n)
		}
	}
	if s.State == messages.Erased { // what stays says nothing of the rows
		return nil
	}
	return r.read(ctx, s, bus.MailDeliveries, messages.Delivery.Filter(id), &s.Delivered)
}

func (r Reader) mandate(ctx context.Context, s *Story) error {
	for _, about := range []messages.Operation{messages.Application, messages.Deduction, messages.Callback} {
		if err := r.read(ctx, s, bus.EventsOf(about), about.Filter(s.RequestID), &s.Mandate); err != nil {
			return err
		}
	}
	s.Mandate = slices.DeleteFunc(s.Mandate, func(e Event) bool { return messages.StateOf(e.Subject) == messages.Erased })
	slices.SortFunc(s.Mandate, func(a, b Event) int {
		return cmp.Or(a.Time.Compare(b.Time.Time), cmp.Compare(a.Sequence, b.Sequence))
	})
	for i, e := range s.Mandate {
		s.Mandate[i].Body = withoutPayer(e)
	}
	return nil
}

// withoutPayer is the body of an event about a mandate without what it has of the payer: of a
// callback without what was sent.
func withoutPayer(e Event) any {
	var body map[string]json.RawMessage
	if json.Unmarshal(e.Message.Data, &body) != nil {
		return fmt.Sprintf("%d bytes", len(e.Message.Data))
	}
	delete(body, "query")
	delete(body, "body")
	if record, there := body["transaction"]; there {
		body["transaction"] = history.WithoutPayer(record)
	}
	return body
}
