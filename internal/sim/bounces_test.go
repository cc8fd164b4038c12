package sim

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"errand/pkg/messages"
)

// suppressed is what a replica knows of an address. To some nothing may ever be sent; others bounce and are removed all the time, and
// each replica knows it at other times.
func (w *world) suppressed(n *node, address string) bool {
	if !w.Bounces {
		return false
	}
	hash := func(more any) uint64 {
		h := fnv.New64a()
		fmt.Fprint(h, w.seed, address, more)
		return h.Sum64() >> 7
	}
	switch kind := hash("") % 8; {
	case kind == 0:
		return true
	case kind > 3 || n == nil:
		return false
	}
	return hash(fmt.Sprint(n.name, time.Since(w.began)/(20*time.Second)))%2 == 0
}

// leftOut are the recipients that an outcome is without: those that it names, and those that the events of batches before it name.
func (w *world) leftOut(r *request, e *stored, body *messages.SendOutcome) map[int]bool {
	left := map[int]bool{}
	for _, i := range body.Invalid {
		for n := range r.To {
			left[n] = left[n] || recipientKey(r, n) == i.Address
		}
	}
	last, single := map[string]messages.BatchBody{}, false
	for _, of := range w.log.events {
		var b messages.BatchBody
		started := of.id == r.ID && of.state == messages.Started && of.facts.Fingerprint == e.facts.Fingerprint
		isBatch := of.op == messages.Batch && strings.HasPrefix(of.id, r.ID+".")
		if of.Sequence < e.Sequence && (started || isBatch) && messages.DecodeEvent(of.Body, &b) == nil {
			last[of.id] = b
			if of.state == messages.Deferred && !b.AfterUnknown { // nothing was done: it is listed whole, unless the outcome names them
				delete(last, of.id)
			}
		}
		if of.id == r.ID && of.state == messages.Reopened && of.facts.By == messages.ByCorrection { // they may be cut otherwise
			clear(last)
		}
		single = single && !started || started && of.facts.Batches == 1
	}
	for id, b := range last {
		for _, s := range b.Suppressed {
			left[b.First+s.Recipient] = left[b.First+s.Recipient] || single == (id == r.ID)
		}
	}
	for n, is := range left {
		if !is {
			delete(left, n)
		}
	}
	return left
}
