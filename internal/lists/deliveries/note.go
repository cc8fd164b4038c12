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
	case *messages.OverdueBody:
		s.Note = Place(b.Batch, b.Recipient)
	default:
		s.Note = NoteOf(e)
	}
	return s
}

// note records an event that was stored. It returns false if the event may be about a call that is not known yet.
func (l *Log) note(e StoredEvent) bool {
	if e.State == messages.Summary {
		_, r := l.calls.find(e.Request)
		if r != nil {
			r.reported = reported{maphash.String(seed, e.Note), e.At.UnixMilli(), strings.HasSuffix(e.Note, finalSuffix)}
		}
		return r != nil
	}
	n, ok := parseNote(e.Request, e.Note)
	switch {
	case !ok:
		return true
	case e.State == messages.Overdue:
		l.calls.markOverdue(n.place)
		return true
	}
	if n.place.request == "" {
		n.row.seen = e.At.UnixMilli()
		l.calls.addAmbiguous(n.row, n.id, statusIn(e.State))
		return false
	}
	found := l.calls.observe(n.place, statusIn(e.State), !n.unsure)
	if found {
		l.dirty[e.Request] = struct{}{}
	}
	return found
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

// Place is a recipient in the format of the header Errand-Recipient.
func Place(batch, recipient int) string { return strconv.Itoa(batch) + "." + strconv.Itoa(recipient) }

// rowNote is what the header Errand-Recipient says about a row:
//
//	<batch>.<recipient>   it is certainly of that one
//	<batch>.<recipient>?  it is, as far as is known
//	?<row>                it can be of any of several
//
// Every poller that learns an ambiguous row finds the same calls for it.
type rowNote struct {
	place  place
	unsure bool
	row    row    // of an ambiguous one
	id     uint64 // of that row, whatever its state
}

func (n rowNote) String() string {
	switch {
	case n.id != 0:
		to, from := n.row.to, n.row.from
		return "?" + fmt.Sprintf(rowFormat, uint64(to.plain), uint64(from.plain), n.row.accepted, n.row.created, n.id,
			uint64(to.secret[0]), uint64(from.secret[0]), uint64(to.secret[1]), uint64(from.secret[1]))
	case n.place.request == "":
		return ""
	case n.unsure:
		return Place(n.place.batch, n.place.recipient) + "?"
	}
	return Place(n.place.batch, n.place.recipient)
}

const rowFormat = "%x.%x.%d.%d.%x.%x.%x.%x.%x"

// parseNote reads the note of an event about a row of a request, or of messages.Unmatched.
func parseNote(request, text string) (n rowNote, ok bool) {
	if text, ambiguous := strings.CutPrefix(text, "?"); ambiguous {
		to, from := &n.row.to, &n.row.from
		_, err := fmt.Sscanf(text, rowFormat, &to.plain, &from.plain, &n.row.accepted, &n.row.created, &n.id,
			&to.secret[0], &from.secret[0], &to.secret[1], &from.secret[1])
		return n, err == nil && n.id != 0
	}
	text, n.unsure = strings.CutSuffix(text, "?")
	batch, recipient, _ := strings.Cut(text, ".")
	var wrong, also error
	n.place.request = request
	n.place.batch, wrong = strconv.Atoi(batch)
	n.place.recipient, also = strconv.Atoi(recipient)
	return n, wrong == nil && also == nil
}
