package inspect

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/style"
	"errand/pkg/messages"
)

func why(o *Open, q Queue, programs []bus.ProgramStatus, now time.Time) string {
	if fault := bus.NotStored(programs, o.Operation); fault != "" { // first: neither a call nor an outcome is recorded
		return fault
	}
	switch o.State {
	case messages.Started, messages.Page:
		if o.Next == nil || now.Before(o.Next.Time) {
			return "a call is under way"
		}
		return "overdue; a worker finds out what was done"
	}
	if q.Stranded > 0 && o.Place == 0 && (o.Next == nil || now.After(o.Next.Time)) {
		return "its queue has forgotten it: " + repair(q.restored)
	}
	if o.Reason == messages.ReasonScheduled && o.Next != nil && now.Before(o.Next.Time) {
		return because(o.facts)
	}
	if why := stopped(q, programs); why != "" {
		return why
	}
	if o.State == messages.Deferred {
		return because(o.facts)
	}
	name := bus.ProgramOf(o.Operation)
	replicas := slices.DeleteFunc(slices.Clone(programs), func(p bus.ProgramStatus) bool { return p.Program != name })
	ready := func(p bus.ProgramStatus) bool { return len(p.Faults) == 0 }
	switch {
	case q.Pulls == 0 && len(replicas) == 0:
		return "no " + name + " answers"
	case len(replicas) > 0 && !slices.ContainsFunc(replicas, ready):
		return name + " is not ready: " + strings.Join(replicas[0].Faults, "; ")
	case o.Place > 0:
		return "waits its turn"
	case o.State == messages.Reopened:
		return reopenedBy(o.facts) + ", to be run again"
	}
	return "a program had it and stored nothing yet"
}

// stopped is why nothing of a queue is begun, "" if something is.
func stopped(q Queue, programs []bus.ProgramStatus) string {
	if q.PausedUntil != nil {
		return "its queue is paused" + q.Pause.String()
	}
	if by, held := bus.HoldOf(programs, q.Operation); by != "" {
		return "held: " + held.Why
	}
	return ""
}

// Stopped is why no request of a queue is begun now, "" if some are: NATS does not store, a pause, a hold.
func (r Reader) Stopped(ctx context.Context, of bus.Queue, now time.Time) (string, error) {
	programs, err := bus.AskStatus(ctx, r.Conn)
	if err != nil {
		return "", err
	}
	if why := bus.NotStored(programs, of.Operation()); why != "" {
		return why, nil
	}
	q, err := r.Queue(ctx, of, now)
	return stopped(q, programs), err
}

// Suppressing says whether messages leave out addresses that mail bounced from, as mail-consumer reports: all of its replicas.
func Suppressing(programs []bus.ProgramStatus) string {
	says := "Whether messages leave out suppressed addresses is not known: no mail-consumer answers."
	for _, p := range programs {
		switch {
		case p.Program != bus.ProgramOf(messages.Send):
		case p.SuppressFor == 0:
			return "SUPPRESS_BOUNCED of mail-consumer is off: messages go to suppressed addresses, too."
		default:
			says = "SUPPRESS_BOUNCED of mail-consumer is " + style.Span(time.Duration(p.SuppressFor)*time.Second) +
				": messages leave an address out for so long."
		}
	}
	return says
}

func reopenedBy(f history.Facts) string {
	switch {
	case f.By == messages.ByCorrection:
		return "corrected"
	case f.Why == "":
		return "reopened by " + f.By
	}
	return "reopened by " + f.By + " (" + f.Why + ")"
}

// because is the reason that an event has, with the status of the answer and the message.
func because(f history.Facts) string {
	text := string(f.Reason)
	if f.HTTPStatus != 0 {
		text += " " + strconv.Itoa(f.HTTPStatus)
	}
	message := strings.TrimRight(f.Message, ".")
	switch {
	case message == "":
		return text
	case f.Reason == messages.ReasonCancelled, text == "" || strings.HasPrefix(message, string(f.Reason)+": "):
		return message
	}
	return text + ", " + message
}

// Cause is a reason why requests wait, and how many do.
type Cause struct {
	Why       string             `json:"why"`
	Operation messages.Operation `json:"operation"`
	Count     int                `json:"count"`
	Oldest    messages.Time      `json:"oldest"` // of the times at which they were published
	Next      *messages.Time     `json:"next,omitempty"`
	Example   string             `json:"example"` // the id of the oldest
}

// Causes groups requests by why they wait, most first.
func Causes(open []Open) (causes []Cause) {
	for _, o := range open {
		i := slices.IndexFunc(causes, func(c Cause) bool { return c.Why == o.Why && c.Operation == o.Operation })
		if i < 0 {
			i, causes = len(causes), append(causes, Cause{Why: o.Why, Operation: o.Operation, Oldest: o.Published, Example: o.RequestID})
		}
		c := &causes[i]
		c.Count++
		if o.Published.Before(c.Oldest.Time) {
			c.Oldest, c.Example = o.Published, o.RequestID
		}
		if o.Next != nil && (c.Next == nil || o.Next.Before(c.Next.Time)) {
			c.Next = o.Next
		}
	}
	slices.SortStableFunc(causes, func(a, b Cause) int { return b.Count - a.Count })
	return causes
}

// Stuck is what waits, and why.
type Stuck struct {
	Causes   []Cause `json:"causes"`
	Requests []Open  `json:"requests"` // the oldest first
	// Looked is how many were looked at, of Total.
	Looked int    `json:"looked_at"`
	Total  uint64 `json:"total"`
}

// Stuck returns what was published before a time and has no outcome yet, the oldest first. It looks at no more than
// limit requests of each operation.
func (r Reader) Stuck(ctx context.Context, before time.Time, limit int, now time.Time) (Stuck, error) {
	s := Stuck{Causes: []Cause{}, Requests: []Open{}}
	programs, err := bus.AskStatus(ctx, r.Conn)
	if err != nil {
		return s, err
	}
	queues, err := r.Queues(ctx, now, Operations...)
	if err != nil {
		return s, err
	}
	for _, q := range queues {
		n := q.Untaken + uint64(q.Taken+q.Stranded)
		if s.Total += n; n == 0 {
			continue
		}
		open, err := r.Opens(ctx, q, limit, before)
		if err != nil {
			return s, err
		}
		s.Looked += int(min(n, uint64(limit)))
		for i := range open {
			open[i].Why = why(&open[i], q, programs, now)
		}
		s.Requests = append(s.Requests, open...)
	}
	unpublished, err := r.unpublished(ctx, before, limit)
	if err != nil {
		return s, err
	}
	s.Requests = append(s.Requests, unpublished...)
	slices.SortStableFunc(s.Requests, func(a, b Open) int { return a.Published.Compare(b.Published.Time) })
	s.Causes = append(s.Causes, Causes(s.Requests)...)
	return s, nil
}

// unpublished are requests that a person reopened and that are in no queue: the redrive was interrupted. It looks at
// no more than the newest limit of each operation.
func (r Reader) unpublished(ctx context.Context, before time.Time, limit int) (list []Open, err error) {
	for _, op := range Operations {
		rows, err := r.inStates(ctx, op, []messages.State{messages.Reopened}, Query{Limit: limit})
		if err != nil {
			return nil, err
		}
		var reopened []Open
		at := map[string]time.Time{}
		for _, row := range rows {
			if row.Time.After(before) {
				continue
			}
			last, there, err := r.last(ctx, op, row.RequestID)
			if err != nil {
				return nil, err
			}
			if f := factsOf(last.Data); there && last.Sequence == row.sequence && f.By != messages.ByCorrection {
				reopened = append(reopened, Open{RequestID: row.RequestID, Operation: op, State: messages.Reopened, Published: row.Time,
					Since: row.Time, Attempt: f.Attempt, Why: notPublished, facts: f})
				at[row.RequestID] = row.Time.Time
			}
		}
		queued, err := r.Queued(ctx, op, at)
		if err != nil {
			return nil, err
		}
		list = append(list, slices.DeleteFunc(reopened, func(o Open) bool { return queued[o.RequestID] })...)
	}
	return list, nil
}

// notPublished is why a request waits that is reopened and in no queue.
const notPublished = "reopened and not published: errand dead redrive finishes it"
