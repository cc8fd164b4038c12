package inspect

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"errand/internal/bus"
	"errand/internal/style"
	"errand/pkg/messages"
)

// LogEvidence is what the sending log shows of a message's batches of unknown fate. It is for a person: rows may be late, or of
// another call, and their absence proves nothing.
type LogEvidence struct {
	Batches []LogBatch     `json:"batches"`
	Through *messages.Time `json:"complete_through,omitempty"` // as far as the log is published; nil if no poller ever ran
	Called  *messages.Time `json:"called,omitempty"`           // when the last call for them began; nil if no record is kept
	More    bool           `json:"more,omitempty"`             // there are more rows than were read
}

// LogBatch is what the log shows of a batch.
type LogBatch struct {
	Batch int `json:"batch"`
	Count int `json:"count"` // recipients
	Seen  int `json:"seen"`  // of them, with a row
}

const (
	maxBatchesLooked = 20     // whose calls are looked up
	maxRowsLooked    = 20_000 // of a message
)

// LogEvidence looks for the rows of batches of unknown fate; nil where there are none, or no log to be seen.
func (r Reader) LogEvidence(ctx context.Context, id string, unknown []messages.Unsettled) (*LogEvidence, error) {
	e, err := r.logEvidence(ctx, id, unknown)
	if hidden(err) {
		return nil, nil
	}
	return e, err
}

func (r Reader) logEvidence(ctx context.Context, id string, unknown []messages.Unsettled) (*LogEvidence, error) {
	if len(unknown) == 0 || r.Conn == nil { // a simulation has no log
		return nil, nil
	}
	e := &LogEvidence{}
	index := map[string]int{}
	for i, b := range unknown {
		e.Batches = append(e.Batches, LogBatch{Batch: b.Batch, Count: b.Count})
		index[strconv.Itoa(b.Batch)] = i
		if i >= maxBatchesLooked {
			continue
		}
		m, there, err := bus.Last(ctx, r.Conn, bus.MailDeliveries, messages.Log.Subject(messages.Sent, messages.BatchID(id, b.Batch)))
		var sent messages.SentBody
		if err != nil {
			return nil, err
		}
		if there && messages.DecodeEvent(m.Data, &sent) == nil && (e.Called == nil || sent.Begin.After(e.Called.Time)) {
			e.Called = &sent.Begin
		}
	}
	seen, n := map[string]bool{}, 0
	err := bus.Scan{Stream: bus.MailDeliveries, Filter: messages.Delivery.Filter(id)}.Each(ctx, r.Conn, func(m bus.Message) bool {
		place := strings.TrimSuffix(m.Header.Get("Errand-Recipient"), "?")
		number, _, _ := strings.Cut(place, ".")
		if i, ok := index[number]; ok && !seen[place] {
			seen[place] = true
			e.Batches[i].Seen++
		}
		n++
		e.More = n == maxRowsLooked && m.Pending > 0
		return n < maxRowsLooked
	})
	if err != nil {
		return nil, err
	}
	p, err := r.watermark(ctx, bus.MailDeliveries, messages.Log)
	e.Through = p.Watermark
	return e, err
}

// Says is the evidence in a sentence.
func (e *LogEvidence) Says() string {
	count, seen := 0, 0
	for _, b := range e.Batches {
		count, seen = count+b.Count, seen+b.Seen
	}
	of := fmt.Sprint("batch ", e.Batches[0].Batch)
	if len(e.Batches) > 1 {
		of = fmt.Sprint(len(e.Batches), " batches of unknown fate")
	}
	rows := style.Count(seen)
	if e.More {
		rows = "at least " + rows
	}
	said := fmt.Sprintf("of %s recipients of %s the log shows %s", style.Count(count), of, rows)
	switch {
	case e.Through == nil:
		return said + ", which no poller has read"
	case e.Called == nil:
		return said + ", read through " + e.Through.UTC().Format("2 Jan 15:04 MST")
	}
	after := "before"
	apart := e.Through.Sub(e.Called.Time)
	if apart >= 0 {
		after = Span(apart) + " after"
	}
	return fmt.Sprintf("%s, read through %s, %s the call", said, e.Through.UTC().Format("2 Jan 15:04 MST"), after)
}

func unknownBatches(outcome messages.SendOutcome) (unknown []messages.Unsettled) {
	for _, b := range outcome.Unsettled {
		if b.State == messages.Uncertain {
			unknown = append(unknown, b)
		}
	}
	return unknown
}

func (r Reader) evidence(ctx context.Context, s *Story, last bus.Message) (err error) {
	var outcome messages.SendOutcome
	if s.State != messages.Uncertain || messages.DecodeEvent(last.Data, &outcome) != nil {
		return nil
	}
	if s.Evidence, err = r.LogEvidence(ctx, s.RequestID, unknownBatches(outcome)); s.Evidence != nil {
		s.Says += "; " + s.Evidence.Says()
	}
	return err
}
