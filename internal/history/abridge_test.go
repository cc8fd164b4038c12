package history_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/pkg/messages"
)

// narrow is a log that takes small events only.
type narrow struct {
	historytest.Log
	most, tries int
}

func (s *narrow) Append(ctx context.Context, r history.Record) (uint64, error) {
	s.tries++
	if body, err := r.Event.Encode(); err != nil || len(body) > s.most {
		return 0, errors.Join(err, history.ErrTooLarge)
	}
	return s.Log.Append(ctx, r)
}

func TestAnOutcomeThatIsTooLargeIsToldAbridged(t *testing.T) {
	s := &narrow{most: 1000}
	h := &history.History{Log: s, Operation: messages.Enroll, ID: "r1", Fingerprint: "f"}
	ev, err := h.Settle(t.Context(), true, func(history.Prior) (messages.Event, error) {
		evidence := make([]json.RawMessage, 40)
		for i := range evidence {
			evidence[i] = json.RawMessage(`"` + strings.Repeat("x", 100) + `"`)
		}
		return h.Event(messages.Uncertain, &messages.EnrollUncertain{Reason: messages.ReasonLinkLost, Evidence: evidence, Fingerprint: "f"}), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var told messages.EnrollUncertain
	if err := messages.DecodeEvent(s.Events()[0].Body, &told); err != nil {
		t.Fatal(err)
	}
	if !told.Abridged || len(told.Evidence) != 5 || told.RequestID != "r1" || told.At.IsZero() || !ev.Body.Head().Abridged {
		t.Errorf("got %+v", told)
	}
}

// What cannot be made smaller is an error, and is not tried for ever.
func TestAnEventWithNothingToSpareIsAnError(t *testing.T) {
	s := &narrow{most: 10}
	h := &history.History{Log: s, Operation: messages.Enroll, ID: "r1"}
	if err := h.Store(t.Context(), messages.Started, &messages.EnrollStarted{}); !errors.Is(err, history.ErrTooLarge) || s.tries != 1 {
		t.Errorf("got %v after %d tries, want ErrTooLarge after one", err, s.tries)
	}
}
