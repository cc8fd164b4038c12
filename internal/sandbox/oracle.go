package sandbox

import (
	"cmp"
	"slices"
	"time"
)

// Oracle is what was really done, whatever the answers said.
type Oracle struct {
	Calls     map[string]int64 `json:"calls"` // by operation: all that arrived completely, including failed ones
	Enroll    Enrollments      `json:"enroll"`
	Mail      Mail             `json:"mail"`
	Callbacks Callbacks        `json:"callbacks"`
	Faults    map[string]int   `json:"faults"` // how often each kind fired
	Log       []LogRow         `json:"log,omitempty"`
	Records   []Record         `json:"records,omitempty"`
}

// Enrollments is what the e-mandate service did.
type Enrollments struct {
	Accepted   int            `json:"accepted"`
	Refused    int            `json:"refused"`
	States     map[string]int `json:"states"`      // by status: New, Approved …
	Deductions map[string]int `json:"deductions"`  // the same of deductions
	Orders     int            `json:"orders"`      // distinct order numbers
	TwiceCount int            `json:"twice_count"` // order numbers with more than one enrollment
	Twice      map[string]int `json:"twice"`       // those order numbers -> how many
	ByOrder    map[string]int `json:"by_order,omitempty"`
}

// Mail is what the email service did.
type Mail struct {
	Accepted    int        `json:"accepted"` // submissions
	Refused     int        `json:"refused"`
	Recipients  int64      `json:"recipients"`   // accepted in total
	Distinct    int        `json:"distinct"`     // distinct pairs of subject and recipient
	Largest     int        `json:"largest"`      // maximum recipients requested in one accepted submission
	TwiceCount  int        `json:"twice_count"`  // pairs accepted more than once
	Twice       []Received `json:"twice"`        // those pairs
	Lost        int        `json:"lost"`         // rows that log_losses removed from the log
	ByRecipient []Received `json:"by_recipient"` // every pair; null in a summary
}

// Received is how often a recipient was accepted for messages with one subject. Domains are in lower case.
type Received struct {
	Subject   string `json:"subject"`
	Recipient string `json:"recipient"`
	Count     int    `json:"count"`
}

// Query says which lists the oracle has; the totals count everything.
type Query struct {
	Summary bool // no ByOrder and ByRecipient, and only the first hundred of each Twice
	Log     bool // also every row of the sending log
	Records bool // also every record of the transaction list
}

// summaryTwice bounds the lists of a summary.
const summaryTwice = 100

// Oracle reports what was really done.
func (s *Sandbox) Oracle(q Query) Oracle {
	o := Oracle{Calls: map[string]int64{}, Faults: s.faults.counts(), Callbacks: s.callback.counts()}
	counts := s.journal.tallies()
	for op := range operations {
		o.Calls[op.String()] = int64(counts[op].Calls)
	}
	o.Enroll, o.Mail = s.registry.oracle(q.Summary), s.outbox.oracle(q.Summary)
	o.Enroll.Refused, o.Mail.Refused = counts[opEnroll].Refused, counts[opSend].Refused
	if q.Log {
		o.Log = s.outbox.history()
	}
	if q.Records {
		o.Records = s.registry.history(time.Now())
	}
	return o
}

// Enrolled returns the number of enrollments of an order number.
func (s *Sandbox) Enrolled(orderNumber string) int {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	return len(s.registry.of(orderNumber))
}

func (l *registry) oracle(summary bool) Enrollments {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := Enrollments{Accepted: len(l.rows), Orders: len(l.last), TwiceCount: len(l.twice), Twice: map[string]int{},
		States: map[string]int{}, Deductions: map[string]int{}}
	now := time.Now()
	for i := range l.rows {
		e.States[txLabels[l.rows[i].status(now)]]++
	}
	for _, d := range l.deductions {
		e.Deductions[txLabels[d.status]]++
	}
	for order, n := range l.twice {
		if summary && len(e.Twice) == summaryTwice {
			break
		}
		e.Twice[order] = n
	}
	if !summary {
		e.ByOrder = make(map[string]int, len(l.last))
		for order := range l.last {
			e.ByOrder[order] = max(1, l.twice[order])
		}
	}
	return e
}

func (o *outbox) oracle(summary bool) Mail {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := Mail{Accepted: len(o.messages), Lost: len(o.lost), Recipients: o.recipients, Distinct: len(o.seen),
		Largest: o.largest, TwiceCount: o.twice, Twice: []Received{}}
	if summary && o.twice == 0 {
		return m
	}
	all := []Received{}
	for one, count := range o.seen {
		all = append(all, Received{one.subject, one.recipient, count})
	}
	slices.SortFunc(all, bySubject)
	for _, r := range all {
		if r.Count > 1 && (!summary || len(m.Twice) < summaryTwice) {
			m.Twice = append(m.Twice, r)
		}
	}
	if !summary {
		m.ByRecipient = all
	}
	return m
}

func bySubject(a, b Received) int {
	return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Recipient, b.Recipient))
}

// LogRow is a row of the sending log with its whole history.
type LogRow struct {
	Subject    string        `json:"subject,omitempty"` // of its message
	EnvelopeID string        `json:"envelope_id"`
	To         string        `json:"to"`
	CreatedAt  time.Time     `json:"created_at"`
	EnteredAt  time.Time     `json:"entered_at"`        // when it was added to the log; later than created_at if it was late
	LeftAt     *time.Time    `json:"left_at,omitempty"` // when it was removed
	States     []ListedState `json:"states"`            // oldest first; empty for a row that a caller inserted
}

// Record is a record of the transaction list with its whole history.
type Record struct {
	ID          string        `json:"id"`
	Type        string        `json:"transaction_type"`
	OrderNumber string        `json:"order_number"` // of its mandate
	States      []ListedState `json:"states"`       // oldest first
}

// ListedState is a state of a row or record, and when the list began to show it.
type ListedState struct {
	State string    `json:"state"`
	Since time.Time `json:"since"`
}

// history returns every row that is or was in the log, in the order of insertion.
func (o *outbox) history() []LogRow {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.appendDue(now)
	all := make([]LogRow, 0, len(o.log)+len(o.lost))
	for _, r := range o.log {
		all = append(all, o.logRow(r, now))
	}
	for _, r := range o.lost {
		left := instantOf(r.at)
		h := o.logRow(r.row, left)
		h.LeftAt = &left
		all = append(all, h)
	}
	slices.SortStableFunc(all, func(a, b LogRow) int { return a.EnteredAt.Compare(b.EnteredAt) })
	return all
}

// logRow returns the history of one row up to a time.
func (o *outbox) logRow(r row, until time.Time) LogRow {
	if r.message == foreignMessage {
		f := o.foreign[r.recipient]
		h := LogRow{EnvelopeID: f.envelope, To: cmp.Or(f.to, unknownRecipient), CreatedAt: instantOf(f.at), EnteredAt: instantOf(f.entered)}
		if f.state != "" {
			h.States = []ListedState{{f.state, h.EnteredAt}}
		}
		return h
	}
	p, i := o.messages[r.message], int(r.recipient)
	event := instantOf(p.eventAt(i))
	h := LogRow{Subject: p.subject, EnvelopeID: p.envelope(o.seed), To: p.to[i], CreatedAt: event, EnteredAt: event}
	for _, at := range []time.Time{event, event.Add(time.Duration(p.settings.DeferredFor))} {
		if state := p.state(o.seed, i, at); !at.After(until) && (len(h.States) == 0 || h.States[0].State != state) {
			h.States = append(h.States, ListedState{state, at})
		}
	}
	return h
}

func instantOf(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// history returns every record that is listed, in the order in which they came.
func (l *registry) history(now time.Time) []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Record, 0, len(l.listed))
	for _, place := range l.listed {
		r := l.record(place)
		h := Record{ID: r.reference("TXN"), Type: r.kind(), OrderNumber: r.order}
		switch status := r.status(now); {
		case r.deduction != nil:
			h.States = []ListedState{{txLabels[status], instantOf(r.deduction.at)}}
		case status == txNew:
			h.States = []ListedState{{txLabels[txNew], instantOf(r.at)}}
		case status == txExpired:
			h.States = []ListedState{{txLabels[txNew], instantOf(r.at)}, {txLabels[status], instantOf(r.expires)}}
		default:
			h.States = []ListedState{{txLabels[txNew], instantOf(r.at)}, {txLabels[status], instantOf(r.decided)}}
		}
		all = append(all, h)
	}
	return all
}
