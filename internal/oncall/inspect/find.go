package inspect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// Found is a request that names what was looked for.
type Found struct {
	RequestID string             `json:"request_id"`
	Operation messages.Operation `json:"operation"`
	State     messages.State     `json:"state"`
	Time      messages.Time      `json:"time"` // of that state
	As        string             `json:"as"`   // what it names it as
	Mail      string             `json:"mail,omitempty"`
	MailTime  *messages.Time     `json:"mail_time,omitempty"`

	recipient bool
}

// Finding is what was found, newest first.
type Finding struct {
	Found []Found `json:"found"`
	// Rows are of the sending log, to the address, that no request is sure to be meant by.
	Rows []Event `json:"rows,omitempty"`
	// Records are of the transaction list, with the order number, that no request is sure to
	// be meant by. They are without the payer's data.
	Records []Event `json:"records,omitempty"`
	// Unread are the ids of secrets that records of recipients are made with and that are
	// not known here: whether they hold the address cannot be told.
	Unread map[string]int `json:"unread,omitempty"`
}

// hits collects requests that were found, by several readers at once.
type hits struct {
	mu   sync.Mutex
	list []Found
}

func (h *hits) add(f Found) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, have := range h.list {
		if have.RequestID == f.RequestID && have.Operation == f.Operation {
			if !strings.Contains(have.As, f.As) {
				h.list[i].As += ", " + f.As
			}
			h.list[i].recipient = have.recipient || f.recipient
			return
		}
	}
	h.list = append(h.list, f)
}

// Find gives the requests of an id, an order number or an address.
func (r Reader) Find(ctx context.Context, word string, secrets []*messages.RecipientSecret, since, now time.Time) (Finding, error) {
	found := Finding{Found: []Found{}}
	h := &hits{}
	var searches []func() error
	if strings.Contains(word, "@") {
		searches = r.byAddress(ctx, word, secrets, since, h, &found)
	} else {
		searches = append(r.byNumber(ctx, word, since, h), func() error { return r.records(ctx, word, since, h, &found) })
	}
	if err := eachSeen(len(searches), func(i int) error { return searches[i]() }); err != nil {
		return found, err
	}
	if h.list != nil {
		found.Found = h.list
	}
	err := each(len(found.Found), func(i int) error {
		f := &found.Found[i]
		last, there, err := r.last(ctx, f.Operation, f.RequestID)
		if there {
			f.State, f.Time = messages.StateOf(last.Subject), messages.Time{Time: last.Time}
		}
		if err == nil && f.recipient {
			err = r.mailOf(ctx, f, word)
		}
		return err
	})
	slices.SortFunc(found.Found, func(a, b Found) int {
		return cmp.Or(b.Time.Compare(a.Time.Time), strings.Compare(a.RequestID, b.RequestID))
	})
	return found, err
}

// byNumber searches for a request id and for an order number.
func (r Reader) byNumber(ctx context.Context, word string, since time.Time, h *hits) (searches []func() error) {
	quoted := lowerJSON(word)
	for _, op := range Operations {
		searches = append(searches, func() error {
			_, there, err := r.last(ctx, op, word)
			if there {
				h.add(Found{RequestID: word, Operation: op, As: "request id"})
			}
			return err
		}, func() error {
			named := func(w request) bool {
				return w.id == word || strings.EqualFold(strings.TrimSpace(factsOf(w.Data).OrderNumber), word)
			}
			return r.queued(ctx, op, named, h, strings.ToLower(word), quoted)
		})
	}
	for _, state := range []messages.State{messages.Started, messages.Failed} { // every enrollment has one of them
		searches = append(searches, func() error {
			return bus.EachBody(ctx, r.Conn, bus.MandateEvents, messages.Enroll.Subject(state, "*"), since, func(body []byte) bool {
				if containsFold(body, quoted) {
					if f := factsOf(body); strings.EqualFold(strings.TrimSpace(f.OrderNumber), word) {
						h.add(Found{RequestID: f.RequestID, Operation: messages.Enroll, As: "order number"})
					}
				}
				return true
			})
		})
	}
	return searches
}

// queued searches in the queue of an operation.
func (r Reader) queued(ctx context.Context, op messages.Operation, named func(request) bool, h *hits, texts ...string) error {
	found, err := r.search(ctx, Queue{Operation: op}, named, texts...)
	for _, w := range found {
		h.add(Found{RequestID: w.id, Operation: op, State: Queued, Time: messages.Time{Time: w.Time}, As: "in its queue"})
	}
	return err
}

// byAddress searches for recipients and payers. Recipients are known by the keys that
// mail-consumer leaves of them.
func (r Reader) byAddress(ctx context.Context, word string, secrets []*messages.RecipientSecret, since time.Time, h *hits, into *Finding) []func() error {
	text := lowerJSON(word)
	named := func(w request) bool { return true } // the text is in it
	return []func() error{
		func() error { return r.recipients(ctx, word, secrets, since, h, into) },
		func() error { return r.rows(ctx, word, text, since, into) },
		func() error { return r.queued(ctx, messages.Send, named, h, text) },
		func() error { return r.queued(ctx, messages.Enroll, named, h, text) },
		func() error {
			return bus.EachBody(ctx, r.Conn, bus.MandateEvents, messages.Enroll.Subject(messages.Succeeded, "*"), since, func(body []byte) bool {
				if containsFold(body, text) {
					h.add(Found{RequestID: factsOf(body).RequestID, Operation: messages.Enroll, As: "payer"})
				}
				return true
			})
		},
		func() error { return r.deadPayers(ctx, word, text, since, h) },
	}
}

// deadPayers searches the dead letters of enrollments: the events of one that failed or is
// uncertain do not name its payer.
func (r Reader) deadPayers(ctx context.Context, word, text string, since time.Time, h *hits) error {
	return bus.Scan{Stream: bus.DeadLetters, Filter: "dead." + messages.Enroll.Requested(), Since: since}.Each(ctx, r.Conn, func(m bus.Message) bool {
		if !containsFold(m.Data, text) {
			return true
		}
		var request struct {
			Email string `json:"payer_email"`
		}
		if json.Unmarshal(m.Data, &request) == nil && strings.EqualFold(strings.TrimSpace(request.Email), word) {
			h.add(Found{RequestID: m.Header.Get(bus.HeaderRequestID), Operation: messages.Enroll, As: "payer"})
		}
		return true
	})
}

// recipients searches the records of calls for an address.
func (r Reader) recipients(ctx context.Context, word string, secrets []*messages.RecipientSecret, since time.Time, h *hits, into *Finding) error {
	plain := messages.KeyOf(word)
	return bus.EachBody(ctx, r.Conn, bus.MailDeliveries, messages.Log.Subject(messages.Sent, "*.*"), since, func(body []byte) bool {
		var sent messages.SentBody
		if json.Unmarshal(body, &sent) != nil {
			return true
		}
		want := plain
		if sent.Secret != nil {
			i := slices.IndexFunc(secrets, func(s *messages.RecipientSecret) bool { return s.ID() == sent.Secret.ID })
			if i < 0 {
				if into.Unread == nil {
					into.Unread = map[string]int{}
				}
				into.Unread[sent.Secret.ID]++
				return true
			}
			want = secrets[i].KeyOf(word)
		}
		if _, to := sent.Parties(); slices.Contains(to, want) {
			h.add(Found{RequestID: sent.RequestID, Operation: messages.Send, As: "recipient", recipient: true})
		}
		return true
	})
}

// rows are those of the sending log to an address that belong to no request for sure.
func (r Reader) rows(ctx context.Context, word, text string, since time.Time, into *Finding) error {
	return bus.Scan{Stream: bus.MailDeliveries, Filter: messages.Delivery.Filter(messages.Unmatched), Since: since}.Each(ctx, r.Conn, func(m bus.Message) bool {
		if containsFold(m.Data, text) && isTo(m.Data, word) {
			into.Rows = append(into.Rows, eventOf(m))
		}
		return true
	})
}

// isTo reports whether a delivery event is of a mail to an address.
func isTo(body []byte, word string) bool {
	var row struct {
		Entry struct {
			To string `json:"to"`
		} `json:"entry"`
	}
	if json.Unmarshal(body, &row) != nil {
		return false
	}
	return messages.KeyOf(row.Entry.To) == messages.KeyOf(word)
}

// mailOf says what the sending log last said of the mail to an address.
func (r Reader) mailOf(ctx context.Context, f *Found, word string) error {
	f.Mail = "no row in the sending log yet"
	return bus.Scan{Stream: bus.MailDeliveries, Filter: messages.Delivery.Filter(f.RequestID)}.Each(ctx, r.Conn, func(m bus.Message) bool {
		state := messages.StateOf(m.Subject)
		if state == messages.Summary || state == messages.Overdue || !isTo(m.Data, word) {
			return true
		}
		var row messages.DeliveryBody
		_ = json.Unmarshal(m.Data, &row) // isTo could
		f.Mail, f.MailTime = string(state), optional(m.Time)
		if row.SMTP.Code != 0 {
			f.Mail += strings.TrimRight(fmt.Sprintf(" %d %s", row.SMTP.Code, row.SMTP.Enhanced), " ")
		}
		return true
	})
}

// lowerJSON is a text as it is inside a string of JSON, in lower case.
func lowerJSON(text string) string {
	quoted, _ := json.Marshal(text) // a string always encodes
	return strings.ToLower(string(quoted[1 : len(quoted)-1]))
}

// containsFold reports whether data holds a text that is in lower case, in any case.
func containsFold(data []byte, text string) bool {
	return bytes.Contains(bytes.ToLower(data), []byte(text))
}
