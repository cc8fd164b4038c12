package messages

import (
	"testing"
)

func TestASubjectIsParsed(t *testing.T) {
	for subject, want := range map[string]Subject{
		"mandate.enroll.started.a-1":       {Operation: Enroll, State: Started, ID: "a-1"},
		"mandate.enroll.requested":         {Operation: Enroll, State: Requested},
		"dead.mail.send.requested":         {Operation: Send, State: Requested, Dead: true},
		"mail.send.requested.lane.bulk":    {Operation: Send, State: Requested, Lane: "bulk"},
		"mail.send.requested.bulk":         {},
		"mail.send.requested.lane.a b":     {}, // nor would NATS take it
		"mail.send.requested.lane.a.b":     {},
		"mail.send.requested.lane.Bulk":    {},
		"mail.send.requested.lane.":        {},
		"mail.send.requested.lane.default": {},
		"mail.account.requested.lane.bulk": {},
		"mail.batch.accepted.a.12":         {Operation: Batch, State: Accepted, ID: "a", Batch: 12},
		"mail.log.watermark":               {Operation: Log, State: Marked},
		"mandate.application.x.unmatched":  {Operation: Application, State: "x", ID: Unmatched},
		"":                                 {},
		"mandate":                          {},
		"mandate.enroll":                   {},
		"mandate.enroll.":                  {},
		".enroll.started.a":                {},
		"mandate..started.a":               {},
		"dead.mandate.enroll.started.a":    {},
	} {
		if got := ParseSubject(subject); got != want {
			t.Errorf("%q: got %+v, want %+v", subject, got, want)
		}
	}
	if n := testing.AllocsPerRun(10, func() { _ = ParseSubject("mail.batch.accepted.a.12") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
