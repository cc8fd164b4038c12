package deliveries

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/wire/mailkey"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// fates of calls: accepted is with all recipients, repeated likewise after a call of unknown fate, partly with some.
var (
	open, accepted, repeated = fate{}, fate{whole: true, over: true}, fate{whole: true}
	partly, refused          = fate{over: true}, fate{refused: true}
)

// add adds a call that begins and ends at these times after start.
func add(x *calls, request string, number int, begin, end time.Duration, to ...int) {
	var keys []mailkey.Key
	for _, n := range to {
		keys = append(keys, key(n))
	}
	x.add(call{request: request, batch: number, begin: start.Add(begin), end: start.Add(end)}, keys)
}

// confidence is how surely a row matches that is to the first person, accepted at this time after start.
func confidence(x *calls, accepted time.Duration) messages.Confidence {
	return x.match(row{to: one(key(1)), accepted: ms(start.Add(accepted))}).Confidence
}

func TestATimeOfAcceptanceIsReadIfItFitsTheRow(t *testing.T) {
	at := time.UnixMilli(start.UnixMilli())
	id := fmt.Sprintf("%011x", at.UnixMilli())
	for name, c := range map[string]struct {
		envelope string
		created  time.Time
		want     bool
	}{
		"at once":                   {id + "0000abc", at, true},
		"in capitals":               {strings.ToUpper(id) + "0000ABC", at, true},
		"after five days":           {id + "0000abc", at.Add(5 * 24 * time.Hour), true},
		"after more than five days": {id + "0000abc", at.Add(5*24*time.Hour + time.Millisecond), false},
		"by another clock":          {id + "0000abc", at.Add(-time.Minute), true},
		"by a wrong clock":          {id + "0000abc", at.Add(-time.Minute - time.Millisecond), false},
		"in a row without a time":   {id + "0000abc", time.Time{}, false},
		"too short":                 {id + "0000ab", at, false},
		"too long":                  {id + "0000abcd", at, false},
		"another alphabet":          {id + "0000abg", at, false},
		"a capital of another":      {id + "0000ABG", at, false},
		"signs":                     {id + "0000a-1", at, false},
		"nothing":                   {"", at, false},
	} {
		if got := rowOf(mail.Entry{EnvelopeID: c.envelope, CreatedAt: c.created}, at, 0).accepted; got != 0 != c.want || c.want && got != ms(at) {
			t.Errorf("%s: %d, read: want %t", name, got, c.want)
		}
	}
}

func TestAMissingSenderMatchesAnySender(t *testing.T) {
	for _, c := range []struct {
		call, row mailkey.Key
		want      messages.Confidence
	}{
		{0, 0, messages.MatchExact}, {0, sender(1), messages.MatchExact}, {sender(1), 0, messages.MatchExact},
		{sender(1), sender(1), messages.MatchExact}, {sender(1), sender(2), messages.MatchNone},
	} {
		x := &calls{}
		x.add(call{request: "r", batch: 1, from: c.call, begin: start, end: start.Add(time.Second)}, []mailkey.Key{key(1)})
		if got := x.match(row{to: one(key(1)), from: one(c.row), accepted: ms(start)}); got.Confidence != c.want {
			t.Errorf("call from %x, row from %x: %+v, want %s", c.call, c.row, got, c.want)
		}
	}
}

// An event lists at most twenty requests, each once.
func TestCandidatesAreListedOnceAndInOrder(t *testing.T) {
	x := &calls{}
	for n := range 21 {
		for number := range 2 {
			add(x, fmt.Sprintf("r%02d", n), number+1, 0, time.Second, 1)
		}
	}
	m := x.match(row{to: one(key(1)), accepted: ms(start)})
	if unique := slices.Compact(slices.Clone(m.Candidates)); len(m.Candidates) != 20 || len(unique) != 20 || !slices.IsSorted(m.Candidates) {
		t.Errorf("candidates: %q", m.Candidates)
	}
}

// A row of any call of a batch belongs to the batch, except of refused calls, and of busy ones before them. A call ends when the next one
// begins.
func TestABatchHasTheRowsOfAllItsCalls(t *testing.T) {
	const none, unique, exact = messages.MatchNone, messages.MatchUnique, messages.MatchExact
	for name, c := range map[string]struct {
		calls [][2]time.Duration
		close func(x *calls)
		want  map[time.Duration]messages.Confidence
	}{
		"in and near": {calls: [][2]time.Duration{{0, time.Second}, {1500 * time.Millisecond, 3 * time.Second}},
			want: map[time.Duration]messages.Confidence{500 * time.Millisecond: exact, 1250 * time.Millisecond: unique, 2 * time.Second: exact}},
		"near and stray": {calls: [][2]time.Duration{{0, time.Second}, {30 * time.Minute, 31 * time.Minute}},
			want: map[time.Duration]messages.Confidence{5 * time.Minute: unique, 20 * time.Minute: none, 30 * time.Minute: exact}},
		"a second one that is refused": {calls: [][2]time.Duration{{0, 35 * time.Second}, {10 * time.Second, 45 * time.Second}},
			close: func(x *calls) { x.close("r", 1, start.Add(11*time.Second), refused) },
			want:  map[time.Duration]messages.Confidence{5 * time.Second: none, 10 * time.Second: none, 20 * time.Second: none}},
		"after one of unknown fate": {calls: [][2]time.Duration{{0, 35 * time.Second}, {10 * time.Second, 45 * time.Second}},
			close: func(x *calls) { x.close("r", 1, start.Add(11*time.Second), open) },
			want:  map[time.Duration]messages.Confidence{5 * time.Second: exact, 10 * time.Second: exact, 20 * time.Second: unique}},
		"a second one that began earlier": {calls: [][2]time.Duration{{time.Minute, 2 * time.Minute}, {0, time.Second}},
			close: func(x *calls) { x.close("r", 1, start.Add(time.Second), refused) },
			want:  map[time.Duration]messages.Confidence{time.Minute: exact, 61 * time.Second: unique}},
		"one that was over long before": {calls: [][2]time.Duration{{0, time.Second}, {time.Hour, time.Hour + time.Second}},
			want: map[time.Duration]messages.Confidence{time.Second: exact, time.Minute: unique, 30 * time.Minute: none}},
		"one that ends before it begins": {calls: [][2]time.Duration{{time.Hour, 0}},
			want: map[time.Duration]messages.Confidence{time.Hour: exact, time.Hour + 10*time.Minute: unique, 59 * time.Minute: none}},
		"one that ends as it begins": {calls: [][2]time.Duration{{0, time.Second}, {time.Minute, 2 * time.Minute}},
			close: func(x *calls) { x.close("r", 1, start.Add(time.Minute), refused) },
			want:  map[time.Duration]messages.Confidence{0: none, time.Minute: none}},
		"one whose end is reported late": {calls: [][2]time.Duration{{0, time.Second}},
			close: func(x *calls) { x.close("r", 1, start.Add(time.Hour), accepted) },
			want:  map[time.Duration]messages.Confidence{time.Second: exact, 3 * time.Second: unique, 10 * time.Minute: none}},
		"one whose end was reported early": {calls: [][2]time.Duration{{0, time.Minute}},
			close: func(x *calls) { x.close("r", 1, start.Add(time.Second), accepted) },
			want:  map[time.Duration]messages.Confidence{time.Second: exact, 3 * time.Second: unique, 10 * time.Second: none}},
		"the end of another one": {calls: [][2]time.Duration{{0, time.Second}},
			close: func(x *calls) { x.close("r", 2, start.Add(time.Second), refused); x.close("q", 1, start, refused) },
			want:  map[time.Duration]messages.Confidence{0: exact}},
	} {
		x := &calls{}
		for _, call := range c.calls {
			add(x, "r", 1, call[0], call[1], 1)
		}
		if c.close != nil {
			c.close(x)
		}
		for at, want := range c.want {
			if got := confidence(x, at); got != want {
				t.Errorf("%s: accepted after %v: %s, want %s", name, at, got, want)
			}
		}
	}
}

// A batch that was accepted once stays accepted, whatever the fate of another call.
func TestABatchThatWasAcceptedStaysAccepted(t *testing.T) {
	x := &calls{}
	for n, fate := range []fate{open, accepted, repeated, partly, refused} {
		id := fmt.Sprint("r", n)
		add(x, id, 1, 0, time.Minute, 1)
		x.close(id, 1, start.Add(time.Second), fate)
	}
	for n, fate := range []fate{refused, open} {
		id := fmt.Sprint("again", n)
		add(x, id, 1, 0, time.Minute, 1)
		x.close(id, 1, start.Add(time.Second), accepted)
		add(x, id, 1, time.Minute, 2*time.Minute)
		x.close(id, 1, start.Add(61*time.Second), fate)
	}
	for id, want := range map[string]bool{"r0": false, "r1": true, "r2": true, "r3": false, "r4": false, "again0": true, "again1": true} {
		if g, b, _ := x.findBatch(id, 1); g.batches[b].accepted != want {
			t.Errorf("%s is accepted: %t, want %t", id, !want, want)
		}
	}
}

func TestWhatAnEventSaysIsItsStatus(t *testing.T) {
	x := &calls{}
	add(x, "r2", 1, 0, time.Minute, 1)
	if x.observe(place{"r2", 2, 0}, 3, delivered, true) {
		t.Error("a recipient of an unknown batch was observed")
	}
	for state, want := range map[messages.State]status{messages.Delivered: delivered, messages.Deferred: deferred, messages.Bounced: bounced,
		messages.Unknown: unknown, "another": unknown} {
		if got := statusIn(state); got != want {
			t.Errorf("%s is %d, want %d", state, got, want)
		}
	}
}

// Requests are forgotten when all calls of their generation have ended before, and when
// there are too many recipients, but never the newest.
func TestRequestsAreForgottenByGeneration(t *testing.T) {
	x := &calls{}
	add(x, "r", 1, 0, time.Minute, 1)
	if x.forget(start.Add(time.Minute)); recipients(x) != 1 {
		t.Error("a call is forgotten that had not ended before")
	}
	add(x, "r", 1, time.Hour, 2*time.Hour)
	add(x, "s", 1, 25*time.Hour, 25*time.Hour, 1)
	add(x, "r", 2, 26*time.Hour, 26*time.Hour, 2)
	if x.forget(start.Add(26 * time.Hour)); recipients(x) != 3 {
		t.Error("a request is forgotten that made another call")
	}
	if g, b, ok := x.findBatch("r", 2); !ok || g.batches[b].number != 2 {
		t.Error("the second batch of a request is unknown")
	}
	if x.forget(start.Add(26*time.Hour + time.Millisecond)); recipients(x) != 0 || x.size != 0 {
		t.Error("a request is not forgotten")
	}

	const size, cost = 1000, 1000
	const share = (maxGeneration + cost - 1) / cost // requests in a generation
	keys := make([]mailkey.Key, size)
	for i := range keys {
		keys[i] = key(i)
	}
	for name, c := range map[string]struct{ most, calls, want int }{
		"unlimited":                 {0, 2*share + 1, 2*share + 1},
		"fewer than a generation":   {1, share, share},
		"exactly the maximum":       {(share + 1) * cost, share + 1, share + 1},
		"one more":                  {(share+1)*cost - 1, share + 1, 1},
		"after some were forgotten": {(share + 1) * cost, 2*share + 1, share + 1},
		"after more were forgotten": {(share + 1) * cost, 2*share + 2, 2},
	} {
		x := &calls{max: c.most}
		for n := range c.calls {
			x.add(call{request: fmt.Sprint("r", n), batch: 1, begin: start, end: start}, keys)
		}
		if diff := cmp.Diff(c.want*size, recipients(x)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// recipients is how many are remembered.
func recipients(x *calls) (n int) {
	for _, g := range x.generations {
		n += len(g.recipients)
	}
	return n
}

// That recipients were forgotten is said, and how far back rows are still matched.
func TestItIsSaidThatRecipientsAreForgotten(t *testing.T) {
	inScenario(t, func(s *scenario) {
		var said []string
		const limit = maxGeneration + 100
		s.config.Recipients = limit
		s.config.Dropped = func(n int, since time.Time) { said = append(said, fmt.Sprint("dropped ", n, " ", time.Since(since))) }
		s.restart()
		fill := func(n int) {
			for i := range n {
				add(&s.log.calls, fmt.Sprint(n, ".", i), 1, time.Since(start), time.Since(start), i)
			}
			s.update(s.log)
		}
		fill(maxGeneration)
		time.Sleep(time.Hour)
		fill(100)
		if len(said) > 0 || s.log.Held() != limit {
			t.Errorf("%q, %d held; want none, %d", said, s.log.Held(), limit)
		}
		fill(1)
		if want := []string{fmt.Sprint("dropped ", maxGeneration, " 0s")}; !slices.Equal(said, want) || s.log.Held() != 101 {
			t.Errorf("%q, %d held; want %q, 101", said, s.log.Held(), want)
		}
	})
}
