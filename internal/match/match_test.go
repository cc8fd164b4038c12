package match

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/pkg/messages"
)

var start = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// written is a row of the log and the recipient that it really belongs to.
type written struct {
	envelope string
	Row
	request          string // "": of another program
	batch, recipient int
}

// world makes calls and their rows.
type world struct {
	*rand.Rand
	Index
	rows []written
}

func key(n int) messages.Key { return messages.KeyOf(fmt.Sprintf("p%d@example.test", n)) }

func sender(n int) messages.Key { return messages.KeyOf(fmt.Sprintf("s%d@example.test", n)) }

// between returns a random time up to d after t, in milliseconds.
func (w *world) between(t time.Time, d time.Duration) time.Time {
	return t.Add(time.Duration(w.Int64N(int64(d/time.Millisecond)+1)) * time.Millisecond)
}

// addRow adds a row of a message that was accepted at a time by the upstream's clock.
func (w *world) addRow(at time.Time, to, from messages.Key, decodes bool, r written) {
	r.Row = Row{To: to, From: from, Created: w.between(at, 3*24*time.Hour)}
	r.envelope = fmt.Sprintf("%011x%07x", at.UnixMilli(), w.IntN(1<<28))
	if !decodes {
		r.envelope = []string{"", "forged", "zzzzzzzzzzzzzzzzzz", "ffffffffffffffffff", "000000000000000000", "0123456789"}[w.IntN(6)]
	}
	r.Accepted = AcceptedAt(r.envelope, r.Created)
	w.rows = append(w.rows, r)
}

// send makes the calls of a batch until one is accepted, and returns when that one ended.
func (w *world) send(request string, number, first int, from int, to []int, at time.Time) time.Time {
	var keys []messages.Key
	for _, n := range to {
		keys = append(keys, key(n))
	}
	for unknown := false; ; {
		c := Call{Request: request, Batch: number, First: first, Begin: at, End: at.Add(35 * time.Second)}
		if from > 0 {
			c.From = sender(from)
		}
		w.Add(c, keys)
		keys = nil
		over := w.between(at, 5*time.Second)
		accepted := w.between(at, over.Sub(at)).Add(time.Duration(w.IntN(1500)-750) * time.Millisecond) // the two clocks differ
		fate := w.IntN(10)
		if fate == 3 && w.IntN(2) == 0 { // long after its caller was gone
			accepted = w.between(over, 14*time.Minute)
		}
		if fate > 2 { // it was accepted; for 3 the caller does not know
			decodes := w.IntN(10) > 0
			for i, n := range to {
				w.addRow(accepted, key(n), sender(max(from, 1)), decodes, written{request: request, batch: number, recipient: first + i})
			}
		}
		switch {
		case fate > 3:
			if w.IntN(4) > 0 { // otherwise the outcome was not read yet
				w.Close(request, number, over, map[bool]Fate{false: Accepted, true: Repeated}[unknown])
			}
			return over
		case fate > 1:
			w.Close(request, number, over, Open)
			unknown = true
			if fate == 3 {
				return over
			}
		default:
			w.Close(request, number, over, Refused)
		}
		at = over.Add(time.Duration(w.IntN(60)) * time.Second)
	}
}

// foreign adds a row of other programs' mail: to other people, from other senders, or
// from the same senders to the same people at another time.
func (w *world) foreign(at time.Time) {
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
		w := &world{Rand: rand.New(rand.NewPCG(seed, 1))}
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
			m := w.Find(r.Row)
			shares[m.Confidence]++
			sure := m.Confidence == messages.MatchExact || m.Confidence == messages.MatchUnique
			right := m.Request == r.request && m.Batch == r.batch && m.Recipient == r.recipient
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
	if exact := shares[messages.MatchExact]; exact < total/2 || shares[messages.MatchUnique] < total/50 || shares[messages.MatchAmbiguous] < total/50 {
		t.Errorf("of %d rows: %v", total, shares)
	}
}

func TestIdenticalListsMinutesApartAreToldApart(t *testing.T) {
	x := &Index{}
	for i, request := range []string{"morning", "later"} {
		at := start.Add(time.Duration(i) * 2 * time.Minute)
		x.Add(Call{Request: request, Batch: 1, Begin: at, End: at.Add(35 * time.Second)}, []messages.Key{key(1), key(2)})
		x.Close(request, 1, at.Add(time.Second), Accepted)
	}
	for at, want := range map[time.Duration]Match{
		500 * time.Millisecond:               {Confidence: messages.MatchExact, Request: "morning", Batch: 1, Recipient: 1},
		2*time.Minute + 500*time.Millisecond: {Confidence: messages.MatchExact, Request: "later", Batch: 1, Recipient: 1},
		2*time.Minute - time.Second:          {Confidence: messages.MatchUnique, Request: "later", Batch: 1, Recipient: 1}, // the clocks differ
		time.Minute:                          {Confidence: messages.MatchNone},
	} {
		got := x.Find(Row{To: key(2), Accepted: start.Add(at)})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("accepted after %v (-want +got):\n%s", at, diff)
		}
	}
	want := Match{Confidence: messages.MatchAmbiguous, Candidates: []string{"later", "morning"}}
	if diff := cmp.Diff(want, x.Find(Row{To: key(2), Created: start.Add(time.Hour)})); diff != "" {
		t.Errorf("without a time of acceptance (-want +got):\n%s", diff)
	}
}

// A row from about the time of a call of unknown fate may belong to it if a clock is
// wrong: it is no match but a doubt. A row that matches a call is no doubt about another.
func TestARowWithAWrongClockIsADoubtAboutACallOfUnknownFate(t *testing.T) {
	const begin, over = 2 * time.Hour, 2*time.Hour + time.Second
	const none, unique, exact = messages.MatchNone, messages.MatchUnique, messages.MatchExact
	for name, c := range map[string]struct {
		fate     Fate
		running  bool // its outcome was not read yet
		from     int
		accepted time.Duration // after the start; 0: unknown
		created  time.Duration // 0: unknown
		other    bool          // another call was accepted a minute before
		want     messages.Confidence
		doubt    bool
	}{
		"before the call":                   {accepted: begin - 2*time.Second - time.Millisecond, want: none, doubt: true},
		"before one that is under way":      {running: true, accepted: begin - 3*time.Second, want: none, doubt: true},
		"an hour before":                    {accepted: begin - time.Hour, want: none, doubt: true},
		"more than an hour before":          {accepted: begin - time.Hour - time.Millisecond, want: none},
		"just before":                       {accepted: begin - 2*time.Second, want: unique},
		"at its begin":                      {accepted: begin, want: exact},
		"at its end":                        {accepted: over, want: exact},
		"just after":                        {accepted: over + time.Millisecond, want: unique},
		"late":                              {accepted: over + 15*time.Minute, want: unique},
		"later than late":                   {accepted: over + 16*time.Minute, want: none, doubt: true},
		"an hour after":                     {accepted: over + time.Hour, want: none, doubt: true},
		"more than an hour after":           {accepted: over + time.Hour + time.Millisecond, want: none},
		"by the row's own time":             {created: begin - 3*time.Second, want: none, doubt: true},
		"by the row's own time, just then":  {created: begin - 2*time.Second, want: unique},
		"by the row's own time, meanwhile":  {created: begin + time.Millisecond, want: unique},
		"by the row's own time, days after": {created: over + 5*24*time.Hour, want: unique},
		"by the row's own time, too late":   {created: over + 5*24*time.Hour + time.Millisecond, want: none},
		"by the row's own time, too early":  {created: begin - time.Hour - time.Millisecond, want: none},
		"by no time":                        {want: unique},
		"of another sender":                 {from: 2, accepted: begin - 3*time.Second, want: none},
		"of the sender":                     {from: 1, accepted: begin - 3*time.Second, want: none, doubt: true},
		"of a call that was accepted":       {fate: Accepted, accepted: begin - 3*time.Second, want: none},
		"just after it was accepted":        {fate: Accepted, accepted: over + 2*time.Second, want: unique},
		"later than just after":             {fate: Accepted, accepted: over + 2*time.Second + time.Millisecond, want: none},
		"of one that was, and twice":        {fate: Repeated, accepted: begin - 3*time.Second, want: none},
		"late, of one that was, and twice":  {fate: Repeated, accepted: over + 15*time.Minute, want: unique},
		"of one that was in part":           {fate: Partly, accepted: begin - 3*time.Second, want: none},
		"late, of one that was in part":     {fate: Partly, accepted: over + 15*time.Minute, want: none},
		"of one that was refused":           {fate: Refused, accepted: begin, want: none},
		"of another call":                   {accepted: begin - time.Minute, other: true, want: exact},
	} {
		for _, later := range []bool{false, true} { // the order in which the calls are added
			x := &Index{}
			other := func() {
				at := start.Add(begin - time.Minute)
				x.Add(Call{Request: "other", Batch: 1, Begin: at, End: at.Add(time.Second)}, []messages.Key{key(2), key(1)})
				x.Close("other", 1, at.Add(time.Second), Accepted)
			}
			if c.other && !later {
				other()
			}
			x.Add(Call{Request: "r", Batch: 1, From: sender(1), Begin: start.Add(begin), End: start.Add(begin + 35*time.Second)}, []messages.Key{key(1)})
			if !c.running {
				x.Close("r", 1, start.Add(over), c.fate)
			}
			if c.other && later {
				other()
			}
			r := Row{To: key(1)}
			if c.from > 0 {
				r.From = sender(c.from)
			}
			if c.accepted > 0 {
				r.Accepted = start.Add(c.accepted)
			}
			if c.created > 0 {
				r.Created = start.Add(c.created)
			}
			m := x.Find(r)
			if m.Confidence != c.want || m.Doubtful != c.doubt || c.other && m.Request != "other" {
				t.Errorf("%s: %+v, want %s and a doubt: %t", name, m, c.want, c.doubt)
			}
			if c.want != none {
				continue
			}
			x.Doubt(r)
			if e, _ := x.Evidence("r", 1); e.Doubted != c.doubt {
				t.Errorf("%s: doubted: %t, want %t", name, e.Doubted, c.doubt)
			}
		}
	}
}

// A row that may belong to two calls is no doubt about a third one; a row that belongs to
// no call is a doubt about all calls of unknown fate.
func TestADoubtIsAboutTheNearestCalls(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}} {
		x := &Index{}
		for _, n := range order {
			at := start.Add(time.Duration(n/2) * 20 * time.Minute)
			x.Add(Call{Request: fmt.Sprint("r", n), Batch: 1, Begin: at, End: at.Add(time.Second)}, []messages.Key{key(1)})
		}
		doubted := func() (all []bool) {
			for n := range 4 {
				e, _ := x.Evidence(fmt.Sprint("r", n), 1)
				all = append(all, e.Doubted)
			}
			return all
		}
		x.Doubt(Row{To: key(1), Accepted: start.Add(20 * time.Minute)})
		if want := []bool{false, false, true, true}; !slices.Equal(doubted(), want) {
			t.Errorf("%v: doubted: %v, want %v", order, doubted(), want)
		}
		x.Doubt(Row{To: key(1), Accepted: start.Add(-time.Minute)})
		if want := []bool{true, true, true, true}; !slices.Equal(doubted(), want) {
			t.Errorf("%v: doubted: %v, want all", order, doubted())
		}
	}
}

// Outcomes are read after all calls: the outcome of an earlier call must not close a
// later one.
func TestAnOutcomeClosesItsOwnCall(t *testing.T) {
	x := &Index{}
	for i := range 2 {
		at := start.Add(time.Duration(i) * time.Minute)
		x.Add(Call{Request: "r", Batch: 1, Begin: at, End: at.Add(35 * time.Second)}, []messages.Key{key(1)})
	}
	x.Close("r", 1, start.Add(time.Second), Refused)
	x.Close("r", 1, start.Add(time.Minute+time.Second), Accepted)
	for at, want := range map[time.Duration]messages.Confidence{
		500 * time.Millisecond: messages.MatchNone, time.Minute + 500*time.Millisecond: messages.MatchExact, time.Minute + 20*time.Second: messages.MatchNone,
	} {
		if got := x.Find(Row{To: key(1), Accepted: start.Add(at)}); got.Confidence != want {
			t.Errorf("accepted after %v: %s, want %s", at, got.Confidence, want)
		}
	}
}

// A final state stays, except that Delivered may follow Bounced by another call.
func TestEachRecipientIsSeenOnceAndStaysAsItEnded(t *testing.T) {
	x := &Index{}
	x.Add(Call{Request: "r", Batch: 2, First: 10, Begin: start, End: start.Add(time.Minute)}, []messages.Key{key(1), key(2), key(3)})
	x.Close("r", 2, start.Add(time.Second), Accepted)
	for _, c := range []struct {
		recipient     int
		state         State
		before, after State
		ok            bool
	}{
		{10, Deferred, Unseen, Deferred, true}, {10, Delivered, Deferred, Delivered, true}, {10, Bounced, Delivered, Delivered, true},
		{10, Deferred, Delivered, Delivered, true}, {9, Bounced, 0, 0, false}, {13, Bounced, 0, 0, false},
		{12, Unknown, Unseen, Unknown, true}, {12, Deferred, Unknown, Deferred, true}, {12, Unknown, Deferred, Unknown, true}, {12, Bounced, Unknown, Bounced, true},
		{12, Deferred, Bounced, Bounced, true}, {12, Unknown, Bounced, Bounced, true}, {12, Bounced, Bounced, Bounced, true},
	} {
		if before, after, ok := x.Observe("r", 2, c.recipient, c.state); before != c.before || after != c.after || ok != c.ok {
			t.Errorf("recipient %d: %d to %d, %t; want %+v", c.recipient, before, after, ok, c)
		}
	}
	x.Add(Call{Request: "again", Batch: 1, Begin: start, End: start.Add(time.Minute)}, []messages.Key{key(1)})
	x.Observe("again", 1, 0, Bounced)
	if before, after, ok := x.Observe("again", 1, 0, Delivered); before != Bounced || after != Delivered || !ok {
		t.Errorf("delivered after it bounced: %d to %d, %t", before, after, ok)
	}
	for range 2 {
		x.Doubt(Row{To: key(3), Accepted: start.Add(time.Second)})
		want := Evidence{Count: 3, Seen: 2, Doubted: true, Until: start.Add(time.Minute)}
		got, ok := x.Evidence("r", 2)
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("evidence (-want +got):\n%s", diff)
		}
	}
	if n := len(slices.Collect(x.Silent(start))); n != 0 {
		t.Errorf("%d are overdue before they were accepted", n)
	}
	silent := slices.Collect(x.Silent(start.Add(time.Hour)))
	if diff := cmp.Diff([]Silent{{"r", 2, 11, start.Add(time.Second)}}, silent, cmp.Transformer("utc", time.Time.UTC)); diff != "" {
		t.Errorf("silent (-want +got):\n%s", diff)
	}
	x.MarkOverdue("r", 2, 11)
	if n := len(slices.Collect(x.Silent(start.Add(time.Hour)))); n != 0 {
		t.Errorf("%d are overdue after it was reported", n)
	}
	if before, _, _ := x.Observe("r", 2, 11, Delivered); before != Unseen {
		t.Errorf("the state of an overdue recipient is %d, want unseen", before)
	}
}

func TestTheOldestCallsAreForgotten(t *testing.T) {
	x := &Index{MaxRecipients: 2 * maxPerGeneration}
	keys := make([]messages.Key, 1000)
	for n := range 4000 {
		for i := range keys {
			keys[i] = messages.Key(n*1000 + i + 1)
		}
		at := start.Add(time.Duration(n) * time.Minute)
		x.Add(Call{Request: fmt.Sprint("r", n), Batch: 1, Begin: at, End: at.Add(time.Second)}, keys)
	}
	if n := x.Recipients(); n > 2*maxPerGeneration || n < maxPerGeneration/2 {
		t.Errorf("%d recipients are in the index", n)
	}
	row := func(n int) Row {
		return Row{To: messages.Key(n*1000 + 1), Accepted: start.Add(time.Duration(n) * time.Minute)}
	}
	if m := x.Find(row(3999)); m.Confidence != messages.MatchExact || m.Request != "r3999" {
		t.Errorf("the newest: %+v", m)
	}
	if m := x.Find(row(0)); m.Confidence != messages.MatchNone {
		t.Errorf("the oldest: %+v", m)
	}
	if x.Forget(start.Add(4000 * time.Minute)); x.Recipients() != 0 {
		t.Errorf("%d recipients are in the index after all were forgotten", x.Recipients())
	}
}

// Ten million recipients in batches of a thousand, and 800,000 in batches of one, which
// count the same for MaxRecipients.
func TestTenMillionRecipientsFitIntoMemory(t *testing.T) {
	for _, c := range []struct{ batches, size, most int }{{10_000, 1000, 500}, {800_000, 1, 500}} {
		if testing.Short() {
			c.batches /= 20
		}
		before := heap()
		x := &Index{}
		keys := make([]messages.Key, c.size)
		for n := range c.batches {
			for i := range keys {
				keys[i] = messages.Key(uint64(n*c.size+i+1) * 0x9e3779b97f4a7c15)
			}
			at := start.Add(time.Duration(n) * time.Second)
			x.Add(Call{Request: fmt.Sprint("MAIL_REQUESTS-", n), Batch: 1, Begin: at, End: at.Add(time.Second)}, keys)
		}
		used := (heap() - before) >> 20
		t.Logf("%d recipients in batches of %d: %d MB, %d as MaxRecipients counts", x.Recipients(), c.size, used, x.size)
		if int(used) >= c.most {
			t.Errorf("%d recipients in batches of %d take %d MB, want less than %d", x.Recipients(), c.size, used, c.most)
		}
		runtime.KeepAlive(x)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
