// Package transactions turns the e-mandate service's transaction list into events, matched to requests by order number.
//
//	Enrollments ─► requests by order number ─┐
//	Page ─► records ─► Publish: match ───────┴─► mandate.application.<status>, mandate.deduction.<status>
//
//	transactions.go  the list as the list and the sink of a sweeper
//	states.go        the last state of each record, and the ids of states
//	record.go        a record: its identity, state and event; a mandate that ends is a new state of its application
//	orders.go        the requests of order numbers
//	duplicates.go    reports requests that have two applications
//	lookups.go       looks up single order numbers: of open enrollments, and of enrollments that a callback names
//
// A record's meaning is decided in internal/mandates; here it is only named, matched and published.
package transactions

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"errand/internal/history"
	"errand/internal/lists"
	"errand/internal/lists/sweep"
	"errand/internal/mandates"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// Config is what a List needs. Read, Store and Times are required.
type Config struct {
	lists.Store  // its Requests: what enrollments say of order numbers
	Read         func(ctx context.Context, page int) (mandate.Page, error)
	Times        *mandates.Times
	WithoutPayer bool // events hold nothing of the payer

	// Published, if set, is called for each event that was stored.
	Published func(messages.TransactionKind, messages.Confidence)
	// Duplicate, if set, is called for a request that has two applications.
	Duplicate func(request string)
	// Last is the log's: for Duplicate, and LookUps.
	Last func(ctx context.Context, op messages.Operation, filter string) (history.Entry, error)
}

// List is the transaction list, with what the events say of requests. Page may be called while another method is.
type List struct {
	Config
	states       states
	orders       orders
	applications map[string]application // the first one of requests, as far as is remembered
}

var (
	_ sweep.List[Record] = (*List)(nil)
	_ sweep.Sink[Record] = (*List)(nil)
)

// New makes a List that knows nothing yet.
func New(c Config) *List {
	l := &List{Config: c}
	l.Reset()
	return l
}

// Reset forgets what was read and learned: all is read and learned again.
func (l *List) Reset() {
	l.orders, l.applications = orders{}, map[string]application{}
	l.states.reset()
}

// MaxPage is how many bytes a page may have: one record with a large field must not stop the others.
const MaxPage = 4 << 20

// Kept also forgets the requests whose events are gone.
func (l *List) Kept(ctx context.Context) (time.Time, error) {
	since, err := l.Store.Kept(ctx)
	l.orders.forget(since.Add(-forgetLater))
	return since, err
}

// forgetLater is by how much later than its oldest event a stream says that it keeps all, since clocks differ: those of the requests are its
// own.
const forgetLater = time.Hour

// Page reads a page of the list. The service has pages of one size, whatever is asked for.
func (l *List) Page(ctx context.Context, number, _ int) (sweep.Page[Record], error) {
	asked := l.states.asked()
	page, err := l.Read(ctx, number)
	if err != nil {
		return sweep.Page[Record]{}, err
	}
	return sweep.Page[Record]{Rows: l.rows(page.Records, asked, ""), Total: page.Total}, nil
}

// rows are the rows of records, as a reading shows them: see states.asked. No state is the last one for certain: what was deducted
// may bounce weeks later.
func (l *List) rows(records []json.RawMessage, asked uint64, by messages.TransactionBy) []sweep.Row[Record] {
	rows := make([]sweep.Row[Record], len(records))
	for i, raw := range records {
		r := read(raw, l.Times)
		r.by = by
		var id sweep.ID
		id, r.before = l.states.identify(r, asked)
		rows[i] = sweep.Row[Record]{ID: id, At: r.At, Item: r}
	}
	return rows
}

// Earlier returns the state before a record's.
func (l *List) Earlier(row sweep.Row[Record]) []sweep.ID {
	if id := join(row.Item.key, row.Item.before); id != row.ID {
		return []sweep.ID{id}
	}
	return nil
}

// Learn brings what is known of states and order numbers up to date.
func (l *List) Learn(ctx context.Context) iter.Seq2[sweep.Stored, error] {
	return func(yield func(sweep.Stored, error) bool) {
		l.Times.Learn(ctx)
		if err := l.orders.update(ctx, l.Store); err != nil {
			yield(sweep.Stored{}, err)
			return
		}
		for e, err := range l.Store.Learn(ctx) {
			if err != nil {
				yield(sweep.Stored{}, fmt.Errorf("transactions: learn published events: %w", err))
				return
			}
			id, ok := sweep.ParseID(e.ID)
			if !ok {
				continue
			}
			l.states.note(id)
			if !yield(sweep.Stored{ID: id, At: e.At}, nil) {
				return
			}
		}
	}
}

// Publish begins to store an event for each record, under the request that it is of. A record of which another state was published
// since it was read has none: that may be the later one.
func (l *List) Publish(ctx context.Context, rows []sweep.Row[Record]) func() (stored int, err error) {
	events, places, err := l.events(ctx, rows)
	wait := func() (int, error) { return 0, fmt.Errorf("%w: %w", sweep.ErrBehind, err) }
	if err == nil {
		wait = l.Store.Publish(ctx, events)
	}
	return func() (int, error) {
		stored, err := wait()
		for i, e := range events {
			if row := rows[places[i]]; i >= stored {
				l.states.fail(row.Item, row.ID)
			} else if l.Published != nil {
				l.Published(kinds[e.Operation], e.Body.(*messages.TransactionBody).Match.Confidence)
			}
		}
		return places[stored], err
	}
}

// events also returns the row of each event, and behind them the number of rows that have one, or need none.
func (l *List) events(ctx context.Context, rows []sweep.Row[Record]) (events []messages.Event, places []int, err error) {
	if err := l.orders.update(ctx, l.Store); err != nil { // their requests may be newer than the last look
		return nil, []int{0}, err
	}
	now := time.Now()
	for i, row := range rows {
		match := l.orders.match(row.Item)
		if l.Duplicate != nil && row.Item.Kind == messages.Application && match.Confidence == messages.MatchExact {
			if err := l.compare(ctx, match.Candidates[0], row.Item); err != nil {
				return events, append(places, 0), err
			}
		}
		if l.states.begin(row.Item, row.ID) {
			events, places = append(events, row.Item.event(row.ID, match, now, l.WithoutPayer)), append(places, i)
		}
	}
	return events, append(places, len(rows)), nil
}

// Swept does nothing.
func (l *List) Swept(context.Context, time.Time) error { return nil }
