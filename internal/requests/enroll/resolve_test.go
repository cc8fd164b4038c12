package enroll

import (
	"encoding/json"
	"testing"
	"time"

	"errand/internal/mandates"
	"errand/internal/retry"
	"errand/pkg/messages"
)

func TestWhatTheListSaysOfAnUncertainEnrollment(t *testing.T) {
	const (
		fresh, pending, failed = `{"status":0}`, `{"status":1}`, `{"status":2}`
		approved, cancelled    = `{"status":3}`, `{"status":"4"}`
		expired, unheard, none = `{"status":5}`, `{"status":77}`, `{"status":null}`
		charge                 = `{"transaction_type":"Deduction","status":2}`
	)
	lost := messages.EnrollUncertain{Reason: messages.ReasonLinkLost}
	listedBefore := messages.EnrollUncertain{Reason: messages.ReasonNoAnswer, Evidence: []json.RawMessage{[]byte(fresh)}}
	for _, c := range []struct {
		what    string
		found   mandates.Listing
		was     messages.EnrollUncertain
		records []string
		soon    messages.State // before a day has passed
		late    messages.State // after it
	}{
		{what: "not listed", soon: messages.Failed, late: messages.Failed},
		{what: "not listed, others are", found: mandates.Listing{Flaw: "not narrowed"}},
		{what: "not listed so far", found: mandates.Listing{Flaw: "cut", Cut: true}},
		{what: "nothing is listed", found: mandates.Listing{Flaw: "hidden"}},
		{what: "no longer listed", was: lost},
		{what: "no longer listed, with evidence", was: listedBefore},
		{what: "new", records: []string{fresh}, soon: messages.Succeeded, late: messages.Succeeded},
		{what: "new among others", found: mandates.Listing{Flaw: "cut", Cut: true}, records: []string{fresh}, soon: messages.Succeeded,
			late: messages.Succeeded},
		{what: "new, link lost", was: lost, records: []string{fresh}, late: messages.Succeeded},
		{what: "pending, link lost", was: lost, records: []string{pending}, late: messages.Succeeded},
		{what: "unheard of, link lost", was: lost, records: []string{unheard}, late: messages.Succeeded},
		{what: "without status, link lost", was: lost, records: []string{none}, late: messages.Succeeded},
		{what: "unreadable, link lost", was: lost, records: []string{`{"status":true}`}, late: messages.Succeeded},
		{what: "approved, link lost", was: lost, records: []string{failed, approved}, soon: messages.Succeeded, late: messages.Succeeded},
		{what: "charged, link lost", was: lost, records: []string{charge}, soon: messages.Succeeded, late: messages.Succeeded},
		{what: "charged, spelled otherwise, link lost", was: lost, records: []string{`{"transaction_type":" DEDUCTION","status":2}`},
			soon: messages.Succeeded, late: messages.Succeeded},
		{what: "failed", records: []string{failed}, soon: messages.Failed, late: messages.Failed},
		{what: "ended", was: lost, records: []string{failed, cancelled, expired}, soon: messages.Failed, late: messages.Failed},
		{what: "ended so far", was: lost, found: mandates.Listing{Flaw: "cut", Cut: true}, records: []string{failed}},
		{what: "one of two ended, link lost", was: lost, records: []string{failed, fresh}, late: messages.Succeeded},
	} {
		for _, record := range c.records {
			c.found.Records = append(c.found.Records, json.RawMessage(record))
		}
		for age, want := range map[time.Duration]messages.State{retry.ResolveEnough - 1: c.soon, retry.ResolveEnough: c.late} {
			if got := became(c.found, c.was, age); got != want {
				t.Errorf("%s, %v: got %q, want %q", c.what, age, got, want)
			}
		}
	}
}
