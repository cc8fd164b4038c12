package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// judge compares what was published with what was asked and what was done.
func (s *storm) judge() {
	s.t.Helper()
	o := s.oracle()
	if o.Enroll.TwiceCount != 0 || o.Mail.TwiceCount != 0 {
		s.t.Errorf("enrolled twice: %v; served twice: %d, such as %v", o.Enroll.Twice, o.Mail.TwiceCount,
			o.Mail.Twice[:min(5, len(o.Mail.Twice))])
	}
	enrollments, letters := s.ends("mandate.enroll", s.enrollments), s.ends("mail.send", s.letters)
	for id, e := range enrollments {
		switch n := o.Enroll.ByOrder["order-"+id]; {
		case e.state() == messages.Succeeded && n == 1, e.state() == messages.Failed && n == 0:
		case e.state() == messages.Uncertain && (n == 1 || n == 0 && e.reason() != "link_lost"):
		default:
			s.t.Errorf("%s is %s, the sandbox has %d enrollments: %s", id, e.state(), n, e.Raw)
		}
	}
	served := s.served(letterSize)
	for id, e := range letters {
		reported, got := decode[messages.SendOutcome](s.t, e), sum(served[id])
		errorIf(s.t, reported.Accepted > got || reported.Accepted != got && e.state() != messages.Uncertain || reported.Recipients != letterSize,
			"%s: %d were served: %s", id, got, e.Raw)
	}
	batches := s.histories("mail.batch.*.*.*")
	for batch, history := range batches {
		id := decode[messages.Common](s.t, history[0]).RequestID
		e, err := finalEvent(history)
		if err == nil {
			err = checkBatch(s.t, e, served[id])
		}
		errorIf(s.t, err != nil, "%s: %v", batch, err)
		if s.refused[id] {
			delete(batches, batch) // the first one may speak for all
		}
	}
	want := 3 * len(s.letters)
	for id := range letters {
		if s.refused[id] {
			want -= 3
		}
	}
	errorIf(s.t, len(batches) != want, "%d batches have a history, want %d", len(batches), want)
	s.wantDeadLetters("dead.mandate.enroll.requested", enrollments)
	s.wantDeadLetters("dead.mail.send.requested", letters)
	s.wantTroubleEnded(enrollments)
	s.wantTroubleEnded(letters)
	s.wantUnreadableReported("mandate.enroll.requested", bus.MandateRequests)
	s.wantUnreadableReported("mail.send.requested", bus.MailRequests)
	s.wantLogPublished()
	s.report(o, enrollments, letters)
}

// ends returns the one end of each request; no end or several ends are an error.
func (s *storm) ends(operation messages.Operation, ids []string) map[string]event {
	s.t.Helper()
	histories := s.histories(string(operation) + ".*.*")
	maps.DeleteFunc(histories, func(id string, _ []event) bool { return byNumber(id) })
	out := map[string]event{}
	for _, id := range ids {
		e, err := finalEvent(histories[id])
		if err != nil {
			s.t.Errorf("%s: %v\n%s", id, err, s.about(id))
			continue
		}
		out[id] = e
	}
	errorIf(s.t, len(histories) != len(ids), "%s: %d histories of %d requests", operation, len(histories), len(ids))
	return out
}

// wantDeadLetters wants one for each request that failed or is uncertain, and no other.
func (s *storm) wantDeadLetters(subject string, ends map[string]event) {
	s.t.Helper()
	letters := map[string]int{}
	for _, d := range s.events(subject) {
		if id := d.Header.Get("Errand-Request-Id"); !byNumber(id) {
			letters[id]++
		}
	}
	for id, e := range ends {
		want := 0
		switch e.state() {
		case messages.Failed, messages.Uncertain:
			want = 1
		case messages.Partial: // unless the service took all batches, some of them short
			lost := func(u messages.Unsettled) bool { return u.State != messages.Accepted }
			if slices.ContainsFunc(decode[messages.SendOutcome](s.t, e).Unsettled, lost) {
				want = 1
			}
		}
		errorIf(s.t, letters[id] != want, "%s is %s and has %d dead letters", id, e.state(), letters[id])
		delete(letters, id)
	}
	errorIf(s.t, len(letters) > 0, "dead letters of nobody: %v", letters)
}

// wantLogPublished wants each state of each row of the sending log published once, and the last state of every row.
func (s *storm) wantLogPublished() {
	times := map[string]int{}
	for _, e := range s.events("mail.delivery.*.*") {
		if e.state() == messages.Summary {
			continue
		}
		row := rowOf(s.t, e)
		times[fmt.Sprint(row.EnvelopeID, " ", row.To, " ", e.state())]++
	}
	s.deliveries = len(times)
	for state, n := range times {
		errorIf(s.t, n != 1, "published %d times: %s", n, state)
	}
	api, err := mail.New(mail.Config{URL: s.web.URL, Key: clients.NewSecret(mailKey)})
	must(s.t, err)
	const limit = 1000
	for number := 1; ; number++ {
		page, err := api.LogPage(s.t.Context(), number, limit)
		must(s.t, err)
		for _, row := range page.Entries {
			state := "bounced"
			if row.Delivered {
				state = "delivered"
			}
			s.rows++
			errorIf(s.t, times[fmt.Sprint(row.EnvelopeID, " ", row.To, " ", state)] == 0,
				"%s to %s is %s, and not published", row.EnvelopeID, row.To, state)
		}
		if len(page.Entries) < limit {
			return
		}
	}
}

// report logs the figures of a storm.
func (s *storm) report(o sandbox.Oracle, enrollments, letters map[string]event) {
	s.t.Logf("%d enrollments, %d messages to %d each, %v", len(s.enrollments), len(s.letters), letterSize,
		time.Since(s.began).Round(100*time.Millisecond))
	s.t.Logf("%d kills, %d SIGTERM, %d pauses, %d kills of the server; calls: %v; faults: %v", s.kills.Load(), s.stops.Load(), s.pauses.Load(),
		s.brokerKills.Load(), o.Calls, o.Faults)
	s.t.Logf("%d requests refused by 403, %d unreadable, %d lists with an open quote; %d times an operation hung, %d times there was no room",
		len(s.refused), len(s.unreadable), len(s.unclosed), s.hung.Load(), s.full.Load())
	s.t.Logf("deliveries: %d of enrollments, %d of messages", s.queue(bus.EnrollQueue).Delivered.Consumer,
		s.queue(bus.SendQueue).Delivered.Consumer)
	s.t.Logf("enrollments: %v; messages: %v", tally(enrollments), tally(letters))
	s.t.Logf("sending log: %d rows, %d states published, each once", s.rows, s.deliveries)
}

// tally counts ends by state and reason.
func tally(ends map[string]event) map[string]int {
	out := map[string]int{}
	for _, e := range ends {
		out[strings.TrimSpace(fmt.Sprint(e.state(), " ", e.reason()))]++
	}
	return out
}

// about is all that is known of a request: its events and what the programs logged.
func (s *storm) about(id string) string {
	s.t.Helper()
	var b strings.Builder
	for _, filter := range []string{"mandate.enroll.*." + id, "mail.send.*." + id, "mail.batch.*." + id + ".*"} {
		for _, e := range s.events(filter) {
			fmt.Fprintf(&b, "%s %s\n", e.Subject, e.Raw)
		}
	}
	for n, p := range s.processes() {
		for line := range strings.Lines(p.output.String()) {
			if strings.Contains(line, `"request_id":"`+id+`"`) {
				fmt.Fprintf(&b, "%s %d: %s", p.name, n, line)
			}
		}
	}
	return b.String()
}
