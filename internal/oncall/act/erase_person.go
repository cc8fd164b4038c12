package act

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"errand/internal/bus"
	"errand/internal/names"
	"errand/internal/oncall/inspect"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

// Traces is what is stored of a person.
type Traces struct {
	Requests []Erasure `json:"requests"` // the pages of a listing have records of other people, too
	// Suppressed are the keys of the address, if it is or was suppressed.
	Suppressed []mailkey.Key `json:"suppressed,omitempty"`
	Rows       []uint64      `json:"rows"`             // sequences in MAIL_DELIVERIES of rows that are not removed with one of the requests
	Unread     []string      `json:"unread,omitempty"` // as in inspect.Finding
}

// TracesOf looks for a word in everything that is stored, as Reader.Find does. Of a message to several people only the
// rows of the address are the person's.
func TracesOf(ctx context.Context, r inspect.Reader, word string, secrets *bus.Secrets, now time.Time) (
	t Traces, err error,
) {
	known, err := r.Find(ctx, word, secrets, time.Time{}, bus.Known{})
	if err = cmp.Or(err, known.Hidden); err != nil {
		return t, err
	}
	for _, f := range known.Found {
		e, err := ErasureOf(ctx, r, f.Operation, f.RequestID, now)
		switch {
		case errors.Is(err, ErrNothingDone): // it waits in its queue, and has no event
			e.State, e.Refused = inspect.Queued, "it is queued: cancel it first"
		case err != nil:
			return t, err
		case strings.Contains(f.As, string(names.ID)):
		case e.ofOthers(f.As) != "":
			e.Refused = e.ofOthers(f.As) + ": only the rows of this address are removed; name its id to erase all of it"
			t.Rows = append(t.Rows, f.Rows...)
		}
		e.As = f.As
		t.Requests = append(t.Requests, e)
	}
	for _, op := range []messages.Operation{messages.Application, messages.Deduction, messages.Callback} {
		if slices.ContainsFunc(known.Records, func(e inspect.Event) bool { return messages.ParseSubject(e.Subject).Operation == op }) {
			t.Requests = append(t.Requests, Erasure{Operation: op, RequestID: messages.Unmatched,
				Refused: "records that match no request cannot be removed individually; they expire with the stream"})
		}
	}
	for _, row := range known.Rows {
		names.Each(messages.Delivery, row.Message.Data, func(n names.Name) bool {
			found := n.As == names.Recipient && names.NewWord(word).Is(n) // not as the sender of mail to others
			if found {
				t.Rows = append(t.Rows, row.Sequence)
			}
			return !found
		})
	}
	if _, isNone := messages.ParseRecipient(word); isNone == nil {
		keys := secrets.KeysOf(ctx, word)
		is, err := bus.SuppressionOf(ctx, r.Conn, keys...)
		if err != nil && !errors.Is(err, bus.ErrNoStream) {
			return t, err
		}
		if is != nil {
			t.Suppressed = keys
		}
	}
	t.Unread = known.Unread
	slices.Sort(t.Rows)
	slices.SortFunc(t.Requests, func(a, b Erasure) int {
		return cmp.Or(cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.RequestID, b.RequestID))
	})
	return t, nil
}

// ofOthers is why what is stored of a request is of other people, too, when it names somebody as what is said; "" if it is not.
func (e Erasure) ofOthers(as string) string {
	switch {
	case e.State != "" && as == string(names.Callback):
		return "only a callback names it, which anybody may have sent"
	case e.Operation == messages.Send && e.State == "" && (e.Events+e.Rows > 0 || e.Recipients != 1):
		return "its history is gone"
	case e.Recipients > 1:
		return fmt.Sprintf("it has %d recipients", e.Recipients)
	case e.Operation == messages.Send && !strings.Contains(as, string(names.Recipient)), ofAnotherPayer(e.Operation, as):
		return "it is of somebody else, and names it as " + as
	}
	return ""
}

// ofAnotherPayer reports whether what names somebody names them beside a payer: each record of the transaction list has the
// merchant's address.
func ofAnotherPayer(op messages.Operation, as string) bool {
	return bus.EventsOf(op) == bus.MandateEvents && strings.Contains(as, string(names.Address)) &&
		!strings.Contains(as, string(names.Payer)) && !strings.Contains(as, string(names.Order))
}

// EraseRows removes rows of the sending log, and leaves of each what keeps it from being published
// again. Errors: as for Do.
func (p Person) EraseRows(ctx context.Context, sequences []uint64, why string) error {
	if len(sequences) == 0 {
		return nil
	}
	plan := fmt.Sprintf("remove %d rows of the sending log", len(sequences))
	_, err := p.Do(ctx, Act{Verb: Erase, Operation: messages.Delivery, Target: "rows", Why: why, Plan: plan},
		func(ctx context.Context) (string, error) {
			for _, sequence := range sequences {
				row, there, err := bus.At(ctx, p.Conn, bus.MailDeliveries, messages.Delivery.Filter("*"), sequence)
				if there {
					if err = p.keepRowAway(ctx, row); err == nil {
						err = remove(ctx, p.JS, bus.MailDeliveries, sequence)
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
