package main

import (
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"errand/docs/schemas"
	"errand/internal/bus"
	"errand/internal/typo"
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
	known, _ := schemas.Subjects() // they are in the program
	known = append(known, "mandate.transactions.turn", "mail.log.turn", "dead")
	overlaps := func(subject string) bool { return messages.PatternsOverlap(pattern, subject) }
	begins := func(subject string) bool { return overlaps(subject) || overlaps(subject+".>") }
	if slices.ContainsFunc(events(), overlaps) && slices.ContainsFunc(known, begins) {
		return ""
	}
	return "matches no event: subjects are <domain>.<operation>.<state>.<request id>, such as 'mandate.enroll.failed.*' (errand schema)" +
		typo.DidYouMean(strings.Join(tokens[:min(3, len(tokens))], "."), known)
}

func events() (subjects []string) {
	for _, stream := range bus.Streams(bus.Limits{}) {
		own := slices.Contains([]string{bus.RateLeases, bus.Audit, bus.Keys, bus.Suppressions}, stream.Name)
		if stream.Retention == jetstream.LimitsPolicy && !own {
			subjects = append(subjects, stream.Subjects...)
		}
	}
	return subjects
}
