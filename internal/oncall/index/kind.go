package index

import (
	"cmp"
	"context"
	"slices"
	"time"

	"errand/internal/history"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

// Kind is what requests have in common that are listed and counted together.
type Kind struct {
	Operation messages.Operation `json:"operation"`
	State     messages.State     `json:"state"`
	Reason    messages.Reason    `json:"reason,omitempty"`
	// Outcome is what a request turned out to be whose state is resolved.
	Outcome messages.State `json:"outcome,omitempty"`
	// Class is what running it again may do, as far as its last event says.
	Class inspect.Class `json:"class,omitempty"`
	// Dead means that it has a dead letter.
	Dead bool `json:"dead,omitempty"`
	// Seen means that a person discarded its last dead letter.
	Seen bool `json:"seen,omitempty"`
}

// Open reports whether requests of a kind have no outcome yet.
func (k Kind) Open() bool {
	return k.State != "" && !k.State.Final(k.Operation)
}

// Needed reports whether a dead letter of a kind needs somebody: it does not where its request went on, was withdrawn or was
// done, or where a person discarded it.
func (k Kind) Needed() bool {
	over := k.Class == inspect.Superseded || k.Class == inspect.Underway || k.Class == inspect.Cancelled
	return k.Dead && !k.Seen && !over && (k.State != messages.Resolved || k.Class != inspect.WasDone)
}

// expired is the kind of requests of which no event is known.
func expired(op messages.Operation) Kind {
	class, _ := inspect.ClassOf(op, "", history.Facts{})
	return Kind{Operation: op, Class: class}
}

// kindColumns are the columns of a kind but its number, in the order of its fields.
const kindColumns = "operation, state, reason, outcome, class, dead, seen"

// numberOf is an operation in a row, where one more is added at the end; 0 when its requests are not indexed.
func numberOf(op messages.Operation) int { return slices.Index(inspect.Operations, op) + 1 }

// Resolution is how exactly times of events are kept: since a time means since the last multiple of it.
const Resolution = 5 * time.Minute

func slotOf(t time.Time) int64 { return t.Unix() / int64(Resolution/time.Second) }

// timeOf is when a span begins.
func timeOf(slot int64) time.Time { return time.Unix(slot*int64(Resolution/time.Second), 0).UTC() }

// Count is how many requests, or events, are of a kind.
type Count struct {
	Kind
	Count int
	At    time.Time // of the last of the requests; where the span of the events begins
}

// Sum adds counts up by what a function makes of their kinds, without those that it makes a zero one of; the largest first.
func Sum(counts []Count, by func(Kind) Kind) (sums []Count) {
	for _, c := range counts {
		if c.Kind = by(c.Kind); c.Kind == (Kind{}) {
			continue
		}
		i := slices.IndexFunc(sums, func(sum Count) bool { return sum.Kind == c.Kind })
		if i < 0 {
			sums = append(sums, c)
			continue
		}
		sums[i].Count += c.Count
		if c.At.After(sums[i].At) {
			sums[i].At = c.At
		}
	}
	slices.SortFunc(sums, func(a, b Count) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.State, b.State), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Class, b.Class))
	})
	return sums
}

// Events counts the outcomes, the deferrals and the rows of the sending log that were stored since a time, by kind and span
// of Resolution. A request that has two outcomes, since it was reopened, is counted twice; so is a row that was deferred and
// then delivered.
func (x *Index) Events(ctx context.Context, since time.Time) (all []Count, err error) {
	err = x.ask(ctx, func(q question) error {
		rows, err := q.tx.QueryContext(ctx, "SELECT kind, events, slot FROM tally WHERE slot >= ? ORDER BY slot", slotOf(since))
		return each(rows, err, func() error {
			var c Count
			var kind, slot int64
			err := rows.Scan(&kind, &c.Count, &slot)
			c.Kind, c.At = q.kinds[kind].Kind, timeOf(slot)
			all = append(all, c)
			return err
		})
	})
	return all, err
}

// Counts are all requests that are in the index, by what they are now.
func (x *Index) Counts(ctx context.Context) (all []Count, err error) {
	err = x.ask(ctx, func(q question) error {
		for number, c := range q.kinds {
			if c.Count == 0 || !(Filter{}).wants(c.Kind) {
				continue
			}
			var last int64
			if err := q.tx.QueryRowContext(ctx, "SELECT max(at) FROM request WHERE kind = ?", number).Scan(&last); err != nil {
				return err
			}
			c.At = time.UnixMicro(last).UTC()
			all = append(all, c)
		}
		return nil
	})
	return all, err
}
