package index

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"errand/pkg/messages"
)

// Resolution is how exactly times of counts are kept: since a time means since the last
// multiple of it.
const Resolution = 5 * time.Minute

// slotOf is the span that a time is in.
func slotOf(t time.Time) int64 { return t.Unix() / int64(Resolution/time.Second) }

// timeOf is when a span begins.
func timeOf(slot int64) time.Time { return time.Unix(slot*int64(Resolution/time.Second), 0).UTC() }

// Count is how many requests, or events, are of a kind.
type Count struct {
	Kind
	Count int `json:"count"`
	// First and Last are the times of the first and the last of them.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Bar is how many requests came into a state within a span of time.
type Bar struct {
	Begin     time.Time          `json:"begin"`
	Operation messages.Operation `json:"operation"`
	State     messages.State     `json:"state"`
	Count     int                `json:"count"`
}

// Outcomes counts what became of requests: the outcomes and deferrals that were stored since
// a time, in spans that begin with it, for a chart; in order of time, operation and state. A
// step is a multiple of Resolution. Spans without any are left out; a request that has two
// outcomes, since it was reopened, is counted twice.
func (x *Index) Outcomes(ctx context.Context, since time.Time, step time.Duration) (bars []Bar, err error) {
	if step < Resolution || step%Resolution != 0 {
		return nil, fmt.Errorf("index: a step of %v is not a multiple of %v", step, Resolution)
	}
	from, slots := slotOf(since), int64(step/Resolution)
	sums := map[Bar]int{}
	const bySpan = "SELECT kind, sum(events), (slot - ?1) / ?2, 0 FROM tally WHERE slot >= ?1 GROUP BY kind, 3"
	err = x.events(ctx, bySpan, func(c Count, span, _ int64) {
		if numberOf(c.Operation) > 0 {
			sums[Bar{Begin: timeOf(from + span*slots), Operation: c.Operation, State: c.State}] += c.Count
		}
	}, from, slots)
	for bar, n := range sums {
		bar.Count = n
		bars = append(bars, bar)
	}
	slices.SortFunc(bars, func(a, b Bar) int {
		return cmp.Or(a.Begin.Compare(b.Begin), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.State, b.State))
	})
	return bars, err
}

// Reasons counts what did not succeed, or was deferred, since a time: events by operation,
// state and reason, the most frequent first. First and Last are as exact as Resolution.
func (x *Index) Reasons(ctx context.Context, since time.Time) ([]Count, error) {
	return x.counted(ctx, since, func(k Kind) bool { return k.Reason != "" })
}

// Deliveries counts the rows of the sending log since a time by the state that they were
// seen in; one that was deferred and then delivered is counted twice.
func (x *Index) Deliveries(ctx context.Context, since time.Time) ([]Count, error) {
	return x.counted(ctx, since, func(k Kind) bool { return k.Operation == messages.Delivery })
}

// counted counts events since a time by operation, state and reason.
func (x *Index) counted(ctx context.Context, since time.Time, wanted func(Kind) bool) ([]Count, error) {
	sums := map[Kind]Count{}
	const byKind = "SELECT kind, sum(events), min(slot), max(slot) FROM tally WHERE slot >= ? GROUP BY kind"
	err := x.events(ctx, byKind, func(c Count, first, last int64) {
		if !wanted(c.Kind) {
			return
		}
		c.First, c.Last = timeOf(first), timeOf(last+1)
		k := Kind{Operation: c.Operation, State: c.State, Reason: c.Reason}
		sums[k] = c.and(sums[k], k)
	}, slotOf(since))
	return ordered(sums), err
}

// and adds two counts, of one kind.
func (c Count) and(other Count, k Kind) Count {
	if other.Count > 0 {
		c.Count += other.Count
		if other.First.Before(c.First) {
			c.First = other.First
		}
		if other.Last.After(c.Last) {
			c.Last = other.Last
		}
	}
	c.Kind = k
	return c
}

// ordered returns the most frequent first.
func ordered(sums map[Kind]Count) (all []Count) {
	for _, c := range sums {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.State, b.State), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Outcome, b.Outcome))
	})
	return all
}

// events asks for events that were counted: a kind, how many, and two spans.
func (x *Index) events(ctx context.Context, question string, each func(c Count, a, b int64), args ...any) error {
	return x.ask(ctx, func(tx *sql.Tx) error {
		kinds, err := kindsOf(ctx, tx)
		if err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, question, args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }() // Err says it all
		for rows.Next() {
			var kind, a, b int64
			var n int
			if err := rows.Scan(&kind, &n, &a, &b); err != nil {
				return err
			}
			c := kinds[kind]
			c.Count = n
			each(c, a, b)
		}
		return rows.Err()
	})
}

// Counts are all requests that are in the index, by what they are now; the most frequent
// first. A list of dead letters groups the Dead ones by Class and Reason.
func (x *Index) Counts(ctx context.Context) (all []Count, err error) {
	sums := map[Kind]Count{}
	err = x.ask(ctx, func(tx *sql.Tx) error {
		kinds, err := kindsOf(ctx, tx)
		if err != nil {
			return err
		}
		for number, c := range kinds {
			if c.Count == 0 || !(Filter{}).wants(c.Kind) {
				continue
			}
			var first, last int64
			// Two questions: one for both would read them all.
			const ends = "SELECT (SELECT min(at) FROM request WHERE kind = ?1), (SELECT max(at) FROM request WHERE kind = ?1)"
			err := tx.QueryRowContext(ctx, ends, number).Scan(&first, &last)
			if err != nil {
				return err
			}
			c.First, c.Last = time.UnixMicro(first).UTC(), time.UnixMicro(last).UTC()
			sums[c.Kind] = c
		}
		return nil
	})
	return ordered(sums), err
}
