package send

import (
	"cmp"
	"maps"
	"slices"

	"errand/internal/history"
	"errand/pkg/messages"
)

// A batch is cut without regard to whom mail bounces from, and leaves them out when it is first started: whatever the list says
// later or elsewhere, no recipient comes into another batch. All events of the batch have what was decided.

// leftOut is a recipient that a batch leaves out.
type leftOut struct {
	messages.Suppressed
	batch   int
	address string
}

// suppress leaves out of a batch, whose history says p, whom it left out before. If surely nothing was done, or nobody knows whom it
// left out, it is decided now.
func (m *message) suppress(b batch, p history.Prior, decided []messages.Suppressed, known bool) batch {
	// Without a started the message may have been cut otherwise when that was decided, and nobody was sent to.
	never := p.State == messages.Deferred && (p.Reason == messages.ReasonScheduled || p.Started == nil && !p.AfterUnknown)
	if p.State == "" || never || p.State == messages.Reopened && !(p.AfterUnknown && known) {
		decided = m.bounced(b)
	}
	return b.without(decided)
}

// bounced is whom a batch is to leave out by what is known now.
func (m *message) bounced(b batch) (all []messages.Suppressed) {
	if try := m.request.Body.Suppress; m.Suppressed == nil || try != nil && !*try {
		return nil
	}
	for i, address := range b.to {
		if since, why, yes := m.Suppressed(address); yes {
			all = append(all, messages.Suppressed{Recipient: i, At: &messages.Time{Time: since}, Why: why})
		}
	}
	return all
}

// without is a batch that leaves recipients out.
func (b batch) without(some []messages.Suppressed) batch {
	if len(some) == 0 {
		return b
	}
	whole := b.to
	b.to, b.left = nil, make([]leftOut, 0, len(some))
	next := 0
	for _, s := range some {
		l := leftOut{Suppressed: s, batch: b.number}
		if s.Recipient >= next && s.Recipient < len(whole) { // of a batch that is only counted nobody is known
			b.to = append(b.to, whole[next:s.Recipient]...)
			l.address, next = whole[s.Recipient], s.Recipient+1
		}
		b.left = append(b.left, l)
	}
	b.to = append(b.to, whole[next:]...)
	return b
}

// suppressed is whom a batch leaves out, for its events.
func (b batch) suppressed() (all []messages.Suppressed) {
	for _, l := range b.left {
		all = append(all, l.Suppressed)
	}
	return all
}

// leaveOut notes whom a batch leaves out.
func (o *outcome) leaveOut(b batch) {
	if len(b.left) == 0 {
		return
	}
	if o.left == nil {
		o.left = map[int]int{}
	}
	o.left[b.number] = len(b.left)
	o.invalid = append(o.invalid, b.left...)
	slices.SortFunc(o.invalid, func(a, b leftOut) int {
		return cmp.Or(cmp.Compare(a.batch, b.batch), cmp.Compare(a.Recipient, b.Recipient))
	})
	o.invalid = slices.Clip(o.invalid[:min(len(o.invalid), messages.ListedInvalid)])
}

// suppressed is how many recipients all batches leave out.
func (o *outcome) suppressed() (n int) {
	for _, some := range o.left {
		n += some
	}
	return n
}

// before is the results with their first recipients as if those that are left out were not in the list.
func (o *outcome) before() []result {
	if len(o.left) == 0 {
		return o.results
	}
	numbers, less := slices.Sorted(maps.Keys(o.left)), 0
	for i, r := range o.results {
		for len(numbers) > 0 && numbers[0] < r.number {
			less, numbers = less+o.left[numbers[0]], numbers[1:]
		}
		o.results[i].first -= less
	}
	return o.results
}
