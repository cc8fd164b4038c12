// Package deliveries is a stand-in for the real one: only what internal/sink needs of it.
package deliveries

import (
	"encoding/hex"
	"strconv"
	"time"

	"errand/internal/sweep"
	"errand/pkg/messages"
)

// StoredEvent is an event that was stored.
type StoredEvent struct {
	ID      sweep.ID  // of a row's state; zero: the event is about a whole request
	At      time.Time // when it was stored
	State   messages.State
	Request string // the request's id, for messages.Concluded with the batch's number; or messages.Unmatched
	Note    string // the header Errand-Recipient; for a summary or a conclusion its NoteOf
}

// Record is one event of the mail consumer.
type Record struct {
	Subject  string
	Sequence uint64
	Body     []byte
}

// ParseID reads an id as it is written in events: 32 hex digits.
func ParseID(text string) (id sweep.ID, ok bool) {
	if len(text) != hex.EncodedLen(len(id)) {
		return sweep.ID{}, false
	}
	_, err := hex.Decode(id[:], []byte(text))
	return id, err == nil
}

// Place is a recipient in the format of the header Errand-Recipient.
func Place(batch, recipient int) string { return strconv.Itoa(batch) + "." + strconv.Itoa(recipient) }

// NoteOf identifies the contents of a summary or a conclusion, so that the same is not
// published twice.
func NoteOf(e messages.Event) string {
	note := e.Subject()
	number := func(n int) { note += "." + strconv.Itoa(n) }
	switch b := e.Body.(type) {
	case *messages.SummaryBody:
		for _, n := range []int{b.Recipients, b.Accepted, b.Delivered, b.Deferred, b.Bounced, b.Unknown} {
			number(n)
		}
		if b.Final {
			note += ".final"
		}
	case *messages.ConcludedBody:
		note += "." + strconv.FormatInt(b.Until.UnixMilli(), 10) + "." + string(b.Outcome)
	}
	return note
}
