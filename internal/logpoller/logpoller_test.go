package logpoller

import (
	"cmp"
	"errors"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"errand/internal/app"
)

// A setting that no poller can work with is refused by name, also zero where zero does not
// mean what one would expect.
func TestSettingsOfThePollerThatCannotWorkAreRefusedByName(t *testing.T) {
	for _, c := range []struct{ variable, value, refused string }{
		{"POLL_INTERVAL", "0s", "POLL_INTERVAL"}, {"POLL_INTERVAL", "-1s", "POLL_INTERVAL"},
		{"POLL_LIMIT", "0", "POLL_LIMIT"}, {"POLL_LIMIT", "10001", "POLL_LIMIT"},
		{"POLL_OVERLAP", "-1s", "POLL_OVERLAP"}, {"POLL_OVERLAP", "0s", ""},
		{"POLL_RECIPIENTS", "-1", "POLL_RECIPIENTS"}, {"POLL_RECIPIENTS", "0", ""},
		{"REPORT_AFTER", "0s", "REPORT_AFTER"}, {"REPORT_AFTER", "-1h", "REPORT_AFTER"}, {"REPORT_AFTER", "1s", ""},
		{"CONCLUDE_AFTER", "0s", "CONCLUDE_AFTER"}, {"CONCLUDE_AFTER", "-1h", "CONCLUDE_AFTER"}, {"CONCLUDE_AFTER", "1s", ""},
		{"OVERDUE_AFTER", "-1h", "OVERDUE_AFTER"}, {"OVERDUE_AFTER", "0s", ""}, {"OVERDUE_AFTER", "6h", ""},
		{"POLL_SINCE", "yesterday", "POLL_SINCE"}, {"POLL_SINCE", "-72h", "POLL_SINCE"}, {"POLL_SINCE", "0s", "POLL_SINCE"},
		{"POLL_SINCE", "72h", ""}, {"POLL_SINCE", "2026-01-31T00:00:00Z", ""},
	} {
		t.Run(c.variable+"="+c.value, func(t *testing.T) {
			t.Setenv("MAIL_API_URL", "") // is checked last
			t.Setenv(c.variable, c.value)
			var p Program
			parser, err := kong.New(&p, kong.ExplicitGroups([]kong.Group{{Key: "nats"}, {Key: "upstream"}, {Key: "program"}}))
			if err == nil {
				_, err = parser.Parse(nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			want := cmp.Or(c.refused, "MAIL_API_URL")
			var invalid *app.Invalid
			if err := p.Run(t.Context()); !errors.As(err, &invalid) || invalid.Variable != want {
				t.Errorf("%v, want an error about %s", err, want)
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
		if got, err := (&Program{Since: text}).since(now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
}
