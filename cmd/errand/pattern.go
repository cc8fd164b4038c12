package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"errand/docs/schemas"
	"errand/internal/bus"
	"errand/pkg/messages"
)

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
	var known []string
	subjects, _ := schemas.Subjects() // they are in the program
	for _, subject := range append(subjects, "mandate.transactions.turn", "mail.log.turn") {
		parts := strings.Split(subject, ".")
		switch {
		case !messages.PatternsOverlap(tokens[0]+"."+tokens[1], parts[0]+"."+parts[1]):
		case len(parts) == 2: // the service chooses the states
			return ""
		case parts[2] != "requested":
			known = append(known, parts[2])
		}
	}
	if slices.Contains(known, tokens[2]) {
		return ""
	}
	slices.Sort(known)
	return fmt.Sprintf("matches no event: %s.%s has the states %s", tokens[0], tokens[1], strings.Join(slices.Compact(known), ", "))
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
