package sandbox

import (
	"cmp"
	"maps"
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
	Refused    int64          `json:"refused"`
	V2         int            `json:"v2"` // of those accepted
	V3         int            `json:"v3"`
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
	Refused     int64      `json:"refused"`
	Recipients  int64      `json:"recipients"`   // accepted in total
	Distinct    int        `json:"distinct"`     // distinct pairs of subject and recipient
	Largest     int        `json:"largest"`      // maximum recipients requested in one accepted submission
	TwiceCount  int        `json:"twice_count"`  // pairs accepted more than once
	Twice       []Received `json:"twice"`        // those pairs
	Lost        int        `json:"lost"`         // rows that log_losses removed from the log
	ByRecipient []Received `json:"by_recipient"` // every pair; null in a summary and in a lean sandbox
}

// Received is how often a recipient was accepted for messages with one subject. Domains are compared without case.
type Received struct {
	Subject   string `json:"subject"`
	Recipient string `json:"recipient"`
	Count     int    `json:"count"`
}

// Query narrows the oracle's lists; the totals count everything. A query for an order number or a recipient implies Summary
// for the other service.
type Query struct {
	OrderNumber string // only this one in Twice and ByOrder
	Recipient   string // only this one in Twice and ByRecipient
	Summary     bool   // no ByOrder and ByRecipient, and only the first hundred of each Twice
	Log         bool   // also every row of the sending log
	Records     bool   // also every record of the transaction list
}

// summaryTwice bounds the lists of a summary.
const summaryTwice = 100

// Oracle reports what was really done.
func (s *Sandbox) Oracle(q Query) Oracle {
	o := Oracle{Calls: map[string]int64{}, Faults: s.faults.counts(), Callbacks: s.callback.counts()}
	for op := range operations {
		o.Calls[op.String()] = s.calls[op].Load()
	}
	q.Summary = q.Summary || q.OrderNumber != "" || q.Recipient != ""
	o.Enroll = s.registry.oracle(q)
	o.Mail = s.outbox.oracle(q, s.o.Lean)
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

func (l *registry) oracle(q Query) Enrollments {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := Enrollments{Accepted: len(l.rows), Refused: l.refused.Load(), V2: l.version[2], V3: l.version[3],
		Orders: len(l.last), TwiceCount: len(l.twice), Twice: map[string]int{}, States: map[string]int{}, Deductions: map[string]int{}}
	now := time.Now()
	for i := range l.rows {
		e.States[txLabels[l.rows[i].status(now)]]++
	}
	for _, d := range l.deductions {
		e.Deductions[txLabels[d.status]]++
	}
	if q.OrderNumber != "" {
		if n := len(l.of(q.OrderNumber)); n > 0 {
			e.ByOrder = map[string]int{q.OrderNumber: n}
			if n > 1 {
				e.Twice[q.OrderNumber] = n
			}
		}
		return e
	}
	for order, n := range l.twice {
		if q.Summary && len(e.Twice) == summaryTwice {
			break
		}
		e.Twice[order] = n
	}
	if !q.Summary {
		e.ByOrder = make(map[string]int, len(l.last))
		for order := range l.last {
			e.ByOrder[order] = max(1, l.twice[order])
		}
	}
	return e
}

func (o *outbox) oracle(q Query, lean bool) Mail {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := Mail{Accepted: o.count, Refused: o.refused.Load(), Lost: len(o.lost), Recipients: o.recipients, Distinct: len(o.seen),
		Largest: o.largest, TwiceCount: len(o.twice), Twice: []Received{}}
	switch {
	case q.Recipient != "":
		m.ByRecipient = o.received(q.Recipient)
		for _, r := range m.ByRecipient {
			if r.Count > 1 {
				m.Twice = append(m.Twice, r)
			}
		}
		return m
	case !q.Summary && !lean:
		m.ByRecipient = o.allReceived()
	}
	m.Twice = slices.AppendSeq(m.Twice, maps.Values(o.twice))
	slices.SortFunc(m.Twice, bySubject)
	if q.Summary && len(m.Twice) > summaryTwice {
		m.Twice = m.Twice[:summaryTwice]
	}
	return m
}

// received lists what one recipient was accepted for, by subject.
func (o *outbox) received(recipient string) []Received {
	list := []Received{}
	for subject, hash := range o.subjects {
		if known, ok := o.seen[pair(hash, recipient)]; ok {
			list = append(list, Received{subject, recipient, int(known.count)})
		}
	}
	slices.SortFunc(list, bySubject)
	return list
}

// allReceived lists every pair, in the order of first acceptance.
func (o *outbox) allReceived() []Received {
	places := slices.SortedFunc(maps.Values(o.seen), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.message, b.message), cmp.Compare(a.recipient, b.recipient))
	})
	list := make([]Received, len(places))
	for i, at := range places {
		p := o.messages[at.message]
		list[i] = Received{p.subject, p.to.at(int(at.recipient)), int(at.count)}
	}
	return list
}

func bySubject(a, b Received) int {
	return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Recipient, b.Recipient))
}
