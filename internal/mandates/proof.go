package mandates

import (
	"context"
	"time"

	"errand/internal/retry"
	"errand/pkg/clients/mandate"
)

// Proof is what a listing proves of a call.
type Proof int

// The proofs.
const (
	Nothing Proof = iota
	Listed
	NotListed
)

// Proof returns what the listing proves of a call for its order number.
func (l Listing) Proof() Proof {
	switch {
	case len(l.Records) > 0:
		return Listed
	case l.Flaw != "":
		return Nothing
	}
	return NotListed
}

// List is the transaction list, which is asked what became of calls.
type List struct {
	Client *mandate.Client
	Policy retry.Policy
	Stop   <-chan struct{} // ends the waits between tries; may be nil
	Settle time.Duration   // by then the list shows what was enrolled
	Times  *Times
}

// Call is a call of unknown fate, or all that were made for a request.
type Call struct {
	Order    string
	Redact   string    // a secret of its request, removed from what is listed
	Began    time.Time // records from before it are of an earlier enrollment; zero if every record counts
	Ended    time.Time // when it was over at the latest
	Answered bool      // it was over then for certain: the service itself answered
}

// Look reads what the list shows under a call's order number.
func (l *List) Look(ctx context.Context, c Call) (Listing, error) {
	filter := mandate.Filter{OrderNumber: c.Order, Redact: c.Redact}
	found, err := Read(ctx, l.Stop, l.Client, l.Policy, filter, maxPages)
	if err != nil || c.Began.IsZero() || len(found.Records) == 0 {
		return found, err
	}
	l.Times.Learn(ctx)
	return found.since(c.Began, l.Times), nil
}

// Prove reads the list to prove whether a call was taken. It was not if its order number is missing in a list that is whole, narrowed,
// not empty without the filter, and younger than the call: Settle has passed since, or it shows a record that was made later.
func (l *List) Prove(ctx context.Context, c Call) (Listing, error) {
	settled := time.Since(c.Ended) >= l.Settle
	var newest mandate.Page
	if settled || c.Answered { // read first: what it shows, the narrowed list shows as well
		var err error
		if newest, err = l.newest(ctx, c.Redact); err != nil {
			return Listing{}, err
		}
	}
	if !settled && c.Answered {
		l.Times.Learn(ctx)
	}
	found, err := l.Look(ctx, c)
	if err != nil || found.Proof() != NotListed {
		return found, err
	}
	younger := settled
	for _, record := range newest.Records {
		r := ReadRecord(record)
		if about(record, c.Order) && !l.Times.before(r.CreatedAt, c.Began) {
			found.Records = append(found.Records, record)
		}
		younger = younger || l.Times.after(r.CreatedAt, c.Ended)
	}
	switch {
	case !younger:
		found.Flaw, found.Early = "it may not show it yet", true
	case len(newest.Records) == 0: // it may be hidden from this token
		found.Flaw = "it shows nothing at all"
	}
	return found, nil
}

// newest reads the list's first page as it is without a filter.
func (l *List) newest(ctx context.Context, redact string) (mandate.Page, error) {
	return retry.Read(ctx, l.Stop, l.Policy, func(ctx context.Context) (mandate.Page, error) {
		return l.Client.TransactionsPage(ctx, mandate.Filter{Redact: redact}, 1, nil)
	})
}

// since leaves out records from before a time. Beside them the absence of one proves nothing.
func (l Listing) since(began time.Time, times *Times) Listing {
	records := l.Records
	l.Records = nil
	for _, record := range records {
		if times.before(ReadRecord(record).CreatedAt, began) {
			l.Flaw = notNarrowed
			continue
		}
		l.Records = append(l.Records, record)
	}
	return l
}
