// Package deliveries turns the rows of the email service's sending log into events, finds each row's request, and sums
// up what the log shows of requests. A submission has no id at the service, so a row is matched to a call by what both
// have: the recipient, the sender and the time of acceptance.
//
//	Requests ─► calls by recipient ─┐
//	Page ─► rows ─► Publish: match ─┴─► mail.delivery.<status>
//	Swept ─► mail.delivery.summary, mail.send.resolved
//
//	deliveries.go  the log as the list and the sink of a sweeper; whose mail bounced for good, for the suppressions
//	row.go         a row: its identity, ids, times and state
//	requests.go    reads what the mail consumer publishes about its requests and calls
//	calls.go       recent calls, and how many are kept; addresses.go by whom they were made to; recipients.go what became of these
//	match.go       a row's call, by the clock of the service
//	report.go      summaries, and resolves requests of unknown fate that rows prove to have been sent
//
// Only match.go decides whose a row is, and only an exact match may prove anything.
package deliveries

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"errand/internal/lists"
	"errand/internal/lists/sweep"
	"errand/internal/wire/mailkey"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// Store also stores what became of requests.
type Store interface {
	lists.Store
	// Resolve stores mail.send.resolved over the event with a sequence. Another poller's before it is not an error.
	Resolve(ctx context.Context, e messages.Event, over uint64) error
}

// Config is what a Log needs. Read, Store and Published are required.
type Config struct {
	Store
	Read        func(ctx context.Context, page, limit int) (mail.LogPage, error)
	Recipients  int               // maximum number of recipients to keep; 0 means no limit
	ReportAfter time.Duration     // when the summary of a request is final in any case
	Secrets     []*mailkey.Secret // that the mail consumer may have made the keys of addresses with, at most maxSecrets
	LostSecrets []string          // ids of secrets whose keys match nothing

	// Suppress, if set, stores of which addresses mail bounced for good. It is called before the events that say so are stored: if the
	// poller dies between the two, the rows are published again, and their suppressions say the same again.
	Suppress func(context.Context, []Bounce) error
	// Published is called for each event about a row that was stored.
	Published func(messages.State, messages.Confidence)
	// Dropped, if set, is called when the oldest recipients were forgotten: rows are matched only to requests since that time.
	Dropped func(recipients int, since time.Time)
}

// maxSecrets is how many secrets are known at once: two, while one is replaced, and the one in NATS.
const maxSecrets = 3

// Bounce is a mail that was refused for good, and is certainly of a request.
type Bounce struct {
	To        mailkey.Key // of the first of the secrets
	At        time.Time
	RequestID string
	SMTP      messages.SMTP
}

// Log is the sending log, with what the events say of requests. Page may be called while another method is.
type Log struct {
	Config
	clock clock
	calls calls
	held  atomic.Int64          // recipients
	open  map[string]*unsettled // requests that ended uncertain

	since   time.Time // requests were read since then; zero if all were
	updated bool      // they were read
	scanned time.Time // when all requests were last scanned

	unreadable error // a record has keys of an unknown secret: nothing is published
}

// New makes a Log that knows nothing yet.
func New(c Config) *Log {
	l := &Log{Config: c}
	l.forget()
	return l
}

// Reset forgets what was read and learned: all is read and learned again.
func (l *Log) Reset() {
	l.Store.Reset()
	l.forget()
}

func (l *Log) forget() {
	l.calls, l.open = calls{max: l.Recipients, dropped: l.Dropped}, map[string]*unsettled{}
	l.since, l.updated, l.scanned = time.Time{}, false, time.Time{}
}

// Page reads a page of the log.
func (l *Log) Page(ctx context.Context, number, limit int) (sweep.Page[mail.Entry], error) {
	asked := time.Now()
	page, err := l.Read(ctx, number, limit)
	if err != nil {
		return sweep.Page[mail.Entry]{}, err
	}
	now := time.Now()
	l.clock.observe(asked, page.Date, now)
	return sweep.Page[mail.Entry]{Rows: rowsOf(page.Entries, now), Total: page.TotalRecord}, nil
}

// Learn brings what is known about requests up to date.
func (l *Log) Learn(ctx context.Context, take func(sweep.Stored)) error {
	if l.updated { // a standby has no sweeps
		l.calls.forget(time.Now().Add(-l.window()))
	}
	if err := l.update(ctx); err != nil {
		return err
	}
	again := false
	return l.Store.Learn(ctx, func(e lists.Stored) error {
		if !l.note(e) && !again { // of a standby it may be about a call that was made since
			again = true
			if err := l.update(ctx); err != nil {
				return err
			}
			l.note(e)
		}
		if id, isRow := sweep.ParseID(e.ID); isRow {
			open := e.Subject.State == messages.Deferred || e.Subject.State == messages.Unknown
			take(sweep.Stored{ID: id, At: e.At, Open: open})
		}
		return nil
	})
}

// Publish begins to store an event for each row, under the request that it is of.
func (l *Log) Publish(ctx context.Context, rows []sweep.Row[mail.Entry]) (wait func() (stored int, err error)) {
	if err := l.update(ctx); err != nil {
		return sweep.Done(0, err)
	}
	now, offset := time.Now(), l.clock.offset()
	events := make([]messages.Event, len(rows))
	var bounces []Bounce
	for i, r := range rows {
		of := rowOf(r.Item, now, offset)
		e, f := l.eventFor(r, &of, now)
		if e.State == messages.Bounced && f.in != nil && l.Suppress != nil && !l.calls.known(f.request).erased {
			at := time.UnixMilli(min(cmp.Or(of.created, of.seen), of.seen))
			bounces = append(bounces, Bounce{of.to[0], at, f.request, e.Body.(*messages.DeliveryBody).SMTP})
		}
		if events[i] = e; f.in != nil { // a row after it cannot be of the same recipient
			f.in.take(f.at, r.ID.Key(), f.Confidence == messages.MatchExact)
		}
	}
	if len(bounces) > 0 {
		if err := l.Suppress(ctx, bounces); err != nil {
			return sweep.Done(0, fmt.Errorf("%w: %w", sweep.ErrBehind, err))
		}
	}
	return l.store(ctx, events)
}

// store begins to store events. The wait notes those that were stored.
func (l *Log) store(ctx context.Context, events []messages.Event) func() (stored int, err error) {
	wait := l.Store.Publish(ctx, events)
	return func() (int, error) {
		stored, err := wait()
		for _, e := range events[:stored] {
			l.note(lists.StoredAt(e, time.Now()))
			if b, isRow := e.Body.(*messages.DeliveryBody); isRow {
				l.Published(e.State, b.Match.Confidence)
			}
		}
		return stored, err
	}
}

// eventFor is the event about a row, under the request that it is of.
func (l *Log) eventFor(listed sweep.Row[mail.Entry], r *row, now time.Time) (messages.Event, found) {
	r.id = listed.ID.Key()
	for i, known := range l.Secrets {
		r.to[i], r.from[i] = known.KeyOf(listed.Item.To), known.KeyOf(listed.Item.From)
	}
	f := l.calls.match(*r)
	reply := listed.Item.Reply()
	body := &messages.DeliveryBody{Common: messages.Common{At: messages.Time{Time: now}}, EventID: hex.EncodeToString(listed.ID[:]),
		Entry: listed.Item.Raw, SMTP: reply, Match: f.Match}
	e := messages.Event{Operation: messages.Delivery, State: statusOf(listed.Item, reply), ID: messages.Unmatched, Body: body}
	if f.in == nil {
		return e, f
	}
	e.ID, body.RequestID = f.request, f.request
	body.Recipient = noteOf(f.place, f.Confidence == messages.MatchExact)
	if l.calls.known(f.request).erased {
		body.Entry, body.Recipient = json.RawMessage("{}"), ""
	}
	return e, f
}
