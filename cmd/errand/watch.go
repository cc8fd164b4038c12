package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"errand/docs/schemas"
	"errand/internal/bus"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/internal/typo"
	"errand/internal/wire"
)

type watch struct {
	NATS access `embed:"" group:"nats"`

	Pattern []string      `arg:"" optional:"" help:"Request ids, or subjects with * and > as in NATS; default: all events."`
	Since   programs.When `placeholder:"TIME" help:"Start with events since then: 90m, 24h, 3d, or a date such as 2026-01-31."`
	JSON    bool          `help:"One JSON object per line: time, subject, headers, body."`
	Exit    bool          `help:"Exit after the stored events."`
}

// everything is what interests a person; mail.log.> has the log-poller's records.
var everything = []string{"mandate.*.*.*", "mail.send.>", "mail.batch.>", "mail.account.>", "mail.delivery.>"}

func (*watch) Help() string {
	return `Shows events as they are stored, one line each, until Ctrl-C.

Examples:

    errand watch --since 1h
    errand watch --since 3d enroll-signup-4711    # the history of one request, and its new events
    errand watch --since 24h 'mail.send.*.*' 'mail.delivery.bounced.*'
    errand watch --since 24h --exit 'dead.>'
    errand watch --json --since 1h --exit 'mandate.transactions.page.*' | jq .body.records

Subjects are <domain>.<operation>.<state>.<request id>. Requests are not shown, only their events. The log-poller's
records, mail.log.>, and dead letters, dead.>, are shown only if a pattern names them.`
}

func (w *watch) Run(ctx context.Context, c console) error {
	var patterns []string
	for _, pattern := range w.Pattern {
		if wire.IsID(pattern) && pattern != "mandate" && pattern != "mail" && pattern != "dead" {
			patterns = append(patterns, "mandate.*.*."+pattern, "mail.send.*."+pattern, "mail.account.*."+pattern,
				"mail.batch.*."+pattern+".*", "mail.delivery.*."+pattern)
			continue
		}
		if problem := badPattern(pattern); problem != "" {
			return invalid("PATTERN", "%q %s", pattern, problem)
		}
		patterns = append(patterns, pattern)
	}
	if w.Exit && !w.Since.IsSet() {
		return invalid("--exit", "requires --since: otherwise there is nothing to show")
	}
	if len(patterns) == 0 {
		patterns = everything
	}
	b, err := w.NATS.open(ctx, "watch", c)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	f, err := follow(ctx, b, patterns, w.Since.From(time.Now()))
	if err != nil {
		return ended(ctx, err)
	}
	layout := newLines(c)
	show := func(e bus.Message) { fmt.Fprintln(c.out, layout.line(e, time.Now())) }
	if w.JSON {
		show = func(e bus.Message) { fmt.Fprintln(c.out, encoded(inspect.EventOf(e), false)) }
	}
	if w.Exit {
		return ended(ctx, f.news(ctx, show))
	}
	return f.run(ctx, show)
}

// badPattern says why no event can match a pattern, "" if one can.
func badPattern(pattern string) string {
	known := append(schemas.Subjects(), "mandate.transactions.turn", "mail.log.turn", "dead")
	overlaps := func(subject string) bool { return wire.PatternsOverlap(pattern, subject) }
	begins := func(subject string) bool {
		return !strings.HasSuffix(subject, ".requested") && (overlaps(subject) || overlaps(subject+".>"))
	}
	if !strings.Contains(pattern, ">.") && slices.ContainsFunc(known, begins) && len(sources([]string{pattern})) > 0 {
		return ""
	}
	tokens := strings.Split(pattern, ".")
	return "matches no event: give a request id, or a subject <domain>.<operation>.<state>.<request id> such as 'mandate.enroll.failed.*' " +
		"(errand schema); requests are not shown" + typo.DidYouMean(strings.Join(tokens[:min(3, len(tokens))], "."), known)
}
