package mandates

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// Times reads the times of the transaction list, which have no zone. Their offset from UTC is learned from the newest enrollment that
// succeeded, since the list may not have the zone that is configured. Until it is known, a record counts as made within a day of its time.
type Times struct {
	Zone   *time.Location // as configured
	Client *mandate.Client
	Policy retry.Policy
	Last   func(ctx context.Context, op messages.Operation, filter string) (history.Entry, error) // the log's, or nil
	Logger zerolog.Logger

	mu      sync.Mutex
	learned *time.Location // nil until it is known
	wrong   time.Duration  // by how much the list's clock may be wrong
	again   time.Time      // when to learn it again
}

// At returns when a record was made, as far as its text can be read.
func (t *Times) At(text string) (at time.Time, ok bool) {
	at, _, ok = t.read(text)
	return at, ok
}

// before reports whether a record was surely made before a time.
func (t *Times) before(text string, limit time.Time) bool {
	at, slack, ok := t.read(text)
	return ok && at.Add(slack).Before(limit)
}

// after reports whether a record was surely made after a time.
func (t *Times) after(text string, limit time.Time) bool {
	at, slack, ok := t.read(text)
	return ok && at.Add(-slack).After(limit)
}

// read also returns by how much the time may be wrong.
func (t *Times) read(text string) (at time.Time, slack time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	zone, slack := t.learned, retry.Margin+t.wrong
	if zone == nil {
		zone, slack = t.Zone, unknownOffset
	}
	at, err := time.ParseInLocation(time.DateTime, text, zone)
	if err != nil {
		at, err = time.Parse(time.RFC3339, text)
	} else if at.Add(time.Hour).Format(time.DateTime) == text || at.Add(-time.Hour).Format(time.DateTime) == text {
		slack += time.Hour // summer time ends, and the zone has this hour twice
	}
	return at, slack, err == nil
}

const (
	// unknownOffset is more than any two zones are apart.
	unknownOffset = 24 * time.Hour
	// quarter is what all zones are multiples of.
	quarter = 15 * time.Minute
	// sameTime is by how much a record's time may differ from its events', rounding to quarters aside.
	sameTime = 5 * time.Minute
)

// Differs says how the learned offset differs from the configured zone; "" if it does not, or is not known.
func (t *Times) Differs() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.learned == nil || t.learned == t.Zone {
		return ""
	}
	return fmt.Sprintf("the transaction list's times are in UTC%s, not in MANDATE_TIMEZONE (%s)", t.learned, t.Zone)
}

// Learn learns the offset, unless it was learned or looked for lately. Without an answer what was known stays.
func (t *Times) Learn(ctx context.Context) {
	t.mu.Lock()
	due := t.Last != nil && !time.Now().Before(t.again)
	if due {
		t.again = time.Now().Add(retry.LearnOffset)
	}
	t.mu.Unlock()
	if !due {
		return
	}
	offset, wrong, at, ok := t.offset(ctx)
	if !ok {
		return
	}
	learned := t.Zone
	if _, configured := at.In(t.Zone).Zone(); configured != int(offset.Seconds()) {
		learned = time.FixedZone(at.In(time.FixedZone("", int(offset.Seconds()))).Format("-07:00"), int(offset.Seconds()))
	}
	t.mu.Lock()
	before := t.learned
	t.learned, t.wrong, t.again = learned, wrong, time.Now().Add(retry.LearnedOffset)
	t.mu.Unlock()
	if why := t.Differs(); why != "" && (before == nil || before.String() != learned.String()) {
		t.Logger.Warn().Msg(why)
	}
}

// offset compares the time of the newest success, between the announcement of its call and its outcome, with its record's. wrong is
// what then remains.
func (t *Times) offset(ctx context.Context) (offset, wrong time.Duration, at time.Time, ok bool) {
	last, err := t.Last(ctx, messages.Enroll, messages.Enroll.Subject(messages.Succeeded, "*"))
	var succeeded messages.EnrollSucceeded
	if err != nil || last.Sequence == 0 || messages.DecodeEvent(last.Body, &succeeded) != nil || succeeded.OrderNumber == "" {
		return 0, 0, at, false
	}
	started, err := t.Last(ctx, messages.Enroll, messages.Enroll.Subject(messages.Started, messages.ParseSubject(last.Subject).ID))
	if err != nil || started.Sequence == 0 {
		return 0, 0, at, false
	}
	found, err := Read(ctx, nil, t.Client, t.Policy, mandate.Filter{OrderNumber: succeeded.OrderNumber}, 1)
	if err != nil {
		return 0, 0, at, false
	}
	for _, record := range found.Records {
		r := ReadRecord(record)
		made, err := time.Parse(time.DateTime, r.CreatedAt)
		by := made.Sub(last.At).Round(quarter)
		rest := max((made.Sub(last.At) - by).Abs(), (made.Sub(started.At) - by).Abs())
		if err != nil || r.Deduction() || by < -12*time.Hour || by > 14*time.Hour || rest > sameTime {
			continue
		}
		if ok && by != offset { // of several it is not known which is the call's
			return 0, 0, at, false
		}
		offset, wrong, ok = by, max(wrong, rest), true
	}
	return offset, wrong, last.At, ok && !found.Cut
}
