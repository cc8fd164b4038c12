package send

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"time"

	"errand/internal/history"
	"errand/internal/requests/admission"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// invalidError is a fault of a request that no repetition mends.
type invalidError struct{ field, rule string }

func (e *invalidError) Error() string { return e.field + " " + e.rule }

// A list of more than manyBytes is compared with itself a few at a time, one of more than longBytes (about 100,000 addresses)
// alone: that takes memory. Messages to such long lists are sent a few at a time, since that takes hours.
const (
	manyBytes    = 200 << 10
	longBytes    = 2 << 20
	maxComparing = 8
	longCalls    = 4 // that a message to a long list counts for, at least
)

// errCrowded defers a message to a long list: others make as many calls as long work may, half of all.
var errCrowded = errors.New("send: enough messages to long lists are being sent")

// makePlan plans the request's list. A list that was begun was within the limit then, whatever the limit is now.
func (m *message) makePlan(ctx context.Context, begun bool) (plan, error) {
	bytes, err := m.bytes(ctx)
	if err != nil {
		return plan{}, err
	}
	comparing, most := &m.comparing, maxComparing
	if bytes > longBytes {
		if comparing, most = &m.comparingLong, 1; !m.admit() {
			return plan{}, &history.RetryLaterError{At: retry.NotBefore(retry.Crowded, m.request.GiveUpAt, m.Caller.Timeout), Cause: errCrowded}
		}
	}
	if bytes > manyBytes {
		if err := comparing.Take(ctx, 1, most); err != nil {
			return plan{}, err
		}
		defer comparing.Free(1)
	}
	limit := m.MaxRecipients
	if begun {
		limit = 0
	}
	about := int(bytes) / 24 // a short address and its line's end
	p, err := planned(func() iter.Seq2[string, error] { return m.untilStopped(m.texts(ctx)) }, about, m.size, limit, room)
	if fault, ok := errors.AsType[listFault](err); ok {
		return p, &invalidError{m.field(), string(fault)}
	}
	return p, err
}

// field is the one that names the list.
func (m *message) field() string {
	if m.request.Body.ToObject != nil {
		return "to_object"
	}
	return "to"
}

// bytes is how long the list is, as it was written.
func (m *message) bytes(ctx context.Context) (int64, error) {
	if m.request.Body.ToObject == nil {
		return int64(len(m.request.Body.To)), nil
	}
	_, size, err := m.open(ctx)
	return size, err
}

// admit takes a message's share of the calls of long work, until leave. One whose GiveUpAt has passed continues without it.
func (m *message) admit() bool {
	if m.share == 0 && time.Now().Before(m.request.GiveUpAt) {
		n := max(m.Parallel, longCalls)
		if !m.longOfLane().Try(n, m.Caller.Slots.Whole()/2) {
			return false
		}
		m.share = n
	}
	return true
}

// leave frees what admit took.
func (m *message) leave() {
	if m.share > 0 {
		m.longOfLane().Free(m.share)
	}
}

func (m *message) longOfLane() *admission.Share {
	share, _ := m.long.LoadOrStore(m.request.History.Lane, new(admission.Share))
	return share.(*admission.Share)
}

// untilStopped ends texts with errStopping when the program ends.
func (m *message) untilStopped(texts iter.Seq2[string, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		n := 0
		for text, err := range texts {
			if n++; n%1000 == 0 && m.Caller.Stopping() {
				err = errStopping
			}
			if !yield(text, err) || err != nil {
				return
			}
		}
	}
}

// open opens the object that holds the list.
func (m *message) open(ctx context.Context) (io.Reader, int64, error) {
	object, size, err := m.Open(ctx, *m.request.Body.ToObject)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = &invalidError{"to_object", "names no object with that digest"}
	case err != nil:
		err = fmt.Errorf("send: open the recipient list: %w", err)
	}
	return object, size, err
}

// texts reads the recipients in order, as they were written. An error comes last.
func (m *message) texts(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if m.request.Body.ToObject == nil {
			for text := range m.request.Body.Addresses() {
				if !yield(text, nil) {
					return
				}
			}
			return
		}
		object, _, err := m.open(ctx)
		if err != nil {
			yield("", err)
			return
		}
		for text, err := range messages.Lines(object) {
			if err != nil {
				err = fmt.Errorf("send: read the recipient list: %w", err)
			}
			if !yield(text, err) {
				return
			}
		}
	}
}
