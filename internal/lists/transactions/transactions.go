// Package transactions turns the e-mandate service's transaction list into events, matched to requests by order number.
//
//	Enrollments ─► requests by order number ─┐
//	Page ─► records ─► Publish: match ───────┴─► mandate.application.<status>, mandate.deduction.<status>
//
//	transactions.go  the list as the list and the sink of a sweeper; a record: its identity, state and event
//	states.go        the last state of each record, and the ids of states
//	orders.go        the requests of order numbers, and those that have two applications
//	lookups.go       looks up single order numbers: of open enrollments, and of enrollments that a callback names
//
// A record's meaning is decided in internal/mandates; here it is only named, matched and published.
package transactions

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"errand/internal/history"
	"errand/internal/lists"
	"errand/internal/lists/sweep"
	"errand/internal/mandates"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// Config is what a List needs. All is required.
type Config struct {
	lists.Store  // its Requests: what enrollments say of order numbers
	Read         func(ctx context.Context, page int) (mandate.Page, error)
	Times        *mandates.Times
	WithoutPayer bool // events hold nothing of the payer

	// Published is called for each event that was stored.
	Published func(messages.TransactionKind, messages.Confidence)
	// Duplicate is called for a request that has two applications.
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

// New makes a List that knows nothing yet.
func New(c Config) *List {
	l := &List{Config: c}
	l.forget()
	return l
}

// Reset forgets what was read and learned: all is read and learned again.
func (l *List) Reset() {
	l.Store.Reset()
	l.forget()
}

func (l *List) forget() {
	l.states.mu.Lock()
	defer l.states.mu.Unlock()
	l.orders, l.applications, l.states.last = orders{}, map[string]application{}, map[uint64]last{}
}

// MaxPage is how many bytes a page may have: one record with a large field must not stop the others.
const MaxPage = 4 << 20

// Kept also forgets the requests whose events are gone.
func (l *List) Kept(ctx context.Context) (time.Time, error) {
	since, err := l.Store.Kept(ctx)
	l.orders.forget(since.Add(-time.Hour)) // the stream keeps more than it says: clocks differ, and the requests' times are its
	return since, err
}

// Page reads a page of the list. The service has pages of one size, whatever is asked for.
func (l *List) Page(ctx context.Context, number, _ int) (sweep.Page[Record], error) {
	asked := time.Now()
	page, err := l.Read(ctx, number)
	if err != nil {
		return sweep.Page[Record]{}, err
	}
	return sweep.Page[Record]{Rows: l.rows(page.Records, asked, ""), Total: page.Total}, nil
}

// rows are the rows of records in a reading that was asked for at a time. No state is the last one for certain: what was deducted
// may bounce weeks later.
func (l *List) rows(records []json.RawMessage, asked time.Time, by messages.TransactionBy) []sweep.Row[Record] {
	rows := make([]sweep.Row[Record], len(records))
	for i, raw := range records {
		r := read(raw, l.Times)
		r.by = by
		rows[i] = sweep.Row[Record]{At: r.At, Item: r}
		rows[i].ID, rows[i].Before = l.states.identify(r, asked)
	}
	return rows
}

// Learn brings what is known of states and order numbers up to date.
func (l *List) Learn(ctx context.Context, take func(sweep.Stored)) error {
	l.Times.Learn(ctx)
	if err := l.orders.update(ctx, l.Store); err != nil {
		return err
	}
	return l.Store.Learn(ctx, func(e lists.Stored) error {
		if id, ok := sweep.ParseID(e.ID); ok {
			l.states.note(id, sweep.ID{})
			take(sweep.Stored{ID: id, At: e.At})
		}
		return nil
	})
}

// Publish stores an event for each record, under the request that it is of. A record of which another state was published since it
// was read has none: that may be the later one.
func (l *List) Publish(ctx context.Context, rows []sweep.Row[Record]) (wait func() (stored int, err error)) {
	if err := l.orders.update(ctx, l.Store); err != nil { // their requests may be newer than the last look
		return sweep.Done(0, fmt.Errorf("%w: %w", sweep.ErrBehind, err))
	}
	now := time.Now()
	var events []messages.Event
	var places []int // the row of each event
	for i, row := range rows {
		match := l.orders.match(row.Item)
		if row.Item.Kind == messages.Application && match.Confidence == messages.MatchExact {
			if err := l.compare(ctx, match.Candidates[0], row.Item); err != nil {
				return sweep.Done(0, fmt.Errorf("%w: %w", sweep.ErrBehind, err))
			}
		}
		if l.states.isNext(row) {
			events, places = append(events, row.Item.event(row.ID, match, now, l.WithoutPayer)), append(places, i)
		}
	}
	stored, err := l.Store.Publish(ctx, events)()
	for i, e := range events[:stored] {
		row := rows[places[i]]
		if row.Item.by == "" { // only what was looked up is ahead of the list
			row.Before = sweep.ID{}
		}
		l.states.note(row.ID, row.Before)
		l.Published(kinds[e.Operation], e.Body.(*messages.TransactionBody).Match.Confidence)
	}
	return sweep.Done(append(places, len(rows))[stored], err)
}

// Swept does nothing.
func (l *List) Swept(context.Context, time.Time) error { return nil }

// Record is a record of the transaction list.
type Record struct {
	Kind          messages.Operation // Application or Deduction
	Status        messages.State
	MandateStatus messages.State
	Order         string    // of the mandate; of the record, where that has none
	At            time.Time // when it was made; zero if unknown
	Raw           json.RawMessage

	key   uint64                 // names the record in every process
	state uint64                 // hash of the record and its state, of which ids have 6 bytes
	by    messages.TransactionBy // how it was found; "" means in the list
	kind  string                 // as the service names it, in lower case
	names []string               // order numbers that its request may have, the mandate's first
}

// Kinds of records, as events name them.
var kinds = map[messages.Operation]messages.TransactionKind{
	messages.Application: messages.ApplicationKind, messages.Deduction: messages.DeductionKind}

// read reads a record; what cannot be read is left out. One without an id, or not an object, is known by its bytes. Its state is its
// codes, or their wording where there are none: labels may be translated. A deduction does not change when its mandate does.
func read(raw json.RawMessage, times *mandates.Times) Record {
	r := mandates.ReadRecord(raw)
	out := Record{Kind: messages.Application, Raw: raw, At: timeOf(r.CreatedAt, times), kind: strings.ToLower(r.Type),
		Status: cmp.Or(r.State(), messages.Unknown), MandateStatus: r.MandateState(), Order: cmp.Or(r.MandateOrder, r.Order)}
	mandate := cmp.Or(r.MandateStatus, string(out.MandateStatus))
	if r.Deduction() {
		out.Kind, mandate = messages.Deduction, ""
	}
	name := string(out.Kind) + "\x00" + cmp.Or(r.ID, string(raw))
	out.key = hash(name)
	out.state = hash(name + "\x00" + cmp.Or(r.Status, string(out.Status)) + "\x00" + mandate)
	if r.MandateOrder != "" {
		out.names = append(out.names, r.MandateOrder)
	}
	if r.Order != "" && out.Kind == messages.Application && fold(r.Order) != fold(r.MandateOrder) { // a deduction's own number may be anything
		out.names = append(out.names, r.Order)
	}
	return out
}

// timeOf is when a record was made. A future time counts as unknown: the record would be new for ever.
func timeOf(text string, times *mandates.Times) time.Time {
	if at, ok := times.At(text); ok && at.Before(time.Now().Add(24*time.Hour)) {
		return at
	}
	return time.Time{}
}

func (r Record) event(id sweep.ID, match messages.TransactionMatch, now time.Time, withoutPayer bool) messages.Event {
	request, raw := messages.Unmatched, r.Raw
	b := &messages.TransactionBody{Common: messages.Common{At: messages.Time{Time: now}}, EventID: hex.EncodeToString(id[:]),
		Kind: kinds[r.Kind], Status: string(r.Status), MandateStatus: string(r.MandateStatus), OrderNumber: r.Order, Match: match,
		By: cmp.Or(r.by, messages.ByList)}
	if match.Confidence == messages.MatchExact {
		request = match.Candidates[0]
		b.RequestID, b.Match.Candidates = request, nil
	}
	if withoutPayer {
		raw = history.WithoutPayer(raw)
	}
	if b.Transaction = raw; !bytes.HasPrefix(raw, []byte("{")) || !json.Valid(raw) {
		b.Transaction = json.RawMessage("{}")
	}
	return messages.Event{Operation: r.Kind, State: r.Status, ID: request, Body: b}
}
