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

// Requests is where the consumer of messages tells of its requests and calls.
type Requests interface {
	// Requests gives the records of calls (mail.log.sent) and then the events of
	// requests, each in order: those since a time, or those that it did not give
	// before. What was stored before it was called is among them, and each outcome
	// comes after the record of its call.
	Requests(ctx context.Context, since time.Time) iter.Seq2[Record, error]
	// Resolve stores mail.send.resolved over the event with the sequence over. It is
	// no error if somebody else did.
	Resolve(ctx context.Context, e messages.Event, over uint64) error
}

// Record is one event of the consumer of messages.
type Record struct {
	Subject  string
	Sequence uint64
	Body     []byte
}

// Reports are how rows are tied to requests, and what is told of requests.
type Reports struct {
	Requests      Requests      // nil: every row is unmatched, and nothing is told of requests
	Recipients    int           // most recipients to know, see match.Index
	ReportAfter   time.Duration // after which the summary of a request is final in any case
	ConcludeAfter time.Duration // how far the log must be known beyond a call of unknown fate
	OverdueAfter  time.Duration // after which an accepted recipient without a row is told of; 0: never

	// Matched, if set, hears of each row that was matched, or was not.
	Matched func(messages.Confidence)
}

// ledger is what is known of requests, and of what was told about them. Like memory it
// is rebuilt from the events. A nil ledger knows nothing.
type ledger struct {
	*Reports
	index    match.Index
	requests map[string]*request
	dirty    map[string]*request // with counts that may have to be told
	open     map[string]*request // with batches of unknown fate
	since    time.Time           // it knows what was told since then; zero: everything
	read     bool                // the requests were read once
	updated  time.Time           // when they were read last
	late     []Told              // learned of batches that are not known yet
	scanned  time.Time           // when every request was looked at
}

// request is one message to many and what became of it.
type request struct {
	batches    int // 0: not known
	recipients int
	accepted   int            // recipients, as far as is told
	outcome    messages.State // "" while there is none
	sequence   uint64         // of the outcome's event
	at         time.Time      // of its last event
	print      string         // fingerprint
	unknown    int            // batches that its outcome says are uncertain; less than 0: not known
	fates      map[int]fate   // of batches of unknown fate
	counts     match.Counts

	summary   string // NoteOf the last one told
	summaryAt time.Time
	final     bool // it was the final one
}

// fate is that of a batch of which nobody knows whether it was accepted.
type fate struct {
	waiting bool      // it is not final: the request waits for what the log says
	over    time.Time // its last call was over by then
	count   int
	told    string // NoteOf the conclusion told last
}

func (r *Reports) ledger() *ledger {
	if r.Requests == nil {
		return nil
	}
	return &ledger{Reports: r, index: match.Index{Most: r.Recipients}, requests: map[string]*request{},
		dirty: map[string]*request{}, open: map[string]*request{}}
}

// window is how long after its call a row may come or change and be matched.
func (l *ledger) window() time.Duration { return max(l.ReportAfter, 5*24*time.Hour) + 24*time.Hour }

// reach is how far back what was told must be learned, when the sweep needs since.
func (l *ledger) reach(since time.Time) time.Time {
	if l == nil {
		return since
	}
	return earlier(since, l.since)
}

// update brings the ledger up to what the consumer told before now. complete: up to
// where the log was told when the ledger is new.
func (l *ledger) update(ctx context.Context, complete time.Time) error {
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

// match ties rows to the requests that they are of; rows[i] is that of events[i].
func (l *ledger) match(ctx context.Context, complete time.Time, events []messages.Event, rows []mail.Entry) error {
	if l == nil || len(rows) == 0 {
		return nil
	}
	// A record is older than its call: those of old rows are all there.
	if young := func(row mail.Entry) bool { return row.CreatedAt.IsZero() || row.CreatedAt.After(l.updated.Add(-keep)) }; slices.ContainsFunc(rows, young) {
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

// Place is a recipient as the header Errand-Recipient has it.
func Place(batch, recipient int) string { return strconv.Itoa(batch) + "." + strconv.Itoa(recipient) }

func placeOf(text string) (batch, recipient int, ok bool) {
	a, b, ok := strings.Cut(text, ".")
	batch, err := strconv.Atoi(a)
	recipient, wrong := strconv.Atoi(b)
	return batch, recipient, ok && err == nil && wrong == nil
}

// doubt is a row that may be of several requests, or of one by a wrong clock, as the
// header Errand-Recipient has it: whoever learns of it finds the same requests again.
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

// told notes an event that this poller stored.
func (l *ledger) told(e messages.Event) {
	if l == nil {
		return
	}
	t := Told{State: e.State, Request: e.ID, At: time.Now(), Note: NoteOf(e)}
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

// learn notes an event that is stored.
func (l *ledger) learn(t Told) {
	if l == nil || t.Note == "" {
		return
	}
	if !l.note(t) && time.Since(t.At) < time.Hour {
		l.late = append(l.late, t)
	}
}

// learned notes what is told of calls that came up while it was learned.
func (l *ledger) learned(ctx context.Context) error {
	if l == nil || len(l.late) == 0 {
		return nil
	}
	if err := l.update(ctx, time.Time{}); err != nil {
		return err
	}
	for _, t := range l.late {
		l.note(t)
	}
	l.late = nil
	return nil
}

// note reports false for what may be of a request that is not known.
func (l *ledger) note(t Told) bool {
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
		r.summary, r.summaryAt, r.final = t.Note, t.At, strings.HasSuffix(t.Note, finally)
	case messages.Concluded:
		if n, f, ok := r.fate(t.Request); ok {
			f.told = t.Note
			r.fates[n] = f
		}
	case messages.Overdue:
		l.index.Overdue(id, batch, recipient)
	default:
		before, after, ok := l.index.See(id, batch, recipient, match.StateOf(t.State))
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

// fate is that of a batch by its BatchID.
func (r *request) fate(id string) (n int, f fate, ok bool) {
	_, number, _ := strings.Cut(id, ".")
	n, err := strconv.Atoi(number)
	f, ok = r.fates[n]
	return n, f, ok && err == nil
}
