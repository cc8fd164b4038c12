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
	ID      sweep.ID  // of a row's state; zero: the event is about a whole request
	At      time.Time // when it was stored
	State   messages.State
	Request string // the request's id, for messages.Concluded with the batch's number; or messages.Unmatched
	Note    string // the header Errand-Recipient; for a summary or a conclusion its NoteOf
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

// note records an event that was stored. It returns false if the event may be about a
// call that is not known yet.
func (l *Log) note(e StoredEvent) bool {
	if e.State == messages.Summary || e.State == messages.Concluded {
		return l.noteReport(e)
	}
	n, ok := parseNote(e.Request, e.Note)
	switch {
	case !ok:
		return true
	case e.State == messages.Overdue:
		l.calls.markOverdue(n.place)
		return true
	}
	found := true
	if n.place.request != "" {
		if found = l.calls.observe(n.place, statusIn(e.State), n.sign == '!' || n.sign == 0 && !e.At.Before(l.trusted)); found {
			l.dirty[e.Request] = struct{}{}
		}
	}
	if n.row.to.folded == 0 {
		return found
	}
	n.row.seen = e.At.UnixMilli()
	l.calls.doubt(n.row)
	if n.place.request == "" && n.id != 0 {
		l.calls.addAmbiguous(n.row, n.id, statusIn(e.State))
	}
	return false
}

// noteReport records a summary or a conclusion that was stored.
func (l *Log) noteReport(e StoredEvent) bool {
	id, number, _ := strings.Cut(e.Request, ".")
	_, r := l.calls.find(id)
	if r == nil {
		return false
	}
	if e.State == messages.Summary {
		r.reported = reported{maphash.String(seed, e.Note), e.At.UnixMilli(), strings.HasSuffix(e.Note, finalSuffix)}
		return true
	}
	n, _ := strconv.Atoi(number)
	if u := l.open[id]; u != nil {
		if f, ok := u.fates[n]; ok {
			f.concluded = e.Note
			u.fates[n] = f
		}
	}
	return true
}

// NoteOf identifies the contents of a summary or a conclusion, so that the same is not
// published twice. It is "" for any other event.
func NoteOf(e messages.Event) string {
	switch b := e.Body.(type) {
	case *messages.SummaryBody:
		note := fmt.Sprintf("%s.%d.%d.%d.%d.%d.%d", e.Subject(), b.Recipients, b.Accepted, b.Delivered, b.Deferred, b.Bounced, b.Unknown)
		if b.Final {
			note += finalSuffix
		}
		return note
	case *messages.ConcludedBody:
		return fmt.Sprintf("%s.%d.%s", e.Subject(), b.Until.UnixMilli(), b.Outcome)
	}
	return ""
}

const finalSuffix = ".final"

// Place is a recipient in the format of the header Errand-Recipient.
func Place(batch, recipient int) string { return strconv.Itoa(batch) + "." + strconv.Itoa(recipient) }

// rowNote is what the header Errand-Recipient says about a row:
//
//	<batch>.<recipient>        it is certainly of that one
//	<batch>.<recipient>?       it is, as far as is known
//	<batch>.<recipient>?<row>  likewise; or it is of another call of unknown fate
//	<batch>.<recipient>!<row>  it certainly is, of a call of unknown fate; a clock may be wrong
//	?<row>                     it is of none, or of any of several
//
// Whoever learns a row finds the same calls for it.
type rowNote struct {
	place place
	sign  byte // '?', '!' or 0
	row   row
	id    uint64 // of the row, whatever its state; 0: unknown
}

func (n rowNote) String() string {
	text := ""
	if n.place.request != "" {
		text = Place(n.place.batch, n.place.recipient)
	}
	if n.sign != 0 {
		text += string(n.sign)
	}
	if n.sign != 0 && n.row.to.folded != 0 {
		text += fmt.Sprintf(rowFormat, uint64(n.row.to.folded), uint64(n.row.from.folded), n.row.accepted, n.row.created, n.id, uint64(n.row.to.exact), uint64(n.row.from.exact))
		none := ""
		for i, to := range n.row.to.secret {
			from := n.row.from.secret[i]
			if to == 0 && from == 0 { // it is written only for what comes after it
				none += ".0.0"
				continue
			}
			text += none + fmt.Sprintf(secretFormat, uint64(to), uint64(from))
			none = ""
		}
	}
	return text
}

// rowFormat is a row in a note; earlier versions end it after its fourth number. The keys
// that a secret makes follow, a secretFormat for each, and earlier versions overlook them.
const (
	rowFormat    = "%x.%x.%d.%d.%x.%x.%x"
	secretFormat = ".%x.%x"
)

// parseNote reads the note of an event about a row of a request, or of messages.Unmatched.
func parseNote(request, text string) (n rowNote, ok bool) {
	at := text
	if i := strings.IndexAny(text, "?!"); i >= 0 {
		var to, from party
		if at, n.sign = text[:i], text[i]; i+1 < len(text) {
			got, _ := fmt.Sscanf(text[i+1:], rowFormat+secretFormat+secretFormat, &to.folded, &from.folded, &n.row.accepted, &n.row.created, &n.id, &to.exact, &from.exact,
				&to.secret[0], &from.secret[0], &to.secret[1], &from.secret[1])
			if got < 7 {
				to.exact, from.exact, n.id = to.folded, from.folded, 0
			}
			if n.row.to, n.row.from = to, from; got < 4 || to.folded == 0 {
				return n, false
			}
		}
	}
	if at == "" {
		return n, n.sign != 0
	}
	batch, recipient, _ := strings.Cut(at, ".")
	var wrong, also error
	n.place.request = request
	n.place.batch, wrong = strconv.Atoi(batch)
	n.place.recipient, also = strconv.Atoi(recipient)
	return n, wrong == nil && also == nil
}
