// Package transactions turns the e-mandate service's transaction list into events, matched to requests by order number.
//
//	Enrollments ─► requests by order number ─┐
//	Page ─► records ─► Publish: match ───────┴─► mandate.application.<status>, mandate.deduction.<status>
//
//	transactions.go  the list as the list and the sink of a sweeper
//	record.go        a record: its identity, state and event
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
	"errand/internal/lists/sweep"
	"errand/internal/mandates"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// Store stores events and lists those that were stored. Lead, Led, Resign and Publish are sweep.Sink's.
type Store interface {
	Lead(ctx context.Context) error
	Led(ctx context.Context) (bool, error)
	Resign()
	// Learn yields the events that were stored, by any poller, since the last call; the first time all that are kept.
	Learn(ctx context.Context) iter.Seq2[Learned, error]
	// Kept returns since when all events are kept; zero if none was ever dropped.
	Kept(ctx context.Context) (time.Time, error)
	// Publish begins to store events.
	Publish(ctx context.Context, events []messages.Event) (wait func() (stored int, err error))
	// Mark stores how far the list was published; LastMark returns the last one, or a zero one.
	Mark(ctx context.Context, m sweep.Mark) error
	LastMark(ctx context.Context) (sweep.Mark, error)
}

// Learned is an event that was stored.
type Learned struct {
	ID     sweep.ID
	Status messages.State
	At     time.Time
}

// Config is what a List needs. Read, Store, Enrollments and Times are required.
type Config struct {
	Read         func(ctx context.Context, page int) (mandate.Page, error)
	Store        Store
	Enrollments  Enrollments
	Times        *mandates.Times
	WithoutPayer bool // events hold nothing of the payer

	// Published, if set, is called for each event that was stored.
	Published func(messages.TransactionKind, messages.Confidence)
	// Duplicate, if set, is called for a request that has two applications, with the help of Last, the log's.
	Duplicate func(request string)
	Last      func(ctx context.Context, op messages.Operation, filter string) (history.Entry, error)
}

// List is the transaction list, with what the events say of requests. Page may be called while another method is.
type List struct {
	Config
	orders   orders
	statuses map[messages.State]struct{} // that records were in, as far as is known
	applied  map[string]applied          // the first application of requests, as far as is remembered; zero if others were reported
}

var (
	_ sweep.List[Record] = (*List)(nil)
	_ sweep.Sink[Record] = (*List)(nil)
)

// New makes a List that knows nothing yet.
func New(c Config) *List {
	return &List{Config: c, statuses: map[messages.State]struct{}{}, applied: map[string]applied{}}
}

// MaxPage is how many bytes a page may have: one record with a large field must not stop the others.
const MaxPage = 4 << 20

// Page reads a page of the list. The service has pages of one size, whatever is asked for.
func (l *List) Page(ctx context.Context, number, _ int) (sweep.Page[Record], error) {
	page, err := l.Read(ctx, number)
	if err != nil {
		return sweep.Page[Record]{}, err
	}
	return sweep.Page[Record]{Rows: l.rows(page.Records), Total: page.Total, Limit: page.PerPage}, nil
}

// rows are the rows of records. No state is the last one for certain: what was deducted may bounce weeks later.
func (l *List) rows(records []json.RawMessage) []sweep.Row[Record] {
	rows := make([]sweep.Row[Record], len(records))
	for i, raw := range records {
		r := read(raw, l.Times)
		rows[i] = sweep.Row[Record]{ID: r.id(r.Status), Key: r.key(), At: r.At, Item: r}
	}
	return rows
}

// maxStatuses is how many statuses are remembered; the service is assumed to have a handful.
const maxStatuses = 64

// Earlier returns the states that a record may have been in: all that any was in, since an old record's events may be gone.
func (l *List) Earlier(row sweep.Row[Record]) (ids []sweep.ID) {
	l.learned(row.Item.Status)
	for status := range l.statuses {
		if id := row.Item.id(status); id != row.ID {
			ids = append(ids, id)
		}
	}
	return ids
}

func (l *List) learned(status messages.State) {
	if status != messages.Erased && len(l.statuses) < maxStatuses {
		l.statuses[status] = struct{}{}
	}
}

// Lead takes the leadership.
func (l *List) Lead(ctx context.Context) error { return l.Store.Lead(ctx) }

// Led reports whether another poller says that it leads.
func (l *List) Led(ctx context.Context) (bool, error) { return l.Store.Led(ctx) }

// Resign gives the leadership up.
func (l *List) Resign() { l.Store.Resign() }

// Learn brings what is known of order numbers up to date.
func (l *List) Learn(ctx context.Context) iter.Seq2[sweep.Stored, error] {
	return func(yield func(sweep.Stored, error) bool) {
		l.Times.Learn(ctx)
		if err := l.orders.update(ctx, l.Enrollments); err != nil {
			yield(sweep.Stored{}, err)
			return
		}
		for e, err := range l.Store.Learn(ctx) {
			if err != nil {
				yield(sweep.Stored{}, fmt.Errorf("transactions: learn published events: %w", err))
				return
			}
			l.learned(e.Status)
			if !yield(sweep.Stored{ID: e.ID, At: e.At}, nil) {
				return
			}
		}
	}
}

// Kept returns since when all events are kept.
func (l *List) Kept(ctx context.Context) (time.Time, error) { return l.Store.Kept(ctx) }

// Publish begins to store an event for each record, under the request that it is of.
func (l *List) Publish(ctx context.Context, rows []sweep.Row[Record]) func() (stored int, err error) {
	events, err := l.events(ctx, rows)
	if err != nil {
		return func() (int, error) { return 0, fmt.Errorf("%w: %w", sweep.ErrBehind, err) }
	}
	wait := l.Store.Publish(ctx, events)
	return func() (int, error) {
		stored, err := wait()
		for _, e := range events[:stored] {
			l.learned(e.State)
			if l.Published != nil {
				l.Published(kinds[e.Operation], e.Body.(*messages.TransactionBody).Match.Confidence)
			}
		}
		return stored, err
	}
}

func (l *List) events(ctx context.Context, rows []sweep.Row[Record]) ([]messages.Event, error) {
	if err := l.orders.update(ctx, l.Enrollments); err != nil { // their requests may be newer than the last look
		return nil, err
	}
	now := time.Now()
	events := make([]messages.Event, len(rows))
	for i, row := range rows {
		match, err := l.orders.match(ctx, l.Enrollments, row.Item)
		if err != nil {
			return nil, err
		}
		events[i] = row.Item.event(match, now, l.WithoutPayer)
		if l.Duplicate != nil && row.Item.Kind == messages.Application && match.Confidence == messages.MatchExact {
			if err := l.compare(ctx, events[i].ID, row.Item, events[i].Body.(*messages.TransactionBody)); err != nil {
				return nil, err
			}
		}
	}
	return events, nil
}

// Mark stores how far the list was published.
func (l *List) Mark(ctx context.Context, m sweep.Mark) error { return l.Store.Mark(ctx, m) }

// LastMark returns the last mark.
func (l *List) LastMark(ctx context.Context) (sweep.Mark, error) { return l.Store.LastMark(ctx) }

// Swept does nothing.
func (l *List) Swept(context.Context, sweep.Swept) error { return nil }
