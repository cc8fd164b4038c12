package index

import (
	"cmp"
	"context"
	"slices"
	"time"
)

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
