package messages

import (
	"fmt"
	"iter"
	"slices"

	"errand/internal/wire"
	"errand/internal/wire/mailbox"
)

// Unsent is a recipient of a request who got no mail, or of whom nobody knows it.
type Unsent struct {
	Index   int    // in the list that Unsent was given, from 0
	Address string // as the list has it
	// State is Failed for an address that was left out, Refused for a batch that was not sent, Uncertain where nobody knows, and
	// Accepted for a batch of which the service took fewer than it was given (ReasonShortCount): some of it got no mail.
	State   State
	Reason  Reason // of the batch; of an address that was left out ReasonInvalidRequest
	Message string
}

// Unsent says who got no mail, by a request's own list: its Addresses, or the Lines of its object. The error says that the list is
// another one, or that the outcome leaves out some of what it counts, which the events of batches have.
func (b *SendOutcome) Unsent(list iter.Seq[string]) (unsent []Unsent, err error) {
	leftOut, suppressed := map[string]string{}, map[string]string{}
	for _, i := range b.Invalid {
		if i.Reason == ReasonOfSuppressed {
			suppressed[string(mailbox.Append(nil, i.Address))] = i.Reason + ": " + i.Why
		} else {
			leftOut[i.Address] = i.Reason // maybe a valid one, by the rules of today
		}
	}
	places, invalid, at := map[string]int{}, len(suppressed), -1
	for text := range list {
		at++
		address, err := ParseRecipient(text)
		key := string(mailbox.Append(nil, address))
		why, out := leftOut[wire.Cut(text)]
		if err != nil || out {
			invalid++
			if err != nil {
				why = err.Error()
			}
		} else {
			why, out = suppressed[key]
		}
		if err != nil || out {
			unsent = append(unsent, Unsent{at, text, Failed, ReasonInvalidRequest, why})
			continue
		}
		place, met := places[key]
		if !met {
			place = len(places)
			places[key] = place
		}
		i, ofBatch := slices.BinarySearchFunc(b.Unsettled, place, func(u Unsettled, place int) int {
			if place >= u.First && place < u.First+u.Count {
				return 0
			}
			return u.First - place
		})
		if ofBatch {
			u := b.Unsettled[i]
			unsent = append(unsent, Unsent{at, text, u.State, u.Reason, u.Message})
		}
	}
	if len(places) != b.Recipients || invalid != b.InvalidCount || b.UnsettledCount > len(b.Unsettled) {
		return nil, fmt.Errorf("messages: the outcome has %d recipients, %d invalid and %d batches of %d unsettled, the list %d and %d invalid",
			b.Recipients, b.InvalidCount, len(b.Unsettled), b.UnsettledCount, len(places), invalid)
	}
	return unsent, nil
}
