package main

import (
	"slices"
	"strings"

	"errand/docs/schemas"
	"errand/internal/typo"
	"errand/pkg/messages"
)

// badPattern says why no event can match a pattern, "" if one can.
func badPattern(pattern string) string {
	known, _ := schemas.Subjects() // they are in the program
	known = append(known, "mandate.transactions.turn", "mail.log.turn", "dead")
	begins := func(subject string) bool {
		return !strings.HasSuffix(subject, ".requested") && (messages.PatternsOverlap(pattern, subject) || messages.PatternsOverlap(pattern, subject+".>"))
	}
	if !strings.Contains(pattern, ">.") && slices.ContainsFunc(known, begins) && len(sources([]string{pattern})) > 0 {
		return ""
	}
	tokens := strings.Split(pattern, ".")
	return "matches no event: they have a request id, or a subject <domain>.<operation>.<state>.<request id>, such as 'mandate.enroll.failed.*' " +
		"(errand schema); requests are not shown" + typo.DidYouMean(strings.Join(tokens[:min(3, len(tokens))], "."), known)
}
