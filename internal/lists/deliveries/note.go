package deliveries

import (
	"hash/maphash"
	"strconv"
	"strings"

	"errand/internal/lists"
	"errand/internal/lists/sweep"
	"errand/pkg/messages"
)

// note records an event that was stored. It returns false if the event may be about a call that is not known yet.
func (l *Log) note(e lists.Stored) bool {
	n, isMatched := parseNote(e.Subject.ID, e.Recipient)
	id, isRow := sweep.ParseID(e.ID)
	isSummary := e.Subject.State == messages.Summary
	if !isSummary && !(isMatched && isRow) {
		return true
	}
	g, request, known := l.calls.find(e.Subject.ID)
	switch {
	case !known:
	case isSummary:
		r := &g.requests[request]
		r.summary, r.reported, r.final = maphash.String(seed, e.ID), e.At.UnixMilli(), strings.HasSuffix(e.ID, lists.Final)
	default:
		if known = l.calls.observe(n.place, id.Key(), statusIn(e.Subject.State), !n.unsure); known {
			g.change(request)
		}
	}
	return known
}

// rowNote is what the header Errand-Recipient says about a row:
//
//	<batch>.<recipient>   it is certainly of that one
//	<batch>.<recipient>?  it is, as far as is known
type rowNote struct {
	place
	unsure bool
}

func (n rowNote) String() string {
	text := strconv.Itoa(n.batch) + "." + strconv.Itoa(n.recipient)
	if n.unsure {
		text += "?"
	}
	return text
}

// parseNote reads the note of an event about a row of a request.
func parseNote(request, text string) (n rowNote, ok bool) {
	text, n.unsure = strings.CutSuffix(text, "?")
	batch, recipient, _ := strings.Cut(text, ".")
	var wrong, also error
	n.request = request
	n.batch, wrong = strconv.Atoi(batch)
	n.recipient, also = strconv.Atoi(recipient)
	return n, wrong == nil && also == nil
}
