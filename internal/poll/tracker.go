package poll

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"errand/internal/match"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// Requests is where the mail consumer publishes events about its requests and calls.
type Requests interface {
	// Requests yields the records of calls (mail.log.sent) and then the events of
	// requests, each in order: those since a time, without those that it has yielded
	// before. Everything that was stored before the call is among them, and each outcome
	// comes after the record of its call.
	Requests(ctx context.Context, since time.Time) iter.Seq2[Record, error]
	// Resolve stores mail.send.resolved if the event with the sequence over is still the
	// last one. It is no error if another poller did so.
	Resolve(ctx context.Context, e messages.Event, over uint64) error
}

// Record is one event of the mail consumer.
type Record struct {
	Subject  string
	Sequence uint64
	Body     []byte
}

// Reports configures how rows are matched to requests, and what is published about
// requests.
type Reports struct {
	Requests      Requests      // nil: every row is unmatched, and nothing is published about requests
	Recipients    int           // maximum number of recipients, see match.Index
	ReportAfter   time.Duration // when the summary of a request is final in any case
	ConcludeAfter time.Duration // how long after a call of unknown fate the log must be complete
	OverdueAfter  time.Duration // when an accepted recipient without a row is overdue; 0: never

	// Matched, if set, is called for each new row with the confidence of its match.
	Matched func(messages.Confidence)
}

// tracker holds what is known about requests, and what was published about them. Like
// memory, it is rebuilt from the events. A nil tracker does nothing.
type tracker struct {
	*Reports
	index     match.Index
	requests  map[string]*request
	dirty     map[string]*request // with counts that may have to be published
	open      map[string]*request // with batches of unknown fate
	since     time.Time           // it knows what was published since then; zero: everything
	read      bool                // the requests were read at least once
	updated   time.Time           // when they were last read
	unmatched []StoredEvent       // learned events about requests that are not known yet
	scanned   time.Time           // when all requests were last scanned
}

// request is a mail.send request and what is known about it.
type request struct {
	batches     int // 0: unknown
	recipients  int
	accepted    int            // recipients accepted according to the events so far
	outcome     messages.State // "" until there is one
	sequence    uint64         // of the outcome's event
	at          time.Time      // of its last event
	fingerprint string
	unknown     int          // uncertain batches in its outcome; negative: unknown
	fates       map[int]fate // of batches of unknown fate
	counts      match.Counts

	summary   string // NoteOf the last one published
	summaryAt time.Time
	final     bool // the last one was the final one
}

// fate is what is known about a batch that may or may not have been accepted.
type fate struct {
	waiting   bool      // the request waits for a conclusion from the log
	over      time.Time // its last call had ended by then
	count     int
	concluded string // NoteOf the last conclusion published
}

func (r *Reports) newTracker() *tracker {
	if r.Requests == nil {
		return nil
	}
	return &tracker{Reports: r, index: match.Index{MaxRecipients: r.Recipients}, requests: map[string]*request{},
		dirty: map[string]*request{}, open: map[string]*request{}}
}

// window is how long after its call a row can appear or change and still be matched.
func (l *tracker) window() time.Duration { return max(l.ReportAfter, 5*24*time.Hour) + 24*time.Hour }

// reach is how far back published events must be learned if the sweep needs those since
// a time.
func (l *tracker) reach(since time.Time) time.Time {
	if l == nil {
		return since
	}
	return earlier(since, l.since)
}

// update reads what the mail consumer has stored by now. complete is how far the log had
// been published when the tracker was new.
func (l *tracker) update(ctx context.Context, complete time.Time) error {
	if l == nil {
		return nil
	}
	if !l.read && !complete.IsZero() {
		l.since = complete.Add(-l.window())
	}
	now := time.Now()
	for record, err := range l.Requests.Requests(ctx, l.since) {
		if err != nil {
			return fmt.Errorf("poll: read requests: %w", err)
		}
		l.take(record)
	}
	l.read, l.updated = true, now
	return nil
}

// match finds the requests that rows belong to; rows[i] is the row of events[i].
func (l *tracker) match(ctx context.Context, complete time.Time, events []messages.Event, rows []mail.Entry) error {
	if l == nil || len(rows) == 0 {
		return nil
	}
	// A record is older than its call, so the records of old rows have all been read.
	if recent := func(row mail.Entry) bool { return row.CreatedAt.IsZero() || row.CreatedAt.After(l.updated.Add(-keep)) }; slices.ContainsFunc(rows, recent) {
		if err := l.update(ctx, complete); err != nil {
			return err
		}
	}
	for i, row := range rows {
		e, body := &events[i], events[i].Body.(*messages.DeliveryBody)
		r := match.Row{To: keyOf(row.To), From: keyOf(row.From), Accepted: match.AcceptedAt(row.EnvelopeID, row.CreatedAt), Created: row.CreatedAt}
		m := l.index.Find(r)
		body.Match = messages.Match{Confidence: m.Confidence, Batch: m.Batch, Candidates: m.Candidates}
		switch m.Confidence {
		case messages.MatchExact, messages.MatchUnique:
			e.ID, body.RequestID, body.Recipient = m.Request, m.Request, Place(m.Batch, m.Recipient)
		default:
			if m.Confidence == messages.MatchAmbiguous || m.Doubtful {
				body.Recipient = doubt(r)
			}
		}
		if l.Matched != nil {
			l.Matched(m.Confidence)
		}
	}
	return nil
}

func keyOf(text string) messages.Key {
	address, err := messages.ParseRecipient(text)
	if err != nil {
		return messages.KeyOf(text)
	}
	return messages.KeyOf(address)
}

// Place is a recipient in the format of the header Errand-Recipient.
func Place(batch, recipient int) string { return strconv.Itoa(batch) + "." + strconv.Itoa(recipient) }

func placeOf(text string) (batch, recipient int, ok bool) {
	a, b, ok := strings.Cut(text, ".")
	batch, err := strconv.Atoi(a)
	recipient, wrong := strconv.Atoi(b)
	return batch, recipient, ok && err == nil && wrong == nil
}

// doubt is a row that may belong to several requests, or to one if a clock is wrong, in
// the format of the header Errand-Recipient: whoever learns it finds the same requests.
func doubt(r match.Row) string {
	return fmt.Sprintf("?%x.%x.%d.%d", uint64(r.To), uint64(r.From), milliseconds(r.Accepted), milliseconds(r.Created))
}

func doubtOf(text string) (r match.Row, ok bool) {
	var to, from uint64
	var accepted, created int64
	if n, err := fmt.Sscanf(text, "?%x.%x.%d.%d", &to, &from, &accepted, &created); n != 4 || err != nil {
		return match.Row{}, false
	}
	return match.Row{To: messages.Key(to), From: messages.Key(from), Accepted: instant(accepted), Created: instant(created)}, true
}

func milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// published records an event that this poller stored.
func (l *tracker) published(e messages.Event) {
	if l == nil {
		return
	}
	t := StoredEvent{State: e.State, Request: e.ID, At: time.Now(), Note: NoteOf(e)}
	switch b := e.Body.(type) {
	case *messages.DeliveryBody:
		t.Note = b.Recipient
	case *messages.OverdueBody:
		t.Note = Place(b.Batch, b.Recipient)
	}
	if t.Note != "" {
		l.note(t)
	}
}

// learn records an event that was learned from the sink.
func (l *tracker) learn(t StoredEvent) {
	if l == nil || t.Note == "" {
		return
	}
	if !l.note(t) && time.Since(t.At) < time.Hour {
		l.unmatched = append(l.unmatched, t)
	}
}

// noteLate records learned events about calls that were made while the events were being
// learned.
func (l *tracker) noteLate(ctx context.Context) error {
	if l == nil || len(l.unmatched) == 0 {
		return nil
	}
	if err := l.update(ctx, time.Time{}); err != nil {
		return err
	}
	for _, t := range l.unmatched {
		l.note(t)
	}
	l.unmatched = nil
	return nil
}

// note records an event. It returns false if the event may be about a request that is
// not known yet.
func (l *tracker) note(t StoredEvent) bool {
	id, _, _ := strings.Cut(t.Request, ".")
	r := l.requests[id]
	row, doubtful := doubtOf(t.Note)
	switch {
	case doubtful:
		l.index.Doubt(row)
		return false
	case r == nil:
		return false
	}
	batch, recipient, placed := placeOf(t.Note)
	switch t.State {
	case messages.Summary:
		r.summary, r.summaryAt, r.final = t.Note, t.At, strings.HasSuffix(t.Note, finalSuffix)
	case messages.Concluded:
		if n, f, ok := r.fate(t.Request); ok {
			f.concluded = t.Note
			r.fates[n] = f
		}
	case messages.Overdue:
		l.index.MarkOverdue(id, batch, recipient)
	default:
		before, after, ok := l.index.Observe(id, batch, recipient, match.StateOf(t.State))
		if !placed || !ok {
			return false
		}
		if before != after {
			if before != match.Unseen {
				r.counts[before]--
			}
			r.counts[after]++
			l.dirty[id] = r
		}
	}
	return true
}

// fate returns the fate of a batch by its BatchID.
func (r *request) fate(id string) (n int, f fate, ok bool) {
	_, number, _ := strings.Cut(id, ".")
	n, err := strconv.Atoi(number)
	f, ok = r.fates[n]
	return n, f, ok && err == nil
}
