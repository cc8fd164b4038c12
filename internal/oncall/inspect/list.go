package inspect

import (
	"cmp"
	"context"
	"slices"
	"time"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// Query says which requests are asked for. What is empty does not limit.
type Query struct {
	Operations []messages.Operation
	States     []messages.State
	Reasons    []messages.Reason
	Since      time.Time // of the state that they are in
	Limit      int       // the newest so many; 0 means all
	// From and Through are the sequences of the first and last dead letter that may be meant; 0 means any.
	From, Through uint64
}

// Row is a request and the state that it is in.
type Row struct {
	Time        messages.Time      `json:"time"` // of that state
	RequestID   string             `json:"request_id"`
	Operation   messages.Operation `json:"operation"`
	State       messages.State     `json:"state"`
	Reason      messages.Reason    `json:"reason,omitempty"`
	HTTPStatus  int                `json:"http_status,omitempty"`
	OrderNumber string             `json:"order_number,omitempty"`
	Message     string             `json:"message,omitempty"`

	sequence uint64
	gone     bool // it is in another state
}

// List returns requests by the state that they are in, the newest first.
func (r Reader) List(ctx context.Context, q Query, now time.Time) ([]Row, error) {
	asked := operations(q.Operations)
	found := make([][]Row, len(asked))
	err := eachSeen(len(asked), func(i int) error {
		ended, err := r.ended(ctx, asked[i], q)
		if err != nil {
			return err
		}
		open, err := r.openRows(ctx, asked[i], q, now)
		found[i] = append(ended, open...)
		return err
	})
	if err != nil {
		return nil, err
	}
	rows := slices.Concat(found...)
	rows = slices.DeleteFunc(rows, func(row Row) bool { return row.gone })
	slices.SortStableFunc(rows, func(a, b Row) int { return b.Time.Compare(a.Time.Time) })
	return rows[:min(len(rows), cmp.Or(q.Limit, len(rows)))], nil
}

// limitOfScan is how many of the newest messages under a filter are enough; 0: nobody knows.
func (q Query) limitOfScan() int {
	if len(q.Reasons) > 0 || q.Through > 0 {
		return 0
	}
	return q.Limit
}

// Reasoned are the states that have a reason. What did what it was for has none.
var Reasoned = append([]messages.State{messages.Deferred}, leavesOne...)

// wants reports whether requests in a state are asked for.
func (q Query) wants(state messages.State) bool {
	if len(q.States) == 0 && len(q.Reasons) > 0 {
		return slices.Contains(Reasoned, state)
	}
	return len(q.States) == 0 || slices.Contains(q.States, state)
}

func (q Query) wantsReason(reason messages.Reason) bool {
	return len(q.Reasons) == 0 || slices.Contains(q.Reasons, reason)
}

// ended are requests of an operation that have an outcome, and no later event, and those
// that were reopened.
func (r Reader) ended(ctx context.Context, op messages.Operation, q Query) ([]Row, error) {
	states := slices.DeleteFunc(append([]messages.State{messages.Reopened}, finals(op)...), func(s messages.State) bool { return !q.wants(s) })
	rows, err := r.inStates(ctx, op, states, q)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	oldest := slices.MinFunc(rows, func(a, b Row) int { return a.Time.Compare(b.Time.Time) }).Time.Time
	later := map[string]uint64{} // by request, the sequence of the last event that changes an outcome
	err = r.newest(ctx, op, []messages.State{messages.Reopened, messages.Resolved}, oldest, 0, func(_ messages.State, m bus.Message) bool {
		id := messages.ParseSubject(m.Subject).ID
		later[id] = max(later[id], m.Sequence)
		return true
	})
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(row Row) bool { return later[row.RequestID] > row.sequence })
	return rows, each(len(rows), func(i int) error {
		if rows[i].State != messages.Reopened { // anything may follow that one
			return nil
		}
		last, _, err := r.last(ctx, op, rows[i].RequestID)
		rows[i].gone = last.Sequence != rows[i].sequence
		return err
	})
}

// often are the outcomes of most requests. Those of reads are not: beside a million enrollments there may be none.
var often = []messages.State{messages.Succeeded, messages.Accepted}

// newest calls take with the newest events of an operation in each of some states: see bus.Newest.
func (r Reader) newest(ctx context.Context, op messages.Operation, states []messages.State, since time.Time, n int,
	take func(messages.State, bus.Message) bool) error {
	wanted := make([]bus.Wanted, len(states))
	for i, state := range states {
		wanted[i] = bus.Wanted{Filter: op.Subject(state, "*"), Often: slices.Contains(often, state)}
	}
	return bus.Newest(ctx, r.Conn, bus.EventsOf(op), wanted, since, n, func(i int, m bus.Message) bool { return take(states[i], m) })
}

// inStates returns events of an operation in each of some states, at most the query's limit of each.
func (r Reader) inStates(ctx context.Context, op messages.Operation, states []messages.State, q Query) (rows []Row, err error) {
	if len(states) == 0 {
		return rows, nil
	}
	err = r.newest(ctx, op, states, q.Since, q.Limit, func(state messages.State, m bus.Message) bool {
		row := rowOf(op, state, m)
		if !q.wantsReason(row.Reason) {
			return false
		}
		rows = append(rows, row)
		return true
	})
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(b.sequence, a.sequence) })
	left := map[messages.State]int{}
	return slices.DeleteFunc(rows, func(row Row) bool {
		left[row.State]++
		return q.Limit > 0 && left[row.State] > q.Limit
	}), err
}

func rowOf(op messages.Operation, state messages.State, m bus.Message) Row {
	f := factsOf(m.Data)
	row := Row{Time: messages.Time{Time: m.Time}, RequestID: messages.ParseSubject(m.Subject).ID, Operation: op, State: state,
		Reason: f.Reason, HTTPStatus: f.HTTPStatus, OrderNumber: f.OrderNumber, Message: f.Message, sequence: m.Sequence}
	switch state {
	case messages.Resolved:
		row.Message = string(f.Outcome)
	case messages.Reopened:
		row.Message = reopenedBy(f)
	}
	return row
}

func (r Reader) openRows(ctx context.Context, op messages.Operation, q Query, now time.Time) ([]Row, error) {
	if !slices.ContainsFunc(opens, q.wants) {
		return nil, nil
	}
	queues, err := r.Queues(ctx, now, op)
	switch {
	case hidden(err) && len(q.States) == 0: // a service sees what has an outcome
		return nil, nil
	case err != nil:
		return nil, err
	}
	var rows []Row
	for _, queue := range queues {
		of, err := r.rowsOf(ctx, queue, q)
		if err != nil {
			return nil, err
		}
		rows = append(rows, of...)
	}
	return rows, nil
}

// rowsOf are the requests without an outcome of one queue, and those that wait for their not_before beside the first.
func (r Reader) rowsOf(ctx context.Context, queue Queue, q Query) (rows []Row, err error) {
	waiting, err := r.candidates(ctx, queue, q)
	for end := len(waiting); end > 0 && err == nil && (q.Limit == 0 || len(rows) < q.Limit); end -= chunk { // the newest first
		var open []Open
		open, err = r.opensOf(ctx, queue, waiting[max(0, end-chunk):end])
		for _, o := range open {
			if o.State != messages.Reopened && q.wants(o.State) && q.wantsReason(o.Reason) && !o.Since.Before(q.Since) {
				rows = append(rows, Row{Time: o.Since, RequestID: o.RequestID, Operation: o.Operation, State: o.State, Reason: o.Reason,
					HTTPStatus: o.facts.HTTPStatus, OrderNumber: o.facts.OrderNumber, Message: o.facts.Message})
			}
		}
	}
	return rows, err
}

// chunk is how many requests are looked up before it is asked whether these are enough.
const chunk = 256

// candidates are requests in a queue that a query may ask for: those that somebody had, where
// it asks for more than what is queued, and the newest of those that nobody had.
func (r Reader) candidates(ctx context.Context, queue Queue, q Query) (list []request, err error) {
	of := queue.Of()
	add := func(m bus.Message) bool {
		list = append(list, requestOf(queue.Operation, m))
		return true
	}
	if queue.Lane == "" && q.wants(messages.Deferred) && q.wantsReason(messages.ReasonScheduled) {
		if err = r.Scheduled(ctx, queue.Operation, "*", q.Limit, add); hidden(err) { // it is for the programs and who acts
			err = nil
		}
	}
	if err == nil && queue.Taken > 0 && slices.ContainsFunc(opens[1:], q.wants) {
		err = bus.Scan{Stream: of.Stream, Filter: of.Filter}.Each(ctx, r.Conn, func(m bus.Message) bool {
			return m.Sequence <= queue.delivered && add(m)
		})
	}
	if err != nil || queue.Untaken == 0 || !q.wants(Queued) {
		return list, err
	}
	scan := bus.Scan{Stream: of.Stream, Filter: of.Filter, From: queue.delivered + 1, Since: q.Since} // they are queued since they came
	if q.Limit > 0 && queue.Untaken > uint64(q.Limit) {
		if err := scan.ToLast(ctx, r.Conn, uint64(q.Limit)); err != nil {
			return nil, err
		}
	}
	err = scan.Each(ctx, r.Conn, func(m bus.Message) bool {
		return m.Sequence <= queue.delivered || m.Time.Before(q.Since) || add(m)
	})
	return list, err
}

// Group is how many requests have something in common.
type Group struct {
	Operation messages.Operation `json:"operation"`
	State     messages.State     `json:"state"`
	Reason    messages.Reason    `json:"reason,omitempty"`
	Count     int                `json:"count"`
	Last      messages.Time      `json:"last"`
	Example   string             `json:"example"` // the id of the newest
	Message   string             `json:"message,omitempty"`
}

// ByReason counts requests, newest first, by operation, state and reason, most first.
func ByReason(rows []Row) (groups []Group) {
	for _, row := range rows {
		i := slices.IndexFunc(groups, func(g Group) bool {
			return g.Operation == row.Operation && g.State == row.State && g.Reason == row.Reason
		})
		if i < 0 {
			i, groups = len(groups), append(groups, Group{Operation: row.Operation, State: row.State, Reason: row.Reason, Last: row.Time,
				Example: row.RequestID, Message: row.Message})
		}
		groups[i].Count++
	}
	slices.SortStableFunc(groups, func(a, b Group) int { return b.Count - a.Count })
	return groups
}
