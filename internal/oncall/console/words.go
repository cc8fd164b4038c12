package console

import (
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

// words are the functions that templates write with.
var words = template.FuncMap{
	"time": timeTag, "date": dateTag, "hour": hourTag, "span": inspect.Span, "ago": func(t time.Time) string { return inspect.Span(time.Since(t)) },
	"count": count, "short": inspect.Short, "plain": plain, "reason": reason, "class": class, "path": url.PathEscape,
	"hidden": func(text any) string { return hideIn(fmt.Sprint(text)) }, "capital": capital, "lower": strings.ToLower, "instant": func(t time.Time) string { return t.UTC().Format(time.RFC3339) }, "hourText": func(t time.Time) string { return t.UTC().Format("15:04") }, "plural": plural, "bytes": bytesText,
	"label": func(s any) string { return strings.ReplaceAll(fmt.Sprint(s), "_", " ") },
}

// clock is a time of any of the types that have one.
func clock(at any) (t time.Time) {
	switch at := at.(type) {
	case time.Time:
		t = at
	case messages.Time:
		t = at.Time
	case *messages.Time:
		if at != nil {
			t = at.Time
		}
	}
	return t.UTC()
}

// timeTag is a time as a page shows it: the script writes it in the browser's own zone.
func timeTag(at any) template.HTML { return tag(clock(at), "clock", clockText(clock(at))) }

// dateTag is a time with its day, always.
func dateTag(at any) template.HTML {
	return tag(clock(at), "date", clock(at).Format("2 Jan 2006, 15:04:05"))
}

// hourTag is the begin of an hour.
func hourTag(at time.Time) template.HTML { return tag(at.UTC(), "hour", at.UTC().Format("15:04")) }

func tag(t time.Time, style, text string) template.HTML {
	if t.IsZero() {
		return "–"
	}
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339Nano) + `" data-style="` + style + `">` + text + `</time>`) //nolint:gosec // digits and names of months
}

// clockText is a time of today, or with its day.
func clockText(t time.Time) string {
	t = t.UTC()
	if now := time.Now().UTC(); t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04:05")
	}
	return t.Format("2 Jan 15:04")
}

// count is a number with its thousands apart.
func count(n any) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return digits
}

// plural is a number of things.
func plural(n any, one, many string) string {
	if fmt.Sprint(n) == "1" {
		return "1 " + one
	}
	return count(n) + " " + many
}

func bytesText(n any) string {
	f, _ := strconv.ParseFloat(fmt.Sprint(n), 64)
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if f < 1024 {
			return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0") + " " + unit
		}
		f /= 1024
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + " TiB"
}

// plain is an operation in words.
func plain(op messages.Operation) string {
	switch op {
	case messages.Enroll:
		return "Enrollment"
	case messages.Transactions:
		return "Transaction list"
	case messages.Send:
		return "Message"
	case messages.Account:
		return "Mail account"
	case messages.Batch:
		return "Batch"
	case messages.Application:
		return "Application"
	case messages.Deduction:
		return "Deduction"
	case messages.Callback:
		return "Callback"
	case messages.Delivery:
		return "Delivery"
	}
	return string(op)
}

// reason is what a reason means.
func reason(r messages.Reason) string {
	switch r {
	case messages.ReasonInvalidRequest:
		return "the request is not valid"
	case messages.ReasonConflict:
		return "the id was used before with other contents"
	case messages.ReasonCancelled:
		return "somebody cancelled it"
	case messages.ReasonRefused:
		return "the upstream refused it"
	case messages.ReasonUnavailable:
		return "the upstream could not be used until it was given up"
	case messages.ReasonBusy:
		return "the upstream was busy or not reached; nothing happened there"
	case messages.ReasonHeld:
		return "the upstream refuses everything: credentials, quota or address"
	case messages.ReasonShortCount:
		return "the upstream took fewer recipients than it was sent"
	case messages.ReasonNoAnswer:
		return "a call got no answer: it may have had an effect"
	case messages.ReasonBadAnswer:
		return "a call got an answer that cannot be read: it may have had an effect"
	case messages.ReasonInterrupted:
		return "a program died during a call: it may have had an effect"
	case messages.ReasonLinkLost:
		return "it was enrolled, and the link to its page was lost"
	}
	return string(r)
}

// class is how a state looks: good, bad, doubt or wait.
func class(state any) string {
	s := messages.State(fmt.Sprint(state))
	switch {
	case slices.Contains([]messages.State{messages.Succeeded, messages.Accepted, messages.Listed, messages.Reported, messages.Delivered, "approved", "safe"}, s):
		return "good"
	case slices.Contains([]messages.State{messages.Failed, messages.Refused, messages.Bounced, "not_done"}, s):
		return "bad"
	case slices.Contains([]messages.State{messages.Uncertain, messages.Partial, messages.Unknown, messages.Overdue, "may_be_done_twice"}, s):
		return "doubt"
	case slices.Contains([]messages.State{inspect.Queued, messages.Started, messages.Deferred, messages.Reopened, messages.Page}, s):
		return "wait"
	}
	return ""
}
