package deliveries

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

var start = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// written is a row of the log and the recipient that it really belongs to.
type written struct {
	envelope string
	row
	request          string // "": of another program
	batch, recipient int
}

// mailing makes calls and their rows.
type mailing struct {
	*rand.Rand
	calls
	rows []written
}

func key(n int) messages.Key { return messages.KeyOf(fmt.Sprintf("p%d@example.test", n)) }

func one(k messages.Key) party { return party{plain: k} }

func ms(t time.Time) int64 { return t.UnixMilli() }

func sender(n int) messages.Key { return messages.KeyOf(fmt.Sprintf("s%d@example.test", n)) }

// between returns a random time up to d after t, in milliseconds.
func (w *mailing) between(t time.Time, d time.Duration) time.Time {
	return t.Add(time.Duration(w.Int64N(int64(d/time.Millisecond)+1)) * time.Millisecond)
}

// addRow adds a row of a message that was accepted at a time by the upstream's clock.
func (w *mailing) addRow(at time.Time, to, from messages.Key, decodes bool, r written) {
	created := w.between(at, 3*24*time.Hour)
	r.envelope = fmt.Sprintf("%011x%07x", at.UnixMilli(), w.IntN(1<<28))
	if !decodes {
		r.envelope = []string{"", "forged", "zzzzzzzzzzzzzzzzzz", "ffffffffffffffffff", "000000000000000000", "0123456789"}[w.IntN(6)]
	}
	r.row = rowOf(mail.Entry{EnvelopeID: r.envelope, CreatedAt: created}, created, 0)
	r.to, r.from = one(to), one(from)
	w.rows = append(w.rows, r)
}

// send makes the calls of a batch until one is accepted, and returns when that one ended.
func (w *mailing) send(request string, number, first int, from int, to []int, at time.Time) time.Time {
	var keys []messages.Key
	for _, n := range to {
		keys = append(keys, key(n))
	}
	for unknown := false; ; {
		c := call{request: request, batch: number, first: first, begin: at, end: at.Add(35 * time.Second)}
		if from > 0 {
			c.from = sender(from)
		}
		w.add(c, keys)
		keys = nil
		over := w.between(at, 5*time.Second)
		took := w.between(at, over.Sub(at)).Add(time.Duration(w.IntN(1500)-750) * time.Millisecond) // the two clocks differ
		chance := w.IntN(10)
		if chance == 3 && w.IntN(2) == 0 { // long after its caller was gone
			took = w.between(over, 14*time.Minute)
		}
		if chance > 2 { // it was accepted; for 3 the caller does not know
			decodes := w.IntN(10) > 0
			for i, n := range to {
				w.addRow(took, key(n), sender(max(from, 1)), decodes, written{request: request, batch: number, recipient: first + i})
			}
		}
		switch {
		case chance > 3:
			if w.IntN(4) > 0 { // otherwise the outcome was not read yet
				w.close(request, number, over, map[bool]fate{false: accepted, true: repeated}[unknown])
			}
			return over
		case chance > 1:
			w.close(request, number, over, open)
			unknown = true
			if chance == 3 {
				return over
			}
		default:
			w.close(request, number, over, refused)
		}
		at = over.Add(time.Duration(w.IntN(60)) * time.Second)
	}
}

// foreign adds a row of other programs' mail: to other people, from other senders, or
// from the same senders to the same people at another time.
func (w *mailing) foreign(at time.Time) {
	switch w.IntN(3) {
	case 0:
		w.addRow(at, key(1000+w.IntN(50)), sender(w.IntN(3)), w.IntN(2) == 0, written{})
	case 1:
		w.addRow(at, key(w.IntN(300)), sender(9), w.IntN(2) == 0, written{})
	default:
		w.addRow(at.Add(-10*24*time.Hour), key(w.IntN(300)), sender(1+w.IntN(2)), true, written{})
	}
}

// Whatever calls are made: an exact or unique match is right, an ambiguous one has the
// right request among its candidates, and mail of other programs has no match.
func TestAMatchIsNeverWrong(t *testing.T) {
	shares := map[messages.Confidence]int{}
	for seed := range uint64(60) {
		w := &mailing{Rand: rand.New(rand.NewPCG(seed, 1))}
		at := start
		for n := range 40 {
			people := w.Perm(300)[:1+w.IntN(40)]
			request, from := fmt.Sprint("r", n), 1+w.IntN(2)
			over := w.send(request, 1, 0, from, people, at)
			if w.IntN(3) == 0 {
				w.send(request, 2, len(people), from, []int{400 + n}, over)
			}
			if w.IntN(4) == 0 { // the same list minutes later
				over = w.send(request+"-again", 1, 0, from, people, over.Add(time.Duration(w.IntN(10))*time.Minute))
			}
			w.foreign(at)
			at = w.between(over, time.Hour)
		}
		w.Shuffle(len(w.rows), func(i, j int) { w.rows[i], w.rows[j] = w.rows[j], w.rows[i] })
		for _, r := range w.rows {
			m := w.match(r.row)
			shares[m.Confidence]++
			sure := m.Confidence == messages.MatchExact || m.Confidence == messages.MatchUnique
			right := m.request == r.request && m.Batch == r.batch && m.recipient == r.recipient
			among := m.Confidence == messages.MatchAmbiguous && slices.Contains(m.Candidates, r.request)
			if r.request == "" && m.Confidence != messages.MatchNone || r.request != "" && (!sure || !right) && !among {
				t.Fatalf("seed %d: row %+v: match %+v", seed, r, m)
			}
		}
	}
	t.Logf("rows by confidence: %v", shares)
	total := 0
	for _, n := range shares {
		total += n
	}
	if exact := shares[messages.MatchExact]; exact < total/2 || shares[messages.MatchUnique] < total/50 ||
		shares[messages.MatchAmbiguous] < total/50 {
		t.Errorf("of %d rows: %v", total, shares)
	}
}

func TestIdenticalListsMinutesApartAreToldApart(t *testing.T) {
	x := &calls{}
	for i, request := range []string{"morning", "later"} {
		at := start.Add(time.Duration(i) * 2 * time.Minute)
		x.add(call{request: request, batch: 1, begin: at, end: at.Add(35 * time.Second)}, []messages.Key{key(1), key(2)})
		x.close(request, 1, at.Add(time.Second), accepted)
	}
	for at, want := range map[time.Duration]found{
		500 * time.Millisecond:               {Match: messages.Match{Confidence: messages.MatchExact, Batch: 1}, place: place{"morning", 1, 1}},
		2*time.Minute + 500*time.Millisecond: {Match: messages.Match{Confidence: messages.MatchExact, Batch: 1}, place: place{"later", 1, 1}},
		// the clocks differ
		2*time.Minute - time.Second: {Match: messages.Match{Confidence: messages.MatchUnique, Batch: 1}, place: place{"later", 1, 1}},
		time.Minute:                 {Match: messages.Match{Confidence: messages.MatchNone}},
	} {
		got := x.match(row{to: one(key(2)), accepted: ms(start.Add(at))})
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(found{}, place{}), cmpopts.IgnoreFields(found{}, "in", "at")); diff != "" {
			t.Errorf("accepted after %v (-want +got):\n%s", at, diff)
		}
	}
	want := found{Match: messages.Match{Confidence: messages.MatchAmbiguous, Candidates: []string{"later", "morning"}}}
	if diff := cmp.Diff(want, x.match(row{to: one(key(2)), created: ms(start.Add(time.Hour))}),
		cmp.AllowUnexported(found{}, place{}), cmpopts.IgnoreFields(found{}, "in", "at")); diff != "" {
		t.Errorf("without a time of acceptance (-want +got):\n%s", diff)
	}
}

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
				x.add(call{request: "other", batch: 1, begin: at, end: at.Add(time.Second)}, []messages.Key{key(2), key(1)})
				x.close("other", 1, at.Add(time.Second), accepted)
			}
			if c.other && !later {
				other()
			}
			x.add(call{request: "r", batch: 1, from: sender(1), begin: start.Add(begin), end: start.Add(begin + 35*time.Second)},
				[]messages.Key{key(1)})
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

// The clock may have been off by less, or by more, when a row was made that is published hours
// later: it is certainly of a call only if even so it can be of no other one.
func TestARowThatIsPublishedLateMayBeOfACallSecondsBefore(t *testing.T) {
	x := &calls{}
	for i, id := range []string{"earlier", "later"} {
		begin := start.Add(time.Duration(i) * 3 * time.Second)
		x.add(call{request: id, batch: 1, begin: begin, end: begin.Add(time.Second)}, []messages.Key{key(1)})
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
		x.add(call{request: "r", batch: 1, begin: at, end: at.Add(35 * time.Second)}, []messages.Key{key(1)})
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
	x.add(call{request: "r", batch: 2, first: 10, begin: start, end: start.Add(time.Minute)}, []messages.Key{key(1), key(2), key(3)})
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

func TestTheOldestCallsAreForgotten(t *testing.T) {
	x := &calls{max: 2 * maxGeneration}
	keys := make([]messages.Key, 1000)
	for n := range 4000 {
		for i := range keys {
			keys[i] = messages.Key(n*1000 + i + 1)
		}
		at := start.Add(time.Duration(n) * time.Minute)
		x.add(call{request: fmt.Sprint("r", n), batch: 1, begin: at, end: at.Add(time.Second)}, keys)
	}
	if n := recipients(x); n > 2*maxGeneration || n < maxGeneration/2 {
		t.Errorf("%d recipients are in the index", n)
	}
	row := func(n int) row {
		return row{to: one(messages.Key(n*1000 + 1)), accepted: ms(start.Add(time.Duration(n) * time.Minute))}
	}
	if m := x.match(row(3999)); m.Confidence != messages.MatchExact || m.request != "r3999" {
		t.Errorf("the newest: %+v", m)
	}
	if m := x.match(row(0)); m.Confidence != messages.MatchNone {
		t.Errorf("the oldest: %+v", m)
	}
	if x.forget(start.Add(4000 * time.Minute)); recipients(x) != 0 {
		t.Errorf("%d recipients are in the index after all were forgotten", recipients(x))
	}
}

// stateAt is what became of the recipient at a place; zero if it is unknown.
func stateAt(x *calls, p place) (s state) {
	if g, i, ok := x.at(p); ok {
		s = g.recipients[i].state
	}
	return s
}
