package send

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"sync"
	"time"

	"errand/pkg/messages"
)

// invalidError is a fault of a request that no repetition mends.
type invalidError struct{ field, rule string }

func (e *invalidError) Error() string { return e.field + " " + e.rule }

// makePlan plans the request's list. A list that was begun was within the limit then, whatever the limit is now.
func (m *message) makePlan(ctx context.Context, begun bool) (plan, error) {
	limit := m.MaxRecipients
	if begun {
		limit = 0
	}
	about := len(m.request.Body.To) / 32 // an address of usual length
	p, err := m.planner.plan(ctx, func() iter.Seq2[string, error] { return m.admitted(ctx) }, about, m.size, limit)
	if fault, ok := errors.AsType[listFault](err); ok {
		field := "to"
		if m.request.Body.ToObject != nil {
			field = "to_object"
		}
		return p, &invalidError{field, string(fault)}
	}
	return p, err
}

// Lists of more than manyTexts addresses are compared a few at a time (maxComparing), since that takes memory. Messages
// to lists of more than longList are sent a few at a time, since that takes hours.
const (
	manyTexts    = 10_000
	maxComparing = 8
	longList     = 100_000
)

// errCrowded defers a message to a long list: enough of them are being sent, and messages to few recipients need slots.
var errCrowded = errors.New("send: enough messages to long lists are being sent")

// admitted yields texts for a plan. After manyTexts it waits until fewer such lists are compared. It ends with
// errCrowded if the list is long and no more long lists may be sent now, and with errStopping when the program ends.
func (m *message) admitted(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		crowd := &m.planner.crowd
		if object := m.request.Body.ToObject; object != nil && crowd.knows(object.Digest) && !m.admit() {
			yield("", errCrowded)
			return
		}
		comparing, n := false, 0
		release := func() {
			if comparing {
				<-m.planner.comparing
			}
			comparing = false
		}
		defer release()
		for text, err := range m.texts(ctx) {
			if n++; n%1000 == 0 && m.Caller.Stopping() {
				err = errStopping
			}
			switch n {
			case manyTexts + 1:
				select {
				case m.planner.comparing <- struct{}{}:
					comparing = true
				case <-ctx.Done():
					err = context.Cause(ctx)
				}
			case longList + 1:
				release()
				if object := m.request.Body.ToObject; object != nil {
					crowd.learn(object.Digest)
				}
				if !m.admit() {
					err = errCrowded
				}
			}
			if !yield(text, err) || err != nil {
				return
			}
		}
	}
}

// admit takes a place for messages to long lists, until leave. A message whose GiveUpAt has passed continues without one.
func (m *message) admit() bool {
	if m.placed || !time.Now().Before(m.request.GiveUpAt) {
		return true
	}
	m.placed = m.planner.crowd.enter(max(cap(m.Caller.Slots)/8, 1))
	return m.placed
}

// leave frees the place that admit took, if it took one.
func (m *message) leave() {
	if m.placed {
		m.planner.crowd.leave()
	}
}

// crowd is the messages to long lists that are being sent.
type crowd struct {
	mu      sync.Mutex
	sending int
	known   map[string]struct{} // digests of long lists: to defer them, they need not be read again
}

// enter takes a place, unless as many are taken as there are.
func (c *crowd) enter(places int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sending >= places {
		return false
	}
	c.sending++
	return true
}

func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sending--
}

const maxKnown = 10_000

func (c *crowd) learn(digest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxKnown {
		c.known = map[string]struct{}{}
	}
	c.known[digest] = struct{}{}
}

func (c *crowd) knows(digest string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.known[digest]
	return ok
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
		object, err := m.Open(ctx, *m.request.Body.ToObject)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			yield("", &invalidError{"to_object", "names no object with that digest"})
			return
		case err != nil:
			yield("", fmt.Errorf("send: open the recipient list: %w", err))
			return
		}
		defer object.Close()
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
