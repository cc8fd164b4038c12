package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/names"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

// Found is a request that names what was looked for.
type Found struct {
	RequestID string             `json:"request_id"`
	Operation messages.Operation `json:"operation"`
	State     messages.State     `json:"state"` // "" when no event of it is kept
	Reason    messages.Reason    `json:"reason,omitempty"`
	Time      messages.Time      `json:"time"` // of that state
	As        string             `json:"as"`   // what it names it as, see names.As
	Mail      string             `json:"mail,omitempty"`
	MailTime  *messages.Time     `json:"mail_time,omitempty"`

	MailState messages.State `json:"-"`
	Rows      []uint64       `json:"-"` // sequences of rows of the sending log to the address

	as   []string
	mail messages.DeliveryBody // of its last row to the address
}

// Finding is what was found, newest first.
type Finding struct {
	Found []Found `json:"found"`
	// Rows are rows of the sending log that name it and are matched to no request.
	Rows []Event `json:"rows,omitempty"`
	// Records are records of the transaction list that name it and are matched to no request, without the payer's data.
	Records []Event `json:"records,omitempty"`
	// Unread are the ids of the secrets of recipients' keys that are not known here: whether these hold the address cannot be told.
	Unread []string `json:"unread,omitempty"`
	// Hidden is the error of a stream that this account may not read, or a *SkippedError; nil when all were searched.
	Hidden error `json:"-"`
}

// NoRow is said of the mail to an address while no row of the sending log belongs to the request for certain.
const NoRow = "no row matches with certainty"

// LacksRow reports whether NoRow is to be said of a recipient of a request in a state: not where nobody was sent to, or rows were erased.
func LacksRow(op messages.Operation, state messages.State) bool {
	return op == messages.Send && !slices.Contains([]messages.State{Queued, messages.Failed, messages.Erased}, state)
}

const progressEvery = 1000 // messages

type search struct {
	Reader
	text    string
	word    names.Word
	secrets *bus.Secrets

	mu       sync.Mutex
	found    Finding
	requests map[string]*Found      // by operation and id
	keys     map[string]mailkey.Key // of the text, by the id of the secret; 0 where it is not known
}

// Find returns what has a word as its request id or names it as a whole value, in whatever spelling: an order number,
// an address, the payer's id, name or telephone number. It reads all events since a time, all dead letters and the
// queues. Recipients of messages are found by the keys that mail-consumer leaves.
// What an index knows is not read again.
func (r Reader) Find(ctx context.Context, word string, secrets *bus.Secrets, since time.Time, known bus.Known) (Finding, error) {
	s := &search{Reader: r, text: word, word: names.NewWord(word), secrets: secrets, requests: map[string]*Found{},
		keys: map[string]mailkey.Key{}, found: Finding{Unread: known.Unread}}
	for _, id := range known.Unread {
		s.keys[id] = 0
	}
	for _, q := range known.Requests {
		s.add(q.Operation, q.ID, q.As)
	}
	var scans []func() error
	var read, total atomic.Uint64
	for _, stream := range []string{bus.MandateEvents, bus.MandateCallbacks, bus.MailEvents, bus.MailDeliveries, bus.DeadLetters} {
		scans = append(scans, func() error {
			first := true
			err := bus.Scan{Stream: stream, Filter: ">", From: known.Through[stream] + 1, Since: since}.Each(ctx, r.Conn, func(m bus.Message) bool {
				if first {
					total.Add(m.Pending + 1)
					first = false
				}
				if n := read.Add(1); n%progressEvery == 0 && r.Progress != nil {
					r.Progress(n, total.Load())
				}
				s.visit(ctx, m)
				return true
			})
			if hidden(err) {
				s.mu.Lock()
				s.found.Hidden = errors.Join(s.found.Hidden, err)
				s.mu.Unlock()
			}
			return err
		})
	}
	for _, op := range Operations {
		scans = append(scans, func() error { return s.byID(ctx, op) }, func() error { return s.queued(ctx, op) }, func() error {
			return s.Scheduled(ctx, op, "*", 0, func(m bus.Message) bool {
				if as := s.word.In(op, m.Data); as != "" {
					s.mu.Lock()
					defer s.mu.Unlock()
					s.add(op, requestOf(op, m).id, string(as))
				}
				return true
			})
		})
	}
	err := each(len(known.Messages), func(i int) error {
		at := known.Messages[i]
		m, there, err := bus.At(ctx, r.Conn, at.Stream, ">", at.Sequence)
		if there {
			s.visit(ctx, m)
		}
		return err
	})
	if err == nil {
		err = eachSeen(len(scans), func(i int) error { return scans[i]() })
	}
	s.found.Found = make([]Found, 0, len(s.requests))
	for _, f := range s.requests {
		slices.Sort(f.as)
		f.As = strings.Join(f.as, ", ")
		s.found.Found = append(s.found.Found, *f)
	}
	if err == nil {
		err = each(len(s.found.Found), func(i int) error { return s.complete(ctx, &s.found.Found[i]) })
	}
	for _, of := range [][]Event{s.found.Rows, s.found.Records} {
		slices.SortFunc(of, func(a, b Event) int { return a.Time.Compare(b.Time.Time) })
	}
	slices.SortFunc(s.found.Found, func(a, b Found) int {
		return cmp.Or(b.Time.Compare(a.Time.Time), strings.Compare(a.RequestID, b.RequestID), cmp.Compare(a.Operation, b.Operation))
	})
	return s.found, err
}

// Candidates are the requests of which a row of the sending log may be.
func (e Event) Candidates() string {
	var body messages.DeliveryBody
	_ = messages.DecodeEvent(e.Message.Data, &body) // what cannot be read has none
	if len(body.Match.Candidates) == 0 {
		return "no request"
	}
	return "one of " + strings.Join(body.Match.Candidates, ", ")
}

func (s *search) byID(ctx context.Context, op messages.Operation) error {
	_, there, err := s.last(ctx, op, s.text)
	if there {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.add(op, s.text, string(names.ID))
	}
	return err
}

func (s *search) queued(ctx context.Context, op messages.Operation) error {
	found, err := s.search(ctx, op, "", func(w request) bool { return w.id == s.text || s.word.In(op, w.Data) != "" })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range found {
		as := string(s.word.In(op, w.Data))
		f := s.add(op, w.id, cmp.Or(as, string(names.ID)))
		f.State, f.Time = Queued, messages.Time{Time: w.Time} // unless it has events
	}
	if long, ok := errors.AsType[*SkippedError](err); ok {
		s.found.Hidden, err = errors.Join(s.found.Hidden, long), nil
	}
	return err
}

// add returns the request, which is found as something. The caller holds the lock.
func (s *search) add(op messages.Operation, id, as string) *Found {
	key := string(op) + " " + id
	f := s.requests[key]
	if f == nil {
		f = &Found{RequestID: id, Operation: op}
		s.requests[key] = f
	}
	if !slices.Contains(f.as, as) {
		f.as = append(f.as, as)
	}
	return f
}

func (s *search) visit(ctx context.Context, m bus.Message) {
	subject := messages.ParseSubject(m.Subject)
	if strings.Contains(s.text, "@") { // else no call is to it
		s.called(ctx, subject, history.KeysIn(subject, m.Data))
	}
	var as []names.As
	names.Each(subject.Operation, m.Data, func(n names.Name) bool {
		if s.word.Is(n) && !slices.Contains(as, n.As) {
			as = append(as, n.As)
		}
		return true
	})
	op, id := subject.Request()
	if subject.Dead {
		id = m.Header.Get(bus.HeaderRequestID)
	}
	if len(as) == 0 && (id != s.text || id == messages.Unmatched) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case id == messages.Unmatched && subject.Operation == messages.Delivery:
		s.found.Rows = append(s.found.Rows, eventOf(m))
	case id == messages.Unmatched:
		e := eventOf(m)
		e.Body = withoutPayer(e)
		s.found.Records = append(s.found.Records, e)
	case id != "" && slices.Contains(Operations, op):
		if id == s.text {
			s.add(op, id, string(names.ID))
		}
		for i, a := range as {
			if f := s.add(op, id, string(a)); i == 0 {
				f.named(subject, m, as)
			}
		}
	}
}

// named notes a message that names what is looked for.
func (f *Found) named(subject messages.Subject, m bus.Message, as []names.As) {
	if subject.Operation == messages.Delivery && slices.Contains(as, names.Recipient) {
		f.Rows = append(f.Rows, m.Sequence)
		f.mail = messages.DeliveryBody{}
		_ = json.Unmarshal(m.Data, &f.mail) // what cannot be read has no code
		f.Mail, f.MailState, f.MailTime = string(subject.State), subject.State, optional(m.Time)
	}
}

// called looks for an address in the keys of a call.
func (s *search) called(ctx context.Context, subject messages.Subject, keys *messages.SecretKeys) {
	if keys == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	want, asked := s.keys[keys.ID]
	if !asked {
		if secret := s.secrets.Of(ctx, keys.ID); secret != nil {
			want = secret.KeyOf(s.text)
		} else {
			s.found.Unread = append(s.found.Unread, keys.ID)
		}
		s.keys[keys.ID] = want
	}
	if _, to := mailkey.Parties(keys.Keys); want != 0 && slices.Contains(to, want) {
		s.add(messages.Send, subject.ID, string(names.Recipient))
	}
}

// complete adds the state of a request, and what the sending log last said of the mail to the address.
func (s *search) complete(ctx context.Context, f *Found) error {
	last, there, err := s.last(ctx, f.Operation, f.RequestID)
	if there {
		f.State, f.Reason, f.Time = messages.StateOf(last.Subject), factsOf(last.Data).Reason, messages.Time{Time: last.Time}
	}
	switch {
	case f.mail.SMTP.Code != 0:
		f.Mail += strings.TrimRight(fmt.Sprintf(" %d %s", f.mail.SMTP.Code, f.mail.SMTP.Enhanced), " ")
	case f.Mail == "" && LacksRow(f.Operation, f.State) && slices.Contains(f.as, string(names.Recipient)):
		f.Mail = NoRow
	}
	return err
}
