package sandbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// row is one entry of the sending log: a recipient of a message, or for foreignMessage the inserted row of that index.
type row struct{ message, recipient uint32 }

const foreignMessage = math.MaxUint32

// defaultLimit is the number of rows of a log page when the caller does not say.
const defaultLimit = 100

// logs answers with a page of the sending log. Pages are offsets: rows added in the meantime shift the others.
func (s *Sandbox) logs(c *call) answer {
	query := c.r.URL.Query()
	page := positiveInt(query.Get("page"), 1)
	rows, total, limit := s.outbox.page(c.Settings, page, positiveInt(query.Get("limit"), defaultLimit))
	return envelope(object("data", rows, "total_record", total, "total_page", (total+limit-1)/limit, "current_page", page, "limit", limit))
}

// page returns the rows of a page, the number of rows in the log, and the maximum of this page.
func (o *outbox) page(settings *Settings, page, limit int) (rows []json.RawMessage, total, most int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now() // under the lock: a row that was added meanwhile would have no state yet
	o.appendDue(now)
	o.churn(settings, now)
	most, total = min(limit, settings.LogCap), len(o.log)
	begin := min((page-1)*most, total)
	rows = make([]json.RawMessage, min(begin+most, total)-begin)
	for i := range rows {
		rows[i] = o.entry(o.log[o.listed(settings.LogOrder, begin+i)], settings, now)
	}
	return rows, total, most
}

// listed returns the index in the log of the i-th row of the listing. Without an order it is random, but fixed until a row is added,
// which may appear anywhere.
func (o *outbox) listed(order string, i int) int {
	switch order {
	case Oldest:
		return i
	case NoOrder:
		if len(o.shuffled) != len(o.log) {
			o.shuffled = make([]int, len(o.log))
			for place := range o.shuffled {
				o.shuffled[place] = place
			}
			key := func(place int) uint64 { return mix(o.seed ^ o.log[place].key()) }
			slices.SortFunc(o.shuffled, func(a, b int) int { return cmp.Compare(key(a), key(b)) })
		}
		return o.shuffled[i]
	}
	return len(o.log) - 1 - i
}

// entry is the document's log entry.
func (o *outbox) entry(r row, settings *Settings, now time.Time) json.RawMessage {
	if r.message == foreignMessage {
		return o.foreign[r.recipient].text
	}
	p, i := o.messages[r.message], int(r.recipient)
	to, envelope, state := p.to[i], p.envelope(o.seed), p.state(o.seed, i, now)
	reply := response(state, envelope)
	if code := p.replies[strings.ToLower(to)]; code > 0 && (state == Bounced || state == Deferred) {
		reply = strconv.Itoa(code) + reply[3:]
	}
	status := object("delivered", state == Delivered, "ip", "192.0.2.25", "mx", "mx1."+domain(to), "response", reply)
	return object(append([]any{
		"created_at", stamp(p.eventAt(i)),
		"envelope_id", envelope,
		"interface", "api",
		"domain", domain(p.from),
		"from", p.from,
		"to", to,
	}, o.result(r, settings, state == Delivered, status)...)...)
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// States of a recipient.
const (
	Queued    = "queued"
	Delivered = "delivered"
	Deferred  = "deferred"
	Bounced   = "bounced"
)

// response is the receiving server's reply. The upstream shows no failures; assumed.
func response(state, envelope string) string {
	switch state {
	case Deferred:
		return "451 4.7.1 Greylisted, please try again later"
	case Bounced:
		return "550 5.1.1 The email account that you tried to reach does not exist"
	}
	return "250 2.0.0 OK " + envelope
}

// state is the i-th recipient's state at a time. A deferred one is delivered later, in the same row.
func (p *posted) state(seed uint64, i int, now time.Time) string {
	event := p.eventAt(i)
	if event > now.UnixMilli() {
		return Queued
	}
	switch p.fate(seed, p.to[i]) {
	case Bounced:
		return Bounced
	case Deferred:
		if now.UnixMilli() < event+time.Duration(p.settings.DeferredFor).Milliseconds() {
			return Deferred
		}
	}
	return Delivered
}

// fate is the first reply that a recipient gets: what its local part asks for, or else what is drawn from the seed for this
// subject and address, whatever the order of the messages.
func (p *posted) fate(seed uint64, address string) string {
	local := strings.ToLower(address[:len(address)-len(domain(address))])
	switch {
	case p.replies[strings.ToLower(address)] >= 500, strings.Contains(local, "bounce"):
		return Bounced
	case p.replies[strings.ToLower(address)] >= 400, strings.Contains(local, "defer"):
		return Deferred
	case p.settings.ShareBounced == 0 && p.settings.ShareDeferred == 0:
		return Delivered
	}
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%s\n%s", p.subject, address)
	switch draw := fraction(mix(hash.Sum64() ^ mix(seed))); {
	case draw < p.settings.ShareBounced:
		return Bounced
	case draw < p.settings.ShareBounced+p.settings.ShareDeferred:
		return Deferred
	}
	return Delivered
}
