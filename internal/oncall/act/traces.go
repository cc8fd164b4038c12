package act

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"errand/internal/bus"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

// Traces is what is stored of somebody.
type Traces struct {
	Requests []Erasure `json:"requests"`
	Listings []string  `json:"listings"` // ids of those whose pages have records of him
	Rows     []uint64  `json:"rows"`     // sequences in MAIL_DELIVERIES of rows that go with none of the requests
	// Unread are the ids of secrets that records of recipients are made with and that are not
	// known here: whether they hold the address cannot be told.
	Unread map[string]int `json:"unread,omitempty"`
}

// finding collects what is stored of somebody, whose word is in lower case.
type finding struct {
	word     string
	requests map[trace]bool
	listings map[string]bool
	rows     map[string][]uint64 // of the sending log, by request
}

// trace is a request that names him.
type trace struct {
	op messages.Operation
	id string
}

// TracesOf looks for a word in everything that is stored: an e-mail address, an order number, or
// whatever else a request or an event has as a whole value, such as the payer's number. Of a
// message to several people only the rows of his address are his.
func TracesOf(ctx context.Context, r inspect.Reader, word string, secrets []*messages.RecipientSecret, now time.Time) (t Traces, err error) {
	found := finding{strings.ToLower(word), map[trace]bool{}, map[string]bool{}, map[string][]uint64{}}
	for stream, filter := range map[string]string{bus.MandateEvents: "mandate.*.*.*", bus.MailEvents: "mail.>", bus.MailDeliveries: messages.Delivery.Filter("*"), bus.DeadLetters: "dead.>"} {
		if err := (bus.Scan{Stream: stream, Filter: filter}).Each(ctx, r.Conn, found.visit); err != nil {
			return t, err
		}
	}
	known, err := r.Find(ctx, word, secrets, time.Time{}, now) // recipients by their keys, and what is queued
	if err != nil {
		return t, err
	}
	for _, f := range known.Found {
		found.requests[trace{f.Operation, f.RequestID}] = true
	}
	for k := range found.requests {
		if k.id == messages.Unmatched {
			t.Requests = append(t.Requests, Erasure{Operation: k.op, RequestID: k.id, Refused: "records of no request are not removed one by one: they go when they are as old as events are kept"})
			continue
		}
		e, err := ErasureOf(ctx, r, k.op, k.id, now)
		switch {
		case errors.Is(err, ErrNothingDone): // it waits in its queue, and has no event
			e.State, e.Refused = inspect.Queued, "it is queued: cancel it first"
		case err != nil:
			return t, err
		case e.Recipients > 1 && strings.Contains(word, "@"):
			e.Refused = fmt.Sprintf("it was sent to %d: only the rows of this address are removed; name its id to erase all of it", e.Recipients)
			t.Rows = append(t.Rows, found.rows[k.id]...)
		}
		t.Requests = append(t.Requests, e)
	}
	t.Unread, t.Listings = known.Unread, slices.Sorted(maps.Keys(found.listings))
	t.Rows = append(t.Rows, found.rows[messages.Unmatched]...)
	slices.Sort(t.Rows)
	slices.SortFunc(t.Requests, func(a, b Erasure) int {
		return cmp.Or(cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.RequestID, b.RequestID))
	})
	return t, nil
}

// visit notes what a message has of him.
func (f finding) visit(m bus.Message) bool {
	tokens := strings.Split(strings.TrimPrefix(m.Subject, "dead."), ".")
	op, id := messages.Operation(tokens[0]+"."+tokens[1]), tokens[len(tokens)-1]
	named := bytes.Contains(bytes.ToLower(m.Data), []byte(f.word)) && names(m.Data, f.word) || op == messages.Callback && namesInCallback(m.Data, f.word)
	if !named {
		return true
	}
	switch {
	case strings.HasPrefix(m.Subject, "dead."):
		id = m.Header.Get(bus.HeaderRequestID)
	case op == messages.Transactions && messages.StateOf(m.Subject) == messages.Page:
		f.listings[id] = true
		return true
	case op == messages.Delivery:
		f.rows[id] = append(f.rows[id], m.Sequence)
		if op = messages.Send; id == messages.Unmatched {
			return true
		}
	case id != messages.Unmatched && (op == messages.Application || op == messages.Deduction || op == messages.Callback):
		op = messages.Enroll
	case op == messages.Batch:
		op, id = messages.Send, tokens[3]
	}
	f.requests[trace{op, id}] = true
	return true
}

// names reports whether a body has a word, in lower case, as a value, or an address within one.
func names(body []byte, word string) bool {
	var all any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	return d.Decode(&all) == nil && has(all, word)
}

func has(value any, word string) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, field := range v {
			if has(field, word) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return has(one, word) })
	case json.Number:
		return v.String() == word
	case string:
		text := strings.ToLower(strings.TrimSpace(v))
		if text == word {
			return true
		}
		if strings.Contains(word, "@") { // among others, or with a name
			return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,;:<>()\"'", r) }), word)
		}
	}
	return false
}

// ErasePages removes the pages of a listing that has ended, with everybody's records in them: one
// page cannot be removed alone. Errors: those of Do; ErrNothingDone while it is under way.
func (p Person) ErasePages(ctx context.Context, listing, why string) error {
	_, err := p.Do(ctx, Act{Verb: Erase, Operation: messages.Transactions, Target: listing, Why: why, Plan: "remove its pages"}, func(ctx context.Context) (string, error) {
		last, there, err := bus.Last(ctx, p.Conn, bus.MandateEvents, messages.Transactions.Filter(listing))
		if err != nil {
			return "", err
		}
		if there && !messages.StateOf(last.Subject).Final(messages.Transactions) {
			return "", fmt.Errorf("%w: listing %s is under way", ErrNothingDone, listing)
		}
		return "pages removed", p.purge(ctx, bus.MandateEvents, []string{messages.Transactions.Subject(messages.Page, listing)})
	})
	return err
}

// EraseRows removes rows of the sending log, and leaves of each what keeps it from being published
// again. Errors: those of Do.
func (p Person) EraseRows(ctx context.Context, sequences []uint64, why string) error {
	if len(sequences) == 0 {
		return nil
	}
	_, err := p.Do(ctx, Act{Verb: Erase, Operation: messages.Delivery, Target: "rows", Why: why, Plan: fmt.Sprintf("remove %d rows of the sending log", len(sequences))}, func(ctx context.Context) (string, error) {
		for _, sequence := range sequences {
			found, err := (&bus.Scan{Stream: bus.MailDeliveries, Filter: messages.Delivery.Filter("*"), From: sequence, Page: 1}).Next(ctx, p.Conn)
			if err == nil && len(found) > 0 && found[0].Sequence == sequence {
				if err = p.keepRowAway(ctx, found[0]); err == nil {
					err = p.remove(ctx, bus.MailDeliveries, sequence)
				}
			}
			if err != nil {
				return "", err
			}
		}
		return "removed", nil
	})
	return err
}
