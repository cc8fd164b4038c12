package inspect

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/pkg/messages"
)

func TestAStoryHasWhatBecameOfItsMandateWithoutThePayer(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	record := body{"id": "TX-1", "amount": "100.50", "payer_name": "Ann Tester",
		"mandate": body{"order_number": "DD001", "payer_email": "ann@example.com", "status": 3}}
	about := body{"request_id": "a", "order_number": "DD001", "mandate_status": "active", "match": body{"confidence": "exact"},
		"transaction": record}
	in.store("mandate.enroll.succeeded.a", body{"request_id": "a"})
	in.store("mandate.callback.received.a", body{"method": "POST", "bytes": 9, "checksum": "valid", "query": "name=Ann+Tester",
		"body": "ann@example.com"})
	in.store("mandate.application.erased.a", body{"event_id": "00"})
	in.store("mandate.application.approved.a", about)
	in.store("mandate.application.approved.aa", about)
	in.store("mandate.callback.received.a", body{"method": "GET", "bytes": 0, "checksum": "absent"})
	in.store("mandate.deduction.failed.a", about)
	in.store("mandate.deduction.failed.expired", about) // its own events are no longer kept
	s := in.one("a")
	subjects := ids(s.Mandate, func(e Event) string { return e.Subject })
	want := []string{"mandate.callback.received.a", "mandate.application.approved.a", "mandate.callback.received.a",
		"mandate.deduction.failed.a"}
	if !slices.Equal(subjects, want) || len(s.Events) != 1 || !strings.HasPrefix(s.Says, "succeeded, ") {
		t.Errorf("%q, %d events, and of its mandate %q; want one, and %q", s.Says, len(s.Events), subjects, want)
	}
	text, err := json.Marshal(s)
	if err != nil || strings.Contains(strings.ToLower(string(text)), "ann") {
		t.Errorf("%v, it names the payer: %s", err, text)
	}
	for _, told := range []string{`"method":"POST"`, `"bytes":9`, `"checksum":"valid"`, `"mandate_status":"active"`, `"amount":"100.50"`,
		`"mandate":{"order_number":"DD001","status":3}`} {
		if !strings.Contains(string(text), told) {
			t.Errorf("it does not say %s: %s", told, text)
		}
	}
	if s := in.one("expired"); len(s.Mandate) != 1 || s.State != NeverSeen ||
		!strings.HasPrefix(s.Says, "no event of the request itself is kept") {
		t.Errorf("of one whose events have expired: %+v", s)
	}
}

// What no request is sure to be meant by is found by its order number.
func TestRecordsOfNoRequestAreFoundByOrderNumber(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	in.store("mandate.application.new.unmatched", body{"order_number": "dd 001", "transaction": body{"payer_name": "Ann"},
		"match": body{"confidence": "ambiguous", "candidates": []string{"a", "b"}}})
	in.store("mandate.deduction.approved.unmatched", body{"order_number": "DD001"})
	in.store("mandate.deduction.approved.unmatched", body{"order_number": "DD0011"})
	in.store("mandate.deduction.approved.c", body{"request_id": "c", "order_number": "DD001"})
	found, err := in.Find(t.Context(), "DD001", nil, time.Time{}, bus.Known{})
	subjects := ids(found.Records, func(e Event) string { return e.Subject })
	if want := []string{"mandate.application.new.unmatched", "mandate.deduction.approved.unmatched"}; err != nil ||
		!slices.Equal(subjects, want) {
		t.Errorf("%v, %q, want %q", err, subjects, want)
	}
	if text, err := json.Marshal(found); err != nil || strings.Contains(string(text), "Ann") {
		t.Errorf("%v, it names the payer: %s", err, text)
	}
}

// The poller of transactions need not run: it shows where one answers or has run.
func TestTheStatusHasThePollerOfTransactionsIfThereIsOne(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	status := func() Status {
		t.Helper()
		s, err := in.Status(t.Context(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := status(); s.Transactions != nil {
		t.Errorf("there is none, and it says %+v", s.Transactions)
	}
	through := messages.Time{Time: time.Now().Add(-9 * time.Hour).Truncate(time.Millisecond)}
	in.store("mandate.transactions.watermark", body{"complete_through": through})
	if s := status(); s.Transactions == nil || !s.Transactions.Watermark.Equal(through.Time) || s.Transactions.Marked == nil ||
		s.Transactions.ReadThrough != nil {
		t.Errorf("none answers: %+v, want its watermark", s.Transactions)
	}
	answers := bus.ProgramStatus{Program: bus.TransactionPoller}
	if s := (Status{At: messages.Time{Time: through.Add(24 * time.Hour)}, Programs: []bus.ProgramStatus{answers},
		Transactions: &Poller{Marked: &through}}); len(Problems(s)) != len(bus.Programs) {
		t.Errorf("it has started and read nothing yet: %v", Problems(s))
	}
	read := map[string]messages.Time{bus.TransactionPoller: {Time: time.Now().Truncate(time.Millisecond)}, "log-poller": through}
	for program, at := range read {
		if err := bus.AnswerStatus(in.Conn, program, func() bus.ProgramStatus { return bus.ProgramStatus{ReadThrough: &at} }); err != nil {
			t.Fatal(err)
		}
	}
	s := status()
	if at := read[bus.TransactionPoller]; !s.Transactions.ReadThrough.Equal(at.Time) || !s.Transactions.Watermark.Equal(through.Time) ||
		!s.Poller.ReadThrough.Equal(through.Time) {
		t.Errorf("%+v and %+v, want each what its own poller says", s.Transactions, s.Poller)
	}
}

// A deduction may have another order number, by which its enrollment is found.
func TestAnEnrollmentIsFoundByTheOrderNumberOfADeduction(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	of := func(own string) body {
		return body{"request_id": "a", "order_number": "DD001", "transaction": body{"order_number": own}}
	}
	in.store("mandate.enroll.started.a", body{"request_id": "a", "order_number": "DD001"})
	in.store("mandate.enroll.succeeded.a", body{"request_id": "a", "order_number": "DD001"})
	in.store("mandate.deduction.failed.a", of("DD001"))
	in.store("mandate.deduction.approved.a", of("DED 7"))
	in.store("mandate.deduction.approved.unmatched", body{"order_number": "DD002", "transaction": body{"order_number": "DED8"}})
	for word, want := range map[string]Finding{
		"ded7":  {Found: []Found{{RequestID: "a", As: "order number"}}},
		"DD001": {Found: []Found{{RequestID: "a", As: "order number"}}},
		"DED8":  {Records: make([]Event, 1)},
		"DED9":  {},
	} {
		found, err := in.Find(t.Context(), word, nil, time.Time{}, bus.Known{})
		if err != nil || len(found.Found) != len(want.Found) || len(found.Records) != len(want.Records) {
			t.Errorf("%s: %v, %+v", word, err, found)
			continue
		}
		for i, f := range found.Found {
			if f.RequestID != want.Found[i].RequestID || f.State != messages.Succeeded || f.As != want.Found[i].As {
				t.Errorf("%s: %+v, want %+v", word, f, want.Found[i])
			}
		}
	}
}

// A poller that has read nothing yet is there.
func TestAPollerThatHasReadNothingYetAnswers(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	if err := bus.AnswerStatus(in.Conn, bus.TransactionPoller, func() bus.ProgramStatus { return bus.ProgramStatus{} }); err != nil {
		t.Fatal(err)
	}
	s, err := in.Status(t.Context(), time.Now())
	if err != nil || s.Transactions == nil || s.Transactions.ReadThrough != nil || !s.Answers(bus.TransactionPoller) ||
		s.Answers(bus.LogPoller) {
		t.Errorf("%v, %+v, %+v", err, s.Programs, s.Transactions)
	}
}
