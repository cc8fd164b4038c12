// Package lists is for the two pollers, which turn a paged list into events. It says by what a list's events are recognized,
// and where they are kept.
//
//	a page of the list ─► sweep ─► deliveries or transactions ─► sink ─► events, the watermark
//	                        │         what a row means,
//	                        │         and whose it is
//	                        └─ what to read next, so that each state of each row is seen once
//
// sweep knows any paged list, and neither mail nor mandates. deliveries and transactions know no NATS: they are
// tested over a store in memory, which sink's tests hold to the real one. sink is the only package that writes,
// and only while it leads. No package here knows the handlers of requests, with which they share mandates and history.
package lists

import (
	"context"
	"fmt"
	"time"

	"errand/internal/history"
	"errand/internal/lists/sweep"
	"errand/pkg/messages"
)

// Store keeps a list's events, and reads the events about requests that its rows are matched to.
type Store interface {
	sweep.Leadership
	// Reset is called after sweep.ErrReset: Learn and Requests take all again.
	Reset()
	// Learn calls take with what is known of the stored events: see sweep.Sink. It returns take's error.
	Learn(ctx context.Context, take func(Stored) error) error
	// Requests calls take with the events about requests, each kind in order: those stored since a time that it has not taken
	// before. It has everything that was stored before it is called. It returns take's error.
	Requests(ctx context.Context, since time.Time, take func(history.Entry) error) error
	// Publish begins to store events: see sweep.Sink.
	Publish(ctx context.Context, events []messages.Event) (wait func() (stored int, err error))
}

// Stored is what the headers of a stored event say.
type Stored struct {
	Subject   messages.Subject
	At        time.Time // when it was stored
	ID        string    // ce-id
	Recipient string    // Errand-Recipient: of a row of the sending log, whom it is about
}

// StoredAt is what will be known of an event that was stored at a time.
func StoredAt(e messages.Event, at time.Time) Stored {
	s := Stored{Subject: messages.Subject{Operation: e.Operation, State: e.State, ID: e.ID}, At: at, ID: IDOf(e)}
	if b, ok := e.Body.(*messages.DeliveryBody); ok {
		s.Recipient = b.Recipient
	}
	return s
}

// Final ends the id of a final summary.
const Final = ".final"

// IDOf is the ce-id of an event, by which the state of a row, or the contents of a summary, is recognized and not published
// twice. It is "" for an event that is not of a list.
func IDOf(e messages.Event) string {
	switch b := e.Body.(type) {
	case *messages.DeliveryBody:
		return b.EventID
	case *messages.TransactionBody:
		return b.EventID
	case *messages.SummaryBody:
		final := ""
		if b.Final {
			final = Final
		}
		return fmt.Sprintf("%s.%d.%d.%d.%d.%d.%d%s", e.Subject(), b.Recipients, b.Accepted, b.Delivered, b.Deferred, b.Bounced, b.Unknown, final)
	case *messages.Watermark:
		return fmt.Sprintf("%s.%d.%d", e.Type(), b.CompleteThrough.UnixMilli(), b.At.UnixMilli())
	}
	return ""
}
