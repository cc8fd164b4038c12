package console

import (
	"cmp"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/internal/style"
	"errand/pkg/messages"
)

var words = template.FuncMap{
	"ago":     func(t time.Time) string { return style.Span(time.Since(t)) },
	"due":     func(t time.Time) string { return style.Span(max(0, time.Until(t))) },
	"instant": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"count":   style.Count, "plural": style.Plural, "bytes": style.Bytes,
	"badge": badgeOf, "label": label, "plain": plain, "reason": reason, "where": where, "short": inspect.Short,
	"capital": style.Capital, "lower": strings.ToLower, "path": url.PathEscape,
	"hidden":     func(text any) string { return hideIn(fmt.Sprint(text)) },
	"ours":       func(text any) string { return hideAddresses(fmt.Sprint(text)) },
	"legend":     func() []inspect.ClassInfo { return legend },
	"operations": func() []messages.Operation { return inspect.Operations },
	"states":     func() []messages.State { return inspect.States(nil) },
	"reasons":    func() []messages.Reason { return messages.Reasons },
	"verbs":      func() []act.Verb { return act.Verbs },
	"spans":      func() []span { return spans },
	"subject":    messages.ParseSubject,
	"onQueue":    func(v act.Verb) bool { return v == act.Pause || v == act.Resume },
}

type badge struct {
	Look style.Look
	Text string
}

// legend are the classes that the list of dead letters explains.
var legend = inspect.Classes[:slices.IndexFunc(inspect.Classes, func(c inspect.ClassInfo) bool { return c.Class == inspect.Cancelled })]

var results = map[act.Result]badge{
	act.Done:    {style.Good, "done"},
	act.NotDone: {"", "not done"},
	act.Unknown: {style.Doubt, "unknown"},
}

// badgeOf is the badge of a state, a class of dead letters or the result of an act.
func badgeOf(what any) badge {
	switch what := what.(type) {
	case inspect.Class:
		return badge{what.Info().Look, what.Info().Words}
	case act.Result:
		return results[what]
	}
	return badge{style.OfState(fmt.Sprint(what)), label(what)}
}

func label(name any) string { return strings.ReplaceAll(fmt.Sprint(name), "_", " ") }

func where(place any) string {
	if fmt.Sprint(place) == "nats" {
		return "NATS"
	}
	return style.Capital(fmt.Sprint(place))
}

var operations = map[messages.Operation]string{
	messages.Enroll: "Enrollment", messages.Transactions: "Transaction list", messages.Send: "Message", messages.Account: "Mail account",
	messages.Batch: "Batch", messages.Delivery: "Delivery",
	messages.Application: "Application", messages.Deduction: "Deduction", messages.Callback: "Callback",
}

func plain(op messages.Operation) string { return cmp.Or(operations[op], string(op)) }

var reasons = map[messages.Reason]string{
	messages.ReasonInvalidRequest: "the request is not valid",
	messages.ReasonConflict:       "another request with other contents has the id",
	messages.ReasonCancelled:      "a person cancelled it",
	messages.ReasonRefused:        "the upstream refused it",
	messages.ReasonUnavailable:    "the upstream was unavailable until the request was given up",
	messages.ReasonBusy:           "the upstream was busy or not reached; nothing happened there",
	messages.ReasonHeld:           "the upstream refuses or fails every call, so none is made: the queue says why",
	messages.ReasonShortCount:     "the upstream accepted fewer recipients than it was sent",
	messages.ReasonNoAnswer:       "a call got no answer: it may have had an effect",
	messages.ReasonBadAnswer:      "a call got an unreadable answer: it may have had an effect",
	messages.ReasonInterrupted:    "a program died during a call: it may have had an effect",
	messages.ReasonLinkLost:       "the payer is enrolled, but the link to the page was lost",
}

func reason(r messages.Reason) string { return cmp.Or(reasons[r], string(r)) }
