package deliveries

import (
	"fmt"
	"testing"
	"time"

	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

var start = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

func key(n int) mailkey.Key { return oldSecret.KeyOf(fmt.Sprintf("p%d@example.test", n)) }

func one(k mailkey.Key) party { return party{k} }

func ms(t time.Time) int64 { return t.UnixMilli() }

func sender(n int) mailkey.Key { return oldSecret.KeyOf(fmt.Sprintf("s%d@example.test", n)) }

// A row matches a call by the time of its acceptance, or its own time, and by the sender.
func TestARowMatchesTheCallThatItIsNear(t *testing.T) {
	const begin, over = 2 * time.Hour, 2*time.Hour + time.Second
	const none, unique, exact = messages.MatchNone, messages.MatchUnique, messages.MatchExact
	for name, c := range map[string]struct {
		fate     fate
		running  bool // its outcome was not read yet
		from     int
		accepted time.Duration // after the start; 0: unknown
		created  time.Duration // 0: unknown
		other    bool          // another call was accepted a minute before
		want     messages.Confidence
	}{
		"before the call":                   {accepted: begin - 2*time.Second - time.Millisecond, want: none},
		"before one that is under way":      {running: true, accepted: begin - 3*time.Second, want: none},
		"an hour before":                    {accepted: begin - time.Hour, want: none},
		"more than an hour before":          {accepted: begin - time.Hour - time.Millisecond, want: none},
		"just before":                       {accepted: begin - 2*time.Second, want: unique},
		"at its begin":                      {accepted: begin, want: exact},
		"at its end":                        {accepted: over, want: exact},
		"just after":                        {accepted: over + time.Millisecond, want: unique},
		"late":                              {accepted: over + 15*time.Minute, want: unique},
		"later than late":                   {accepted: over + 16*time.Minute, want: none},
		"an hour after":                     {accepted: over + time.Hour, want: none},
		"more than an hour after":           {accepted: over + time.Hour + time.Millisecond, want: none},
		"by the row's own time":             {created: begin - 3*time.Second, want: none},
		"by the row's own time, just then":  {created: begin - 2*time.Second, want: unique},
		"by the row's own time, meanwhile":  {created: begin + time.Millisecond, want: unique},
		"by the row's own time, days after": {created: over + 5*24*time.Hour, want: unique},
		"by the row's own time, too late":   {created: over + 5*24*time.Hour + time.Millisecond, want: none},
		"by the row's own time, too early":  {created: begin - time.Hour - time.Millisecond, want: none},
		"by no time":                        {want: unique},
		"of another sender":                 {from: 2, accepted: begin - 3*time.Second, want: none},
		"of another sender, meanwhile":      {from: 2, accepted: begin, want: none},
		"of another sender, later":          {from: 2, accepted: over + time.Hour, want: none},
		"of another sender, much later":     {from: 2, accepted: over + time.Hour + time.Millisecond, want: none},
		"of another, of one that was":       {fate: accepted, from: 2, accepted: begin, want: none},
		"of the sender":                     {from: 1, accepted: begin - 3*time.Second, want: none},
		"of a call that was accepted":       {fate: accepted, accepted: begin - 3*time.Second, want: none},
		"just after it was accepted":        {fate: accepted, accepted: over + 2*time.Second, want: unique},
		"later than just after":             {fate: accepted, accepted: over + 2*time.Second + time.Millisecond, want: none},
		"of one that was, and twice":        {fate: repeated, accepted: begin - 3*time.Second, want: none},
		"late, of one that was, and twice":  {fate: repeated, accepted: over + 15*time.Minute, want: unique},
		"of one that was in part":           {fate: partly, accepted: begin - 3*time.Second, want: none},
		"late, of one that was in part":     {fate: partly, accepted: over + 15*time.Minute, want: none},
		"of one that was refused":           {fate: refused, accepted: begin, want: none},
		"of another call":                   {accepted: begin - time.Minute, other: true, want: exact},
	} {
		for _, later := range []bool{false, true} { // the order in which the calls are added
			x := &calls{}
			other := func() {
				at := start.Add(begin - time.Minute)
				x.add(call{request: "other", batch: 1, begin: at, end: at.Add(time.Second)}, []mailkey.Key{key(2), key(1)})
				x.close("other", 1, at.Add(time.Second), accepted)
			}
			if c.other && !later {
				other()
			}
			x.add(call{request: "r", batch: 1, from: sender(1), begin: start.Add(begin), end: start.Add(begin + 35*time.Second)},
				[]mailkey.Key{key(1)})
			if !c.running {
				x.close("r", 1, start.Add(over), c.fate)
			}
			if c.other && later {
				other()
			}
			r := row{to: one(key(1))}
			if c.from > 0 {
				r.from = one(sender(c.from))
			}
			if c.accepted > 0 {
				r.accepted = ms(start.Add(c.accepted))
			}
			if c.created > 0 {
				r.created = ms(start.Add(c.created))
			}
			m := x.match(r)
			if m.Confidence != c.want || c.other && m.request != "other" {
				t.Errorf("%s: %+v, want %s", name, m, c.want)
			}
		}
	}
}

// A row that is of one call only because another one has its row is not certainly of it.
func TestARowThatMayBeOfACallWithARowProvesNothing(t *testing.T) {
	x := &calls{}
	add(x, "first", 1, 0, 10*time.Second, 1)
	x.close("first", 1, start.Add(10*time.Second), accepted)
	x.observe(place{"first", 1, 0}, 1, delivered, true)
	add(x, "second", 1, 5*time.Second, 15*time.Second, 1)
	for at, want := range map[time.Duration]messages.Confidence{6 * time.Second: messages.MatchUnique, 13 * time.Second: messages.MatchExact} {
		if got := x.match(row{to: one(key(1)), accepted: ms(start.Add(at)), id: 2}); got.request != "second" || got.Confidence != want {
			t.Errorf("accepted after %v it is %+v, want %s", at, got, want)
		}
	}
}

// The clock may have been off by less, or by more, when a row was made that is published hours
// later: it is certainly of a call only if even so it can be of no other one.
func TestARowThatIsPublishedLateMayBeOfACallSecondsBefore(t *testing.T) {
	x := &calls{}
	for i, id := range []string{"earlier", "later"} {
		begin := start.Add(time.Duration(i) * 3 * time.Second)
		x.add(call{request: id, batch: 1, begin: begin, end: begin.Add(time.Second)}, []mailkey.Key{key(1)})
		x.close(id, 1, begin.Add(time.Second), accepted)
	}
	for after, want := range map[time.Duration]messages.Confidence{
		time.Minute: messages.MatchExact, time.Hour: messages.MatchExact, 10 * time.Hour: messages.MatchAmbiguous,
	} {
		r := row{to: one(key(1)), accepted: ms(start.Add(3500 * time.Millisecond)), seen: ms(start.Add(after))}
		if got := x.match(r); got.Confidence != want {
			t.Errorf("published after %v: %s, want %s", after, got.Confidence, want)
		}
	}
}

// Outcomes are read after all calls: the outcome of an earlier call must not close a later one.
func TestAnOutcomeClosesItsOwnCall(t *testing.T) {
	x := &calls{}
	for i := range 2 {
		at := start.Add(time.Duration(i) * time.Minute)
		x.add(call{request: "r", batch: 1, begin: at, end: at.Add(35 * time.Second)}, []mailkey.Key{key(1)})
	}
	x.close("r", 1, start.Add(time.Second), refused)
	x.close("r", 1, start.Add(time.Minute+time.Second), accepted)
	for at, want := range map[time.Duration]messages.Confidence{
		500 * time.Millisecond: messages.MatchNone, time.Minute + 500*time.Millisecond: messages.MatchExact, time.Minute +
			20*time.Second: messages.MatchNone,
	} {
		if got := x.match(row{to: one(key(1)), accepted: ms(start.Add(at))}); got.Confidence != want {
			t.Errorf("accepted after %v: %s, want %s", at, got.Confidence, want)
		}
	}
}

// A final state stays, except that Delivered may follow Bounced by another call.
func TestEachRecipientIsSeenOnceAndStaysAsItEnded(t *testing.T) {
	x := &calls{}
	x.add(call{request: "r", batch: 2, first: 10, begin: start, end: start.Add(time.Minute)}, []mailkey.Key{key(1), key(2), key(3)})
	x.close("r", 2, start.Add(time.Second), accepted)
	at := func(recipient int) place { return place{"r", 2, recipient} }
	for _, c := range []struct {
		recipient   int
		state, want status
		ok          bool
	}{
		{10, deferred, deferred, true}, {10, delivered, delivered, true}, {10, bounced, delivered, true},
		{10, deferred, delivered, true}, {9, bounced, 0, false}, {13, bounced, 0, false},
		{12, unknown, unknown, true}, {12, deferred, deferred, true}, {12, unknown, unknown, true}, {12, bounced, bounced, true},
		{12, deferred, bounced, true}, {12, unknown, bounced, true}, {12, bounced, bounced, true}, {12, delivered, delivered, true},
	} {
		ok := x.observe(at(c.recipient), uint64(c.recipient), c.state, true)
		if e := stateAt(x, at(c.recipient)); ok != c.ok || ok && e.status != c.want {
			t.Errorf("recipient %d: %t, %+v; want %+v", c.recipient, ok, e, c)
		}
	}
	for range 2 {
		x.observe(at(12), 12, delivered, false)
		if n := x.proven("r", 2, 3); n != 2 {
			t.Errorf("%d are proven, want 2", n)
		}
	}
}

// stateAt is the recipient at a place, with what became of it; zero if it is unknown.
func stateAt(x *calls, p place) (r recipient) {
	if g, i, ok := x.at(p); ok {
		r = g.recipients[i]
	}
	return r
}
