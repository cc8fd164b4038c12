package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"errand/internal/requests/hold"
	"errand/pkg/messages"
)

// contract.md 6 is what is held against what the services did:
//
//	called   no call after an outcome, with other contents than the request's, or again after one that may have happened
//	effect   nobody is enrolled twice
//	held     no hold begins for the fault of one request
//	judge    each request has one outcome an opening, in time, and each outcome is true

// stored notes an event. The caller holds the log.
func (w *world) stored(e *stored) {
	say := ""
	switch f := e.facts; e.state {
	case messages.Deferred:
		say = fmt.Sprintf(" for %v: %s", time.Until(f.NotBefore.Time).Round(time.Second), f.Reason)
	case messages.Reopened:
		say = " by " + f.By
	case messages.Failed, messages.Uncertain, messages.Partial, messages.Accepted, messages.Refused:
		say = fmt.Sprintf(" %s, accepted %d: %s", f.Reason, f.Accepted, f.Message)
	}
	w.tell("%s is %s (%d)%s", e.id, e.state, e.Sequence, say)
	if e.state == messages.Accepted || e.state == messages.Succeeded || e.state == messages.Partial {
		w.isKnown(e)
	}
}

// isKnown notes what a success says: what was done then is not done again, whatever the request allows.
func (w *world) isKnown(e *stored) {
	id, _, _ := strings.Cut(e.id, ".")
	r := w.requests[id]
	if r == nil {
		return
	}
	var b messages.BatchBody
	switch _ = messages.DecodeEvent(e.Body, &b); {
	case e.op == messages.Enroll:
		w.knows(r.ID)
	case e.op == messages.Batch || e.facts.Batches == 1:
		left := map[int]bool{}
		for _, s := range b.Suppressed {
			left[s.Recipient] = true
		}
		for i := range min(cmp.Or(b.Count+len(left), r.To), r.To-b.First) {
			if !left[i] {
				w.knows(recipientKey(r, b.First+i))
			}
		}
	}
}

func (w *world) knows(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known[key] = time.Now()
}

func (w *world) fingerprint(request string, n int) string {
	if r := w.requests[request]; r != nil && n < len(r.contents) {
		return r.contents[n].digest
	}
	return ""
}

// called is asked before a call reaches its service.
func (w *world) called(c *call) {
	r := w.requests[c.request]
	if r == nil {
		w.fail("a call for %q, which nobody asked for", c.request)
		return
	}
	w.log.mu.Lock()
	all := w.log.of[historyKey(r.op, r.ID)]
	var started, reopened, last *stored
	for _, e := range all {
		last = e
		switch e.state {
		case messages.Started:
			started = e
		case messages.Reopened:
			reopened = e
		}
	}
	w.log.mu.Unlock()
	w.mu.Lock()
	c.n = len(w.calls) + 1
	w.calls = append(w.calls, c)
	w.mu.Unlock()
	fate := c.fate
	if fate == "" {
		fate = "well"
	}
	w.tell("%v: it will go %s", c, fate)
	own := w.fingerprint(c.request, c.contents)
	switch {
	case time.Since(w.began) < time.Duration(r.NotBefore).Truncate(time.Second):
		w.fail("%v, before its not_before", c)
	case started == nil:
		w.fail("%v, which no event announces", c)
	case last.outcome():
		w.fail("%v, after its outcome: %s (%d)", c, last.state, last.Sequence)
	case reopened != nil && reopened.facts.Fingerprint != own:
		w.fail("%v: the contents were corrected", c)
	case started.facts.Fingerprint != own:
		w.fail("%v: other contents have that id", c)
	}
	for _, key := range c.keys() {
		if w.suppressed(nil, key) {
			w.fail("%v, to %s, from which mail bounces", c, key)
		}
		w.again(c, r, key)
	}
}

// keys name what a call does: an enrollment, or a mail to each recipient.
func (c *call) keys() []string {
	if len(c.to) == 0 {
		return []string{c.request}
	}
	return c.to
}

// again checks a call against the one before it for the same thing.
func (w *world) again(c *call, r *request, key string) {
	w.mu.Lock()
	before := w.last[key]
	w.last[key] = c
	consent, consented := w.consents[key]
	known := w.known[key]
	w.mu.Unlock()
	if before == nil || before.contents != c.contents {
		return
	}
	happened := len(before.effects) > 0
	switch {
	case !happened && !before.trial:
	case consented && !consent.Before(before.at):
	case !known.After(before.at) && (r.OnUnknown == messages.OnUnknownResend || r.OnUnknown == messages.OnUnknownRetry):
	default:
		w.fail("%v: %s was called before, at %s, and that went %s", c, key, w.at(before.at), before.fate)
	}
}

// effect lets a call happen.
func (w *world) effect(c *call, s *service, whole bool) string {
	w.mu.Lock()
	first := len(c.effects) == 0
	c.effectAt = time.Now()
	body := s.take(c, whole)
	n := 0
	if !w.Mail {
		for _, other := range w.calls {
			if other.first == c.first {
				n += len(other.effects)
			}
		}
	}
	w.mu.Unlock()
	if first && c.fate != "" {
		w.tell("what %s asked for at %s happens", c.by.name, w.at(c.at))
	}
	if n > 1 {
		w.fail("%s is enrolled %d times", c.request, n)
	}
	return body
}

// held is asked when a hold begins.
func (w *world) held(n *node, op messages.Operation, cause hold.Cause) {
	w.tell("%s holds %s: %s", n.name, op, cause)
	if cause != hold.NoAnswer || op == messages.Transactions || op == messages.Account {
		return // reads change nothing
	}
	w.mu.Lock()
	requests := map[string]bool{}
	seen := slices.DeleteFunc(slices.Clone(w.calls), func(c *call) bool { return c.by != n || c.seen.IsZero() })
	slices.SortStableFunc(seen, func(a, b *call) int { return a.seen.Compare(b.seen) })
	for _, c := range seen {
		switch {
		case c.answered && !c.trial && (c.fate == "" || c.fate == shortCount || c.fate == refuses):
			clear(requests)
		case c.trial:
			requests[c.request] = true
		}
	}
	w.mu.Unlock()
	if len(requests) < 3 {
		w.fail("%s holds %s for %d requests whose calls went wrong", n.name, op, len(requests))
	}
}

// underWay notes how many calls one replica makes at once.
func (w *world) underWay(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most = max(w.most, n)
}

// judge holds what is stored in the end against what happened.
func (w *world) judge() {
	w.over = false
	if w.most > w.Concurrency {
		w.fail("%d calls under way at once, and CONCURRENCY is %d", w.most, w.Concurrency)
	}
	for _, r := range w.requests {
		if r.at.IsZero() {
			continue
		}
		w.ending(r)
		w.truth(r)
	}
	for op, q := range w.queues {
		for _, m := range q.all {
			w.message(op, m)
		}
	}
	w.dead()
}

// ending is that a request has one outcome an opening.
func (w *world) ending(r *request) {
	all := w.log.of[historyKey(r.op, r.ID)]
	var outcome *stored
	for _, e := range all {
		switch {
		case e.state == messages.Reopened:
			outcome = nil
		case !e.outcome() || e.state == messages.Resolved || e.state == messages.Erased:
		case outcome != nil:
			w.fail("%s ends twice: %s (%d) and %s (%d)", r.ID, outcome.state, outcome.Sequence, e.state, e.Sequence)
		default:
			outcome = e
		}
	}
	if !w.ended(r) {
		w.fail("%s has no outcome %v after all was well", r.ID, time.Since(w.clear).Round(time.Minute))
	}
	if outcome != nil && outcome.facts.Reason == messages.ReasonUnavailable {
		if well := outcome.At.Sub(w.clear); well > patience {
			w.fail("%s was given up though all had been well for %v", r.ID, well)
		}
	}
}

// effectsOf are the recipients who got a request's contents, or its enrollment, by calls that began before a time.
func (w *world) effectsOf(r *request, digest string, before time.Time) map[string]bool {
	got := map[string]bool{}
	for _, c := range w.calls {
		if c.request == r.ID && w.fingerprint(r.ID, c.contents) == digest && c.at.Before(before) {
			for _, to := range c.effects {
				got[to] = true
			}
		}
	}
	return got
}

// truth is that an outcome says what happened.
func (w *world) truth(r *request) {
	all := w.log.of[historyKey(r.op, r.ID)]
	for i, e := range all {
		if !e.outcome() {
			continue
		}
		until := time.Now()
		for _, later := range all[i+1:] {
			if later.state == messages.Reopened {
				until = later.At
				break
			}
		}
		got := w.effectsOf(r, e.facts.Fingerprint, until)
		says := e.state
		if says == messages.Resolved {
			says = e.facts.Outcome
		}
		switch {
		case r.op == messages.Send:
			w.sendTruth(r, e, got)
		case e.state == messages.Listed:
			w.listed(r, all[:i], e)
		case says == messages.Succeeded && len(got) == 0:
			w.fail("%s is %s (%d), and was not done", r.ID, e.state, e.Sequence)
		case says == messages.Failed && len(got) > 0:
			w.fail("%s is %s (%d), and was done", r.ID, e.state, e.Sequence)
		}
	}
}

// listed is that a listing has each of its pages once, in order.
func (w *world) listed(r *request, before []*stored, e *stored) {
	var body messages.TransactionsListed
	_ = messages.DecodeEvent(e.Body, &body) // what cannot be read has no page
	pages := 0
	for _, p := range before {
		var page messages.TransactionsPage
		switch {
		case p.state == messages.Reopened:
			pages = 0
		case p.state == messages.Page && messages.DecodeEvent(p.Body, &page) == nil:
			if pages++; page.Page != pages {
				w.fail("%s has page %d after page %d", r.ID, page.Page, pages-1)
			}
		}
	}
	if body.Pages != pages {
		w.fail("%s is listed (%d) with %d pages, and has %d", r.ID, e.Sequence, body.Pages, pages)
	}
}

func (w *world) sendTruth(r *request, e *stored, got map[string]bool) {
	var body messages.SendOutcome
	if messages.DecodeEvent(e.Body, &body) != nil || e.state == messages.Resolved || e.state == messages.Erased {
		return
	}
	said := map[int]messages.State{} // by recipient; missing means accepted
	short := map[int]bool{}
	left, places := w.leftOut(r, e, &body), []int{}
	for i := range r.To {
		if !left[i] {
			places = append(places, i)
		}
	}
	for _, u := range body.Unsettled {
		if u.First < 0 {
			w.fail("%s is %s (%d), and its batch %d begins at recipient %d", r.ID, e.state, e.Sequence, u.Batch, u.First)
			return
		}
		for _, i := range places[min(u.First, len(places)):min(u.First+u.Count, len(places))] {
			said[i] = u.State
			if u.State == messages.Accepted {
				short[i] = true
			}
		}
	}
	blank := body.UnsettledCount == 0 && e.state == messages.Uncertain // it could not go on, and says nothing of its batches
	accepted, wrong := 0, []string{}
	for i := range r.To {
		key := recipientKey(r, i)
		state, listed := said[i]
		if got[key] && !left[i] && (!listed || state == messages.Accepted) {
			accepted++
		}
		switch {
		case blank || short[i]:
		case left[i]:
			if got[key] && !body.AfterUnknown {
				wrong = append(wrong, fmt.Sprintf("%d was left out and got it", i))
			}
		case e.state == messages.Failed || listed && (state == messages.Refused || state == messages.Deferred):
			if got[key] {
				wrong = append(wrong, fmt.Sprintf("%d got it", i))
			}
		case !listed && !got[key]:
			wrong = append(wrong, fmt.Sprintf("%d did not get it", i))
		}
	}
	if len(wrong) > 0 {
		w.fail("%s is %s (%d) with %d accepted, and of its recipients %s", r.ID, e.state, e.Sequence, body.Accepted, strings.Join(wrong, ", "))
	} else if !blank && (body.Accepted > accepted || body.Accepted < accepted && len(short) == 0) && e.state != messages.Failed {
		w.fail("%s is %s (%d) with %d accepted, and %d got it", r.ID, e.state, e.Sequence, body.Accepted, accepted)
	}
}

func recipientKey(r *request, i int) string { return fmt.Sprintf("%s-%d@example.test", r.ID, i) }

// batchSize is how many recipients the batches of a message have, by the last event that says it.
func (w *world) batchSize(r *request) int {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	size := 1000
	for _, e := range w.log.of[historyKey(r.op, r.ID)] {
		var b messages.SendStarted
		if e.state == messages.Started && messages.DecodeEvent(e.Body, &b) == nil && b.BatchSize > 0 {
			size = b.BatchSize
		}
	}
	return size
}

// message is that a message which nobody redrove has its outcome under one id.
func (w *world) message(op messages.Operation, m *message) {
	trace := m.header.Get("traceparent")
	r := m.request
	if r == nil || r.redriven[trace] {
		return
	}
	var outcomes []*stored
	for _, e := range w.log.events {
		if e.trace == trace && e.outcome() && e.state != messages.Resolved && e.state != messages.Erased && w.log.there(e) {
			outcomes = append(outcomes, e)
		}
	}
	for i := 1; i < len(outcomes); i++ {
		if outcomes[i].id != outcomes[0].id {
			w.fail("message %d of %s ends twice: %s is %s (%d), and %s is %s (%d)", m.sequence, r.ID, outcomes[0].id, outcomes[0].state,
				outcomes[0].Sequence, outcomes[i].id, outcomes[i].state, outcomes[i].Sequence)
		}
	}
}

// dead is that what did not go well has its dead letter, under the right id, unless they cannot be stored.
func (w *world) dead() {
	for _, l := range w.letters.all {
		final := w.log.events[l.final-1]
		if r := l.of.request; r != nil && final.facts.Fingerprint != "" && final.facts.Fingerprint != r.contents[l.of.contents].digest {
			w.fail("the dead letter of %s is about %s (%d), which has other contents", r.ID, final.state, final.Sequence)
		}
	}
	if w.full(lettersFull) {
		return
	}
	left := func(e *stored) bool { return e.state == messages.Failed || e.state == messages.Uncertain }
	for _, e := range w.log.events {
		of, _, _ := strings.Cut(e.trace, "-")
		r := w.requests[of]
		if !left(e) || !e.outcome() || r != nil && r.erased || e.facts.Reason == messages.ReasonCancelled || w.log.forgotten(e) {
			continue
		}
		// Or the same contents were published again and went well, before this message's dead letter was stored.
		found := slices.ContainsFunc(w.log.events, func(later *stored) bool {
			return later.Sequence > e.Sequence && later.id == e.id && later.facts.Fingerprint == e.facts.Fingerprint &&
				later.outcome() && !left(later)
		})
		for _, l := range w.letters.all {
			later := w.log.events[l.final-1] // of the same contents, published again: its bytes are the same
			found = found || l.final == e.Sequence || later.Sequence > e.Sequence && later.id == e.id &&
				later.facts.Fingerprint == e.facts.Fingerprint
		}
		if !found {
			w.fail("%s is %s (%d), and left no dead letter", e.id, e.state, e.Sequence)
		}
	}
}
