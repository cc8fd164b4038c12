package clients

import (
	"errors"
	"fmt"
	"testing"

	"errand/pkg/messages"
)

// documented is the table of fates, written out apart from the code.
func documented(status int) (Fate, messages.Reason) {
	switch {
	case status >= 200 && status <= 299:
		return Success, ""
	case status == 408, status == 421, status == 425, status == 429, status == 503:
		return Busy, "busy"
	case status == 401, status == 402, status == 403, status == 404, status == 405, status == 407:
		return Held, "held"
	case status >= 400 && status <= 499:
		return Refused, "refused"
	}
	return Unknown, "no_answer"
}

func TestEveryStatusHasItsFate(t *testing.T) {
	for status := 100; status <= 599; status++ {
		fate, reason := documented(status)
		want := verdict{fate, reason, status}
		for name, r := range map[string]Reading{
			"no envelope":            {Complete: true},
			"envelope without code":  {Complete: true, Envelope: &Envelope{}},
			"envelope that agrees":   {Complete: true, Envelope: &Envelope{StatusCode: status, Error: fate != Success}},
			"envelope says success":  {Complete: true, Envelope: &Envelope{StatusCode: 200}},
			"failure, no code":       {Complete: true, Envelope: &Envelope{Error: fate != Success}},
			"failure without a body": {Complete: fate == Success},
		} {
			if got := judge(status, r); got != want {
				t.Errorf("judge(%d, %s) = %+v, want %+v", status, name, got, want)
			}
		}
		if got := judge(status, Reading{}); fate == Success && got != (verdict{Unknown, "bad_answer", status}) {
			t.Errorf("judge(%d, nothing) = %+v, want unknown, bad_answer", status, got)
		}
		// The other direction: HTTP says success, the envelope does not.
		if fate != Success {
			got := judge(200, Reading{Complete: true, Envelope: &Envelope{Error: true, StatusCode: status}})
			if got != want {
				t.Errorf("judge(200, envelope %d) = %+v, want %+v", status, got, want)
			}
			if got = judge(200, Reading{Complete: true, Envelope: &Envelope{StatusCode: status}}); got != want {
				t.Errorf("judge(200, envelope %d without error) = %+v, want %+v", status, got, want)
			}
		}
	}
}

func TestTheWorseOfStatusAndEnvelopeCounts(t *testing.T) {
	order := []struct {
		status int
		fate   Fate
	}{{200, Success}, {503, Busy}, {422, Refused}, {401, Held}, {500, Unknown}}
	for i, http := range order {
		for j, body := range order {
			worse := order[max(i, j)]
			r := Reading{Complete: true, Envelope: &Envelope{StatusCode: body.status, Error: body.fate != Success}}
			if got := judge(http.status, r); got.fate != worse.fate || got.status != worse.status {
				t.Errorf("HTTP %d, envelope %d: got %+v, want %s by %d", http.status, body.status, got, worse.fate, worse.status)
			}
		}
	}
	for _, odd := range []int{-1, 99, 600, 2000} {
		if got := judge(200, Reading{Complete: true, Envelope: &Envelope{StatusCode: odd}}); got.fate != Unknown {
			t.Errorf("envelope %d: got %+v, want unknown", odd, got)
		}
	}
}

func TestAnEnvelopeThatContradictsItselfIsABadAnswer(t *testing.T) {
	for _, code := range []int{0, 200} {
		got := judge(200, Reading{Complete: true, Envelope: &Envelope{Error: true, StatusCode: code}})
		if got != (verdict{Unknown, "bad_answer", 200}) {
			t.Errorf("200, error true, status_code %d: got %+v, want unknown, bad_answer", code, got)
		}
	}
}

func TestFateOfAnError(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Fate
	}{
		{nil, Success},
		{errors.New("anything"), Unknown},
		{&Error{Fate: Busy}, Busy},
		{fmt.Errorf("wrapped: %w", &Error{Fate: Held}), Held},
		{errors.Join(errors.New("beside"), &Error{Fate: Refused}), Refused},
	} {
		if got := FateOf(c.err); got != c.want {
			t.Errorf("FateOf(%v) = %s, want %s", c.err, got, c.want)
		}
	}
}
