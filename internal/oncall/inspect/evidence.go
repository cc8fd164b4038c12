package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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
	Through *messages.Time `json:"complete_through,omitempty"` // as far as the log is published: its newest row; nil if none was read
	Read    *messages.Time `json:"read_through,omitempty"`     // when the log was last read; nil if no poller ever ran
	Called  *messages.Time `json:"called,omitempty"`           // when the last call for them began; nil if no event says it
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

// LogPoller asks how far the sending log is read. A zero one knows nothing, as where there is no log to be seen.
func (r Reader) LogPoller(ctx context.Context) (p Poller, err error) {
	if p, err = r.watermark(ctx, bus.MailDeliveries, messages.Log); hidden(err) {
		return p, nil
	}
	programs, unasked := bus.AskStatus(ctx, r.Conn)
	p.readBy(programs, bus.LogPoller)
	return p, cmp.Or(err, unasked)
}

// LogEvidence looks for the rows of batches of unknown fate in a log that LogPoller describes; nil where there is no log to be
// seen.
func (r Reader) LogEvidence(ctx context.Context, id string, unknown []messages.Unsettled, log Poller) (e *LogEvidence, err error) {
	defer func() {
		if hidden(err) {
			e, err = nil, nil
		}
	}()
	e = &LogEvidence{Through: log.Watermark, Read: log.Read()}
	index := map[string]int{}
	for i, b := range unknown {
		e.Batches = append(e.Batches, LogBatch{Batch: b.Batch, Count: b.Count})
		index[strconv.Itoa(b.Batch)] = i
		if i >= maxBatchesLooked {
			continue
		}
		called := messages.Batch.Subject(messages.Started, messages.BatchID(id, b.Batch))
		m, there, err := bus.Last(ctx, r.Conn, bus.MailEvents, called)
		if err == nil && !there { // it is the message's only batch
			m, there, err = bus.Last(ctx, r.Conn, bus.MailEvents, messages.Send.Subject(messages.Started, id))
		}
		var started messages.Common
		if err != nil {
			return nil, err
		}
		if there && messages.DecodeEvent(m.Data, &started) == nil && (e.Called == nil || started.At.After(e.Called.Time)) {
			e.Called = &started.At
		}
	}
	seen, n := map[string]bool{}, 0
	for _, state := range RowStates { // a message may have a million
		scan := bus.Scan{Stream: bus.MailDeliveries, Filter: messages.Delivery.Subject(state, id)}
		err := scan.Each(ctx, r.Conn, func(m bus.Message) bool {
			if e.More = n == maxRowsLooked; e.More {
				return false
			}
			place := strings.TrimSuffix(m.Header.Get("Errand-Recipient"), "?")
			number, _, _ := strings.Cut(place, ".")
			if i, ok := index[number]; ok && !seen[place] {
				seen[place] = true
				e.Batches[i].Seen++
			}
			n++
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return e, nil
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
	said := fmt.Sprintf("of %s of %s the log shows %s", style.Plural(count, "recipient", "recipients"), of, rows)
	if e.Read == nil {
		return said + ", which no poller has read"
	}
	said += "; last read " + minute(e.Read)
	if e.Called != nil && e.Read.Before(e.Called.Time) {
		said += ", before the call"
	} else if e.Called != nil {
		said += ", " + style.Span(e.Read.Sub(e.Called.Time)) + " after the call"
	}
	if e.Through != nil {
		said += "; its newest row is of " + minute(e.Through)
	}
	return said
}

func minute(t *messages.Time) string { return t.UTC().Format("2 Jan 15:04 MST") }

func (r Reader) evidence(ctx context.Context, s *Story, last bus.Message) (err error) {
	var outcome messages.SendOutcome
	if s.State != messages.Uncertain || messages.DecodeEvent(last.Data, &outcome) != nil {
		return nil
	}
	unknown := slices.DeleteFunc(outcome.Unsettled, func(b messages.Unsettled) bool { return b.State != messages.Uncertain })
	if len(unknown) == 0 {
		return nil
	}
	log, err := r.LogPoller(ctx)
	if err != nil {
		return err
	}
	if s.Evidence, err = r.LogEvidence(ctx, s.RequestID, unknown, log); s.Evidence != nil {
		s.Says += "; " + s.Evidence.Says()
	}
	return err
}
