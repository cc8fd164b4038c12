package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"errand/internal/bus"
	"errand/internal/style"
	"errand/internal/wire"
	"errand/pkg/messages"
)

// shownFields are the fields of an event's body in a line, in this order.
var shownFields = []struct {
	path, name string // in the body, in the line
	zero       bool   // a zero is shown
}{
	{path: "order_number"}, {path: "transaction.order_number", name: "number"}, {path: "transaction.created_at", name: "made"},
	{path: "amount"}, {path: "status"}, {path: "enrollment.url", name: "url"}, {path: "transaction.amount", name: "amount"},
	{path: "mandate_status", name: "mandate"}, {path: "method"}, {path: "bytes", zero: true}, {path: "checksum"}, {path: "by"},
	{path: "page"}, {path: "records"}, {path: "pages", zero: true}, {path: "total", zero: true},
	{path: "subject"}, {path: "to"}, {path: "to_object.name", name: "to_object"},
	{path: "batch"}, {path: "recipient", zero: true}, {path: "count"}, {path: "accepted", zero: true}, {path: "recipients"}, {path: "batches"},
	{path: "lane"},
	{path: "delivered", zero: true}, {path: "deferred"}, {path: "bounced"}, {path: "unknown"}, {path: "queued"}, {path: "final"},
	{path: "duplicates"}, {path: "invalid_count", name: "invalid"}, {path: "unsettled"},
	{path: "entry.to", name: "to"}, {path: "smtp.code", name: "smtp"}, {path: "smtp.enhanced", name: "enhanced"},
	{path: "match.confidence", name: "match"}, {path: "match.candidates", name: "candidates"},
	{path: "complete_through"}, {path: "new", zero: true},
	{path: "outcome"}, {path: "reason"}, {path: "http_status", name: "http"}, {path: "message"},
	{path: "not_before"}, {path: "conflicts_with"}, {path: "after_unknown"}, {path: "was.state", name: "was"}, {path: "why"},
}

// lines formats events in columns that widen with their contents.
type lines struct {
	console
	kind, id int // widths
}

func newLines(c console) *lines { return &lines{console: c, kind: 26, id: 12} }

// line formats an event: time, subject without the id, id, and the main fields.
func (l *lines) line(e bus.Message, now time.Time) string {
	kind, id := split(e)
	l.kind, l.id = max(l.kind, min(len(kind), 32)), max(l.id, min(len(id), 32))
	return strings.TrimRight(fmt.Sprintf("%s  %s  %s  %s", l.paint(dim, stamp(e.Time, now)+e.Time.Format(".000")),
		l.paint(colourOf(messages.StateOf(e.Subject)), pad(kind, l.kind)), pad(id, l.id), summary(e, now)), " ")
}

var colours = map[style.Look]colour{style.Good: green, style.Bad: red, style.Doubt: yellow, style.Wait: cyan}

func colourOf(state messages.State) colour { return colours[style.OfState(state)] }

// summary returns the main fields of an event as name=value, quoted if needed.
func summary(e bus.Message, now time.Time) string {
	if strings.HasPrefix(e.Subject, "dead.") {
		return join("reason", e.Header.Get(bus.HeaderReason)) + " " + join("message", e.Header.Get(bus.HeaderMessage))
	}
	var body map[string]any
	decoder := json.NewDecoder(bytes.NewReader(e.Data))
	decoder.UseNumber()
	if decoder.Decode(&body) != nil {
		return fmt.Sprintf("%d bytes", len(e.Data))
	}
	var parts []string
	for _, field := range shownFields {
		name := cmp.Or(field.name, field.path)
		text := short(at(body, field.path), field.zero, now)
		if text != "" && !implied(e, body, name, text) {
			parts = append(parts, join(name, text))
		}
	}
	if fields, ok := body["fields"].(map[string]any); ok && body["reason"] == string(messages.ReasonRefused) {
		parts = append(parts, join("fields", strings.Join(slices.Sorted(maps.Keys(fields)), ",")))
	}
	if n, ok := body["attempt"].(json.Number); ok && n != "0" && n != "1" {
		parts = append(parts, join("attempt", n.String()))
	}
	return strings.Join(parts, " ")
}

// implied reports whether a field repeats the rest of a line, or says the usual.
func implied(e bus.Message, body map[string]any, name, text string) bool {
	switch name {
	case "match", "order_number":
		return at(body, "match.confidence") == string(messages.MatchExact)
	case "number", "made": // deductions differ by these
		return body["kind"] != string(messages.DeductionKind) || text == body["order_number"]
	case "status":
		return text == string(messages.StateOf(e.Subject))
	case "by":
		return text == string(messages.ByList) // how a record was found
	}
	return false
}

// at returns the value in body under a path of names.
func at(body any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		object, _ := body.(map[string]any)
		body = object[name]
	}
	return body
}

// short formats a value for a line. A list other than a few strings is shown by its length.
func short(v any, zero bool, now time.Time) string {
	switch v := v.(type) {
	case string:
		if t, err := time.Parse(time.RFC3339, v); err == nil {
			return stamp(t, now)
		}
		return v
	case json.Number:
		if v == "0" && !zero {
			return ""
		}
		return v.String()
	case bool:
		if v {
			return "true"
		}
	case []any:
		var texts []string
		for _, one := range v {
			if text, ok := one.(string); ok {
				texts = append(texts, text)
			}
		}
		if len(texts) == len(v) && len(v) > 0 && len(v) <= shownTexts {
			return strings.Join(texts, ",")
		}
		return strconv.Itoa(len(v))
	}
	return ""
}

// shownTexts is the maximum length of a list that is not shown by its length.
const shownTexts = 3

func join(name, text string) string {
	if text == "" {
		return ""
	}
	if text = wire.Cut(text); strings.ContainsAny(text, " \"=") || printable(text) != text {
		text = strconv.Quote(text)
	}
	return name + "=" + text
}

// printable replaces characters that could control a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, text)
}

// pad pads text to width characters.
func pad(text string, width int) string {
	text = printable(text)
	return text + strings.Repeat(" ", max(0, width-len([]rune(text))))
}
