package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// states are the states of each operation's events. The service chooses the states of applications and deductions.
var states = map[messages.Operation][]messages.State{
	messages.Enroll: {messages.Started, messages.Deferred, messages.Succeeded, messages.Failed, messages.Uncertain, messages.Resolved,
		messages.Reopened, messages.Erased},
	messages.Transactions: {messages.Page, messages.Listed, messages.Failed, messages.Reopened, messages.Erased, messages.Marked, "turn"},
	messages.Callback:     {messages.Received},
	messages.Send: {messages.Started, messages.Deferred, messages.Accepted, messages.Partial, messages.Failed, messages.Uncertain,
		messages.Resolved, messages.Reopened, messages.Erased},
	messages.Batch:   {messages.Started, messages.Deferred, messages.Accepted, messages.Refused, messages.Uncertain, messages.Erased},
	messages.Account: {messages.Reported, messages.Failed, messages.Reopened, messages.Erased},
	messages.Delivery: {messages.Delivered, messages.Deferred, messages.Bounced, messages.Unknown, messages.Summary, messages.Overdue,
		messages.Erased},
	messages.Log: {messages.Sent, messages.Marked, "turn"},
}

// badPattern says why no event can match a pattern, "" if one can.
func badPattern(pattern string) string {
	tokens := strings.Split(pattern, ".")
	for i, token := range tokens {
		if token == "" || strings.ContainsAny(token, " \t\r\n") || token == ">" && i < len(tokens)-1 {
			return "is neither a request id nor a NATS subject pattern, such as 'mail.send.*.*' or 'mandate.>'"
		}
	}
	if tokens[0] != "dead" && slices.Contains(tokens, "requested") {
		return "matches requests, which are not shown: watch shows their events, and errand stuck shows waiting requests"
	}
	if !slices.ContainsFunc(events(), func(subject string) bool { return messages.PatternsOverlap(pattern, subject) }) {
		return "matches no event: subjects are <domain>.<operation>.<state>.<request id>, such as 'mandate.enroll.failed.*'" + meant(tokens)
	}
	if len(tokens) < 3 || tokens[0] == "dead" || tokens[2] == "*" || tokens[2] == ">" {
		return ""
	}
	for _, op := range []messages.Operation{messages.Application, messages.Deduction} {
		if messages.PatternsOverlap(tokens[0]+"."+tokens[1], string(op)) {
			return ""
		}
	}
	var known []messages.State
	for op, list := range states {
		domain, operation, _ := strings.Cut(string(op), ".")
		if messages.PatternsOverlap(tokens[0]+"."+tokens[1], domain+"."+operation) {
			known = append(known, list...)
		}
	}
	if slices.Contains(known, messages.State(tokens[2])) {
		return ""
	}
	slices.Sort(known)
	return fmt.Sprintf("matches no event: %s.%s has the states %s", tokens[0], tokens[1], joined(slices.Compact(known)))
}

// meant suggests another pattern for one that is too short or too long.
func meant(tokens []string) string {
	switch {
	case len(tokens) < 4 && (tokens[0] == "mandate" || tokens[0] == "mail"):
		return "; did you mean '" + strings.Join(tokens, ".") + ".>'?"
	case len(tokens) == 5 && tokens[1] != string(messages.Batch[len("mail."):]):
		return "; only mail.batch has five parts"
	}
	return ""
}

// events returns the subjects of the streams of events.
func events() (subjects []string) {
	for _, stream := range bus.Streams(bus.Limits{}) {
		if stream.Retention == jetstream.LimitsPolicy && stream.Name != bus.RateLeases && stream.Name != bus.Audit {
			subjects = append(subjects, stream.Subjects...)
		}
	}
	return subjects
}
