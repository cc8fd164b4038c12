package messages_test

import (
	"testing"

	"errand/internal/wire"
)

func TestPatternsMatchSubjectsAsInNATS(t *testing.T) {
	for _, c := range []struct {
		pattern, other    string
		matches, overlaps bool
	}{
		{"mail.send.*.a", "mail.send.failed.a", true, true},
		{"mail.send.*.a", "mail.send.failed.b", false, false},
		{"mail.>", "mail.send.failed.a", true, true},
		{"mail.>", "mail", false, false},
		{"mail.send.*", "mail.send.failed.a", false, false},
		{"mail.send.*.*", "mail.*.failed.>", false, true},
		{"mail.send.started.*", "mail.send.failed.>", false, false},
		{"mail.*", "mail.send.failed", false, false},
		{"mail.*.requested", "mail.send.requested", true, true},
		{"mail.send.requested.*", "mail.send.requested", false, false},
		{"mail.send.requested", "mail.send.requested", true, true},
		{"mandate.>", "mail.send.requested", false, false},
		{">", "mail.send.requested", true, true},
	} {
		if got := wire.MatchSubject(c.pattern, c.other); got != c.matches {
			t.Errorf("%s matches %s: got %v", c.pattern, c.other, got)
		}
		if got := wire.PatternsOverlap(c.pattern, c.other); got != c.overlaps {
			t.Errorf("%s overlaps %s: got %v", c.pattern, c.other, got)
		}
		if got := wire.PatternsOverlap(c.other, c.pattern); got != c.overlaps {
			t.Errorf("%s overlaps %s: got %v", c.other, c.pattern, got)
		}
	}
}
