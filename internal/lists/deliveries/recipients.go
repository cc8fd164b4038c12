package deliveries

import (
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"errand/internal/lists"
	"errand/internal/lists/sweep"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

// recipient is one address of one batch, and what became of it.
type recipient struct {
	address mailkey.Key
	batch   uint32
	next    uint32 // one with the same address, plus one; 0 if there is none
	row     uint32 // shortened id of its first row; 0 if it has none
	status  status
	proven  bool // there is a row that is certainly of this batch
}

// held is the recipient that a row is of.
type held struct {
	recipient uint32
	exact     bool
}

type status uint8

// The numbers are part of the ids of rows' states.
const (
	unseen status = iota // it has no row
	delivered
	deferred
	bounced
	unknown
	statuses
)

// states are the statuses as events have them.
var states = [statuses]messages.State{delivered: messages.Delivered, deferred: messages.Deferred, bounced: messages.Bounced,
	unknown: messages.Unknown}

// statusIn is the status in a delivery event.
func statusIn(s messages.State) status {
	if i := slices.Index(states[:], s); i > 0 {
		return status(i)
	}
	return unknown
}

// then is the status after another one is seen or learned. Delivered stays, and bounced
// stays unless delivered follows: any other that is learned later is an older one.
func (s status) then(next status) status {
	if s == delivered || s == bounced && next != delivered {
		return s
	}
	return next
}

type place struct {
	request          string
	batch, recipient int
}

// at returns the recipient at a place; ok: it is known.
func (x *calls) at(p place) (g *generation, i uint32, ok bool) {
	g, n, ok := x.findBatch(p.request, p.batch)
	if !ok {
		return nil, 0, false
	}
	b := &g.batches[n]
	i = uint32(p.recipient - int(b.first))
	return g, b.start + i, p.recipient >= int(b.first) && i < b.count
}

// placeOf is where a recipient is.
func (g *generation) placeOf(i uint32) place {
	b := &g.batches[g.recipients[i].batch]
	return place{string(g.id(b.request)), int(b.number), int(b.first) + int(i-b.start)}
}

// short is what recipients keep of a row's id.
func short(row uint64) uint32 { return uint32(row) | 1 }

// take notes that a row is of a recipient, before its event is stored; exact: it is certainly of that batch.
func (g *generation) take(i uint32, row uint64, exact bool) {
	g.rows[row] = held{i, exact}
	if r := &g.recipients[i]; r.row == 0 {
		r.row = short(row)
	} else if r.row != short(row) && !slices.Contains(g.more[i], short(row)) {
		g.more[i] = append(g.more[i], short(row))
	}
}

// isFree reports whether a row can be of a recipient: a call has one row for each, or this is the row that it has.
func (g *generation) isFree(i uint32, row uint64) bool {
	r := &g.recipients[i]
	return r.row == 0 || r.row == short(row) || slices.Contains(g.more[i], short(row)) || !g.isFull(i)
}

// isSettled reports whether a recipient has its rows and gets no other.
func (g *generation) isSettled(i uint32) bool {
	r := &g.recipients[i]
	return r.row != 0 && g.batches[r.batch].accepted && g.isFull(i)
}

// isFull reports whether a recipient has a row for each call, if it has one.
func (g *generation) isFull(i uint32) bool {
	n := 1 + len(g.more[i])
	for range g.spans(g.recipients[i].batch) {
		n--
	}
	return n >= 0
}

// observe records a state of a row to a recipient that was stored; exact: it is certainly of that batch. false: the
// recipient is unknown.
func (x *calls) observe(p place, row uint64, s status, exact bool) bool {
	g, i, ok := x.at(p)
	if !ok {
		return false
	}
	if g.take(i, row, exact); s == delivered { // it does not change
		delete(g.rows, row)
	}
	r := &g.recipients[i]
	r.status, r.proven = r.status.then(s), r.proven || exact
	return true
}

// counts is the number of recipients of a request in each status.
func (g *generation) counts(r *request) (n [statuses]int) {
	for number := range int(r.last) {
		if b, ok := g.batch(r, number+1); ok {
			for _, to := range g.of(b) {
				n[to.status]++
			}
		}
	}
	return n
}

func (g *generation) of(b uint32) []recipient {
	at := &g.batches[b]
	return g.recipients[at.start : at.start+at.count]
}

// proven is how many recipients of a batch of this size have a row that is certainly of it; 0 if the batch is unknown.
func (x *calls) proven(request string, number, count int) (n int) {
	g, b, ok := x.findBatch(request, number)
	if !ok || len(g.of(b)) != count {
		return 0
	}
	for _, r := range g.of(b) {
		if r.proven {
			n++
		}
	}
	return n
}

// note records an event that was stored. It returns false if the event may be about a call that is not known yet.
func (l *Log) note(e lists.Stored) bool {
	at, exact, isMatched := parseNote(e.Subject.ID, e.Recipient)
	id, isRow := sweep.ParseID(e.ID)
	isSummary := e.Subject.State == messages.Summary
	g, request, known := l.calls.find(e.Subject.ID)
	switch {
	case !isSummary && !(isMatched && isRow):
		return true
	case !known:
	case isSummary:
		r := &g.requests[request]
		r.summary, r.reported, r.final = maphash.String(seed, e.ID), e.At.UnixMilli(), strings.HasSuffix(e.ID, lists.Final)
	default:
		if known = l.calls.observe(at, id.Key(), statusIn(e.Subject.State), exact); known {
			g.change(request)
		}
	}
	return known
}

// noteOf is what the header Errand-Recipient says about a row:
//
//	<batch>.<recipient>   it is certainly of that one
//	<batch>.<recipient>?  it is, as far as is known
func noteOf(p place, exact bool) string {
	text := strconv.Itoa(p.batch) + "." + strconv.Itoa(p.recipient)
	if !exact {
		text += "?"
	}
	return text
}

// parseNote reads the note of an event about a row of a request.
func parseNote(request, text string) (p place, exact, ok bool) {
	text, unsure := strings.CutSuffix(text, "?")
	batch, recipient, _ := strings.Cut(text, ".")
	n, wrong := strconv.Atoi(batch)
	i, also := strconv.Atoi(recipient)
	return place{request, n, i}, !unsure, wrong == nil && also == nil
}
