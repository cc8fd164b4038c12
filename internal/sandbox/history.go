package sandbox

import (
	"cmp"
	"slices"
	"time"
)

// LogRow is a row of the sending log with its whole history.
type LogRow struct {
	Subject    string        `json:"subject,omitempty"` // of its message
	EnvelopeID string        `json:"envelope_id"`
	To         string        `json:"to"`
	CreatedAt  time.Time     `json:"created_at"`
	EnteredAt  time.Time     `json:"entered_at"`        // when it was added to the log; later than created_at if it was late
	LeftAt     *time.Time    `json:"left_at,omitempty"` // when it was removed
	States     []ListedState `json:"states"`            // oldest first; none for a row that a caller inserted
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
