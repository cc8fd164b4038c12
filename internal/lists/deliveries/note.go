package deliveries

import (
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	"errand/internal/lists/sweep"
	"errand/pkg/messages"
)

// StoredEvent is an event that was stored.
type StoredEvent struct {
	ID      sweep.ID  // of a row's state; zero if the event is about a whole request
	At      time.Time // when it was stored
	State   messages.State
	Request string // the request's id, or messages.Unmatched
	Note    string // the header Errand-Recipient; for a summary its NoteOf
}

// storedEvent is what is learned from an event.
func storedEvent(e messages.Event, at time.Time) StoredEvent {
	s := StoredEvent{At: at, State: e.State, Request: e.ID}
	switch b := e.Body.(type) {
	case *messages.DeliveryBody:
		s.ID, _ = sweep.ParseID(b.EventID)
		s.Note = b.Recipient
	default:
		s.Note = NoteOf(e)
	}
	return s
}

// note records an event that was stored. It returns false if the event may be about a call that is not known yet.
func (l *Log) note(e StoredEvent) bool {
	g, request, known := l.calls.find(e.Request)
	if e.State == messages.Summary {
		if known {
			r := &g.requests[request]
			r.note, r.reported, r.final = maphash.String(seed, e.Note), e.At.UnixMilli(), strings.HasSuffix(e.Note, finalSuffix)
		}
		return known
	}
	n, ok := parseNote(e.Request, e.Note)
	if !ok {
		return true
	}
	if known = l.calls.observe(n.place, e.ID.Key(), statusIn(e.State), !n.unsure); known {
		g.change(request)
	}
	return known
}

// NoteOf identifies the contents of a summary, so that the same is not published twice. It is "" for any other event.
func NoteOf(e messages.Event) string {
	b, ok := e.Body.(*messages.SummaryBody)
	if !ok {
		return ""
	}
	note := fmt.Sprintf("%s.%d.%d.%d.%d.%d.%d", e.Subject(), b.Recipients, b.Accepted, b.Delivered, b.Deferred, b.Bounced, b.Unknown)
	if b.Final {
		note += finalSuffix
	}
	return note
}

const finalSuffix = ".final"

// rowNote is what the header Errand-Recipient says about a row:
//
//	<batch>.<recipient>   it is certainly of that one
//	<batch>.<recipient>?  it is, as far as is known
type rowNote struct {
	place
	unsure bool
}

func (n rowNote) String() string {
	text := strconv.Itoa(n.batch) + "." + strconv.Itoa(n.recipient)
	if n.unsure {
		text += "?"
	}
	return text
}

// parseNote reads the note of an event about a row of a request.
func parseNote(request, text string) (n rowNote, ok bool) {
	text, n.unsure = strings.CutSuffix(text, "?")
	batch, recipient, _ := strings.Cut(text, ".")
	var wrong, also error
	n.request = request
	n.batch, wrong = strconv.Atoi(batch)
	n.recipient, also = strconv.Atoi(recipient)
	return n, wrong == nil && also == nil
}
