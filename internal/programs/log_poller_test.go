package programs

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// A setting that no poller can work with is refused by name, also zero where zero does not mean what one would expect.
func TestSettingsOfThePollerThatCannotWorkAreRefusedByName(t *testing.T) {
	for _, c := range []struct {
		variable, value string
		refused         bool
	}{
		{"POLL_INTERVAL", "0s", true}, {"POLL_INTERVAL", "-1s", true},
		{"POLL_LIMIT", "0", true}, {"POLL_LIMIT", "10001", true},
		{"POLL_OVERLAP", "-1s", true}, {"POLL_OVERLAP", "0s", false},
		{"POLL_RECIPIENTS", "-1", true}, {"POLL_RECIPIENTS", "0", false},
		{"REPORT_AFTER", "0s", true}, {"REPORT_AFTER", "-1h", true}, {"REPORT_AFTER", "1s", false},
		{"POLL_SINCE", "yesterday", true}, {"POLL_SINCE", "-72h", true}, {"POLL_SINCE", "0s", true},
		{"POLL_SINCE", "2100-01-31T00:00:00Z", true}, {"POLL_SINCE", "72h", false}, {"POLL_SINCE", "30d", false},
		{"POLL_SINCE", "2026-01-31T00:00:00Z", false},
	} {
		t.Run(c.variable+"="+c.value, func(t *testing.T) {
			p, _ := parsed[LogPoller](t, map[string]string{"MAIL_API_URL": "", c.variable: c.value}) // no address, so that it ends in any case
			err := p.Run(t.Context())
			if invalid := new(Invalid); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "MAIL_API_URL: ") {
				t.Fatalf("%v, want an error about MAIL_API_URL", err)
			}
			if refused := strings.Contains(err.Error(), c.variable+": "); refused != c.refused {
				t.Errorf("%v, refused: %v, want %v", err, refused, c.refused)
			}
		})
	}
}

// POLL_SINCE is a time, or a duration before now.
func TestPollSinceIsATimeOrHowLongAgo(t *testing.T) {
	now := time.Date(2026, 2, 3, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":                          {},
		"72h":                       time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
		"2026-01-31T00:00:00Z":      time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC),
		"2026-01-31T00:00:00+08:00": time.Date(2026, 1, 30, 16, 0, 0, 0, time.UTC),
	} {
		if got, err := (&LogPoller{Since: text}).since(now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
}

// The note says what follows, and what to do.
func TestAFullPollerSaysWhatToDo(t *testing.T) {
	for limit, want := range map[int]string{0: "", 19: "", 15: "it keeps 15 of at most 15 recipients: raise POLL_RECIPIENTS, or rows " +
		"of the oldest mail become unmatched"} {
		if got := noteOfRecipients(15, limit); got != want {
			t.Errorf("15 of %d: %q, want %q", limit, got, want)
		}
	}
}
