package e2e

import (
	"fmt"
	"strings"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// report logs the figures of a storm.
func (s *storm) report(o sandbox.Oracle, enrollments, letters map[string]event) {
	fired := 0
	for _, n := range o.Faults {
		fired += n
	}
	s.t.Logf("%d enrollments, %d messages to %d each, %v", len(s.enrollments), len(s.letters), letterSize, time.Since(s.began).Round(100*time.Millisecond))
	s.t.Logf("%d kills, %d SIGTERM, %d pauses, %d kills of the server; calls: %d enroll, %d transactions, %d send, %d logs; %d faults: %v", s.kills.Load(), s.stops.Load(),
		s.pauses.Load(), s.brokerKills.Load(), o.Calls["enroll"], o.Calls["transactions"], o.Calls["send"], o.Calls["logs"], fired, o.Faults)
	s.t.Logf("%d requests refused by 403, %d and %d unreadable, %d lists with an open quote; %d times an operation hung, %d times there was no room",
		len(s.refused), len(s.unreadable["mandate.enroll.requested"]), len(s.unreadable["mail.send.requested"]), len(s.unclosed), s.hung.Load(), s.full.Load())
	s.t.Logf("deliveries beyond the first: %d of enrollments, %d of messages", s.redeliveries(bus.EnrollQueue, len(s.enrollments)), s.redeliveries(bus.SendQueue, len(s.letters)))
	s.t.Logf("enrollments: %v; reasons: %v", byState(enrollments), byReason(enrollments))
	s.t.Logf("messages: %v; reasons: %v; batches: %v", byState(letters), byReason(letters), s.batchStates())
	s.t.Logf("sending log: %d rows, %d states published, each once", s.rows, s.deliveries)
	s.t.Logf("lost: %d; twice: %d enrolled, %d served", len(s.enrollments)+len(s.letters)-len(enrollments)-len(letters), o.Enroll.TwiceCount, o.Mail.TwiceCount)
}

func (s *storm) redeliveries(q bus.Queue, published int) int {
	return int(s.queue(q).Delivered.Consumer) - published
}

func byState(ends map[string]event) map[messages.State]int {
	out := map[messages.State]int{}
	for _, e := range ends {
		out[e.state()]++
	}
	return out
}

func byReason(ends map[string]event) map[string]int {
	out := map[string]int{}
	for _, e := range ends {
		if e.reason() != "" {
			out[e.reason()]++
		}
	}
	return out
}

// batchStates counts the ends of the batches; those that are deferred or under way would show too.
func (s *storm) batchStates() map[messages.State]int {
	out := map[messages.State]int{}
	for _, history := range s.histories("mail.batch.*.*.*") {
		out[history[len(history)-1].state()]++
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
