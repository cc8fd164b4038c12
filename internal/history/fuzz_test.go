package history_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/pkg/messages"
)

// FuzzRead reads whatever may stand in a history, twice over: as the last event in any
// state, and as the started event behind a deferred one. What comes out is one of the
// known answers; no time further ahead than any worker waits, no attempt below zero, and
// no word of the event in an error.
func FuzzRead(f *testing.F) {
	for _, body := range []string{"", "\xff", "null", "[]", `"zqMark"`, `{}`, `{"deadline":"9999-12-31T23:59:59Z"}`,
		`{"deadline":"1900-01-01T00:00:00Z","fingerprint":"f"}`, `{"not_before":"2999-01-01T00:00:00+23:59"}`,
		`{"attempt":1e999}`, `{"attempt":9223372036854775807}`, `{"attempt":-1}`, `{"fingerprint":"other"}`,
		`{"fingerprint":null,"deadline":null}`, `{"deadline":"zqMark"}`, `{"attempt":1,"ATTEMPT":-2}`} {
		f.Add([]byte(body), "started")
		f.Add([]byte(body), "deferred")
		f.Add([]byte(body), "succeeded")
		f.Add([]byte(body), "of tomorrow")
	}
	f.Fuzz(func(t *testing.T, body []byte, state string) {
		if strings.ContainsAny(state, ". *>") {
			return
		}
		s := &historytest.Log{}
		s.Put("mandate.enroll."+state+".r1", body)
		check(t, s, messages.State(state), body)
		if state != string(messages.Started) { // it would be asked for again and again
			s.Put("mandate.enroll.started.r1", []byte(`{}`))
		}
		s.Put("mandate.enroll.deferred.r1", []byte(`{"not_before":"2001-01-01T00:00:00Z"}`))
		check(t, s, messages.Deferred, body)
	})
}

// open reports whether a history in a state goes on, as far as this program knows.
func open(s messages.State) bool {
	return slices.Contains([]messages.State{messages.Started, messages.Deferred, messages.Reopened, messages.Page}, s)
}

func check(t *testing.T, s *historytest.Log, state messages.State, body []byte) {
	t.Helper()
	h := worker(s, "f")
	prior, err := h.Read(t.Context())
	var later *history.RetryLaterError
	var answered *history.AlreadyDoneError
	var foreign *history.ConflictError
	switch {
	case err == nil:
		if prior.State != state || !open(state) || h.Attempt < 0 || h.Attempt > math.MaxInt32 || h.Sequence() == 0 {
			t.Fatalf("%s %q: got %+v, attempt %d", state, body, prior, h.Attempt)
		}
	case errors.As(err, &later):
		if state != messages.Started && state != messages.Deferred && (open(state) || state.Final(messages.Enroll)) ||
			time.Until(later.At) > 48*time.Hour || time.Until(later.At) < -time.Minute {
			t.Fatalf("%s %q: until %s", state, body, later.At)
		}
	case errors.As(err, &answered):
		if !state.Final(messages.Enroll) || answered.State != state {
			t.Fatalf("%s %q: got %v", state, body, err)
		}
	case errors.As(err, &foreign):
		if !strings.Contains(strings.ToLower(string(body)), `"fingerprint"`) && !strings.Contains(string(body), `\u`) {
			t.Fatalf("%s %q: foreign, and names no fingerprint", state, body)
		}
	case !errors.Is(err, history.ErrCorrupt):
		t.Fatalf("%s %q: %v", state, body, err)
	case err.Error() != fmt.Sprintf("history: read r1: %v: sequence %d", history.ErrCorrupt, len(s.Events())):
		t.Fatalf("%s %q: the error is %q", state, body, err)
	}
}
