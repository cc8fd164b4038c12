package hold

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"errand/pkg/clients"
)

const interval = 10 * time.Second

func newHold() *Hold { return &Hold{Service: "the service", Interval: interval, Log: zerolog.Nop()} }

// results are what calls come to, by their names in the tests.
var results = map[string]Call{
	"ok":       {},
	"refused":  {Err: &clients.Error{Fate: clients.Refused, Status: 422}},
	"401":      {Err: &clients.Error{Fate: clients.Held, Status: 401}},
	"403":      {Err: &clients.Error{Fate: clients.Held, Status: 403}},
	"404":      {Err: &clients.Error{Fate: clients.Held, Status: 404}},
	"suspect":  {Err: &clients.Error{Fate: clients.Held, Status: 403}, Suspect: true},
	"busy":     {Err: &clients.Error{Fate: clients.Busy, Status: 503}},
	"busy out": {Err: &clients.Error{Fate: clients.Busy, Status: 503}, Exhausted: true},
	"dial out": {Err: &clients.Error{Fate: clients.Busy}, Exhausted: true},
	"500":      {Err: &clients.Error{Fate: clients.Unknown, Status: 500}},
	"500 out":  {Err: &clients.Error{Fate: clients.Unknown, Status: 500}, Exhausted: true},
	"silence":  {Err: &clients.Error{Fate: clients.Unknown}},
	"other":    {Err: errors.New("an error of no client")},
}

// observe has each request of a list like "a ok, b 403" make its call.
func observe(t *testing.T, h *Hold, calls string) {
	t.Helper()
	for call := range strings.SplitSeq(calls, ", ") {
		id, name, _ := strings.Cut(call, " ")
		result, ok := results[name]
		if !ok {
			t.Fatalf("no such result: %s", name)
		}
		p := &Permit{hold: h}
		p.Admit(id)
		p.Observe(result)
	}
}

// held is one that began because the account is refused.
func held(t *testing.T) *Hold {
	t.Helper()
	h := newHold()
	observe(t, h, "a 403, b 403")
	if !h.Active() {
		t.Fatal("nothing is held")
	}
	return h
}

func TestAHoldBeginsWhenTheFaultIsSurelyNotOneRequests(t *testing.T) {
	const (
		account = "the service answers 403: credentials, account or quota"
		key     = "the service answers 401: credentials, account or quota"
		address = "the service answers 404: is its address right?"
		busy    = "the service answers 503: overloaded or out of order"
		dial    = "the service cannot be reached"
		unknown = "the service answers 500: what its last calls did is unknown"
		silence = "the service gives no answer: what its last calls did is unknown"
	)
	for _, c := range []struct{ calls, why string }{
		{"a ok, b refused", ""},
		// Two different requests in a row for which the account is refused.
		{"a 403", ""},
		{"a 403, a 403, a 403, a 403, a 403", ""},
		{"a 403, b 403", account},
		{"a 403, b 401", key},
		{"a 403, a 403, b 404", address},
		{"a 403, b ok, b 403", ""},
		{"a 403, b refused, b 403", ""},
		{"a 403, a ok, b 403, a ok, c 403", ""},
		{"a suspect, b suspect, c suspect", ""},
		{"a suspect, b 403", ""},
		{"a suspect, b 403, c 403", account},
		{"a 403, b busy, c 500, d 403", account}, // no success between
		// Three different requests in a row that ran out of tries.
		{"a busy, b busy, c busy, d busy", ""},
		{"a busy out, b busy out", ""},
		{"a busy out, a busy out, a busy out, a busy out", ""},
		{"a busy out, b busy out, c busy out", busy},
		{"a busy out, b busy out, c dial out", dial},
		{"a busy out, b busy out, c ok, d busy out", ""},
		{"a busy out, b busy out, c refused, d busy out", ""},
		// Three different requests in a row with calls of unknown fate.
		{"a 500, b 500", ""},
		{"a 500, a 500, a 500, a 500 out", ""},
		{"a 500, a 500, b 500, b 500", ""},
		{"a 500 out, b 500, c silence", silence},
		{"a other, b other, c other", silence},
		{"a 500, b 500, c ok, d 500", ""},
		{"a 500, b 500, c busy, d 500", unknown},
		// What is counted apart is not added up.
		{"a 403, b busy out, c busy out, d 500, e 500", ""},
		// A success ends it.
		{"a 403, b 403, c ok", ""},
		{"a 403, b 403, c refused", ""},
		{"a 403, b 403, c ok, d 403", ""},
		// It is held for what was seen last.
		{"a 403, b 403, c busy", busy},
		{"a 403, b 403, c 500", "the service answers 500"},
		{"a 500, b 500, c 500, d silence", silence},
		{"a 500, b 500, c 500, d 403, e 403", account},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHold()
			observe(t, h, c.calls)
			want := c.why
			if want != "" {
				want += ", since " + time.Now().UTC().Format(time.RFC3339)
			}
			if got := h.Why(); got != want || h.Active() != (c.why != "") {
				t.Errorf("%s: got %q, want %q", c.calls, got, want)
			}
		})
	}
}

func TestTooFewRequestsToHoldForLeaveADoubt(t *testing.T) {
	t.Parallel()
	for calls, want := range map[string]bool{"a ok": false, "a busy": false, "a busy out": true, "a busy out, b busy out": true, "a 401": true,
		"a busy out, b busy out, c busy out": false, "a busy out, b ok": false, "a suspect": false, "a silence": false} {
		synctest.Test(t, func(t *testing.T) {
			h := newHold()
			observe(t, h, calls)
			if got := h.Doubt(); (got != "") != want {
				t.Errorf("%s: %q, want some: %t", calls, got, want)
			}
			time.Sleep(time.Hour)
			if got := h.Doubt(); got != "" {
				t.Errorf("%s, an hour ago: %q", calls, got)
			}
		})
	}
}

func TestWhyKeepsWhenTheHoldBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := held(t)
		began := time.Now().UTC().Format(time.RFC3339)
		time.Sleep(time.Hour)
		observe(t, h, "c 401")
		if got, want := h.Why(), "the service answers 401: credentials, account or quota, since "+began; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A service that refused the key and is down now is said to be down, and again to refuse the key when it does.
func TestWhyIsWhatTheLastProbeFoundOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := held(t)
		var read error
		h.Read = func(context.Context) error { return read }
		for _, c := range []struct {
			err  clients.Error
			want string
		}{
			{clients.Error{Fate: clients.Busy}, "the service cannot be reached"},
			{clients.Error{Fate: clients.Unknown}, "the service gives no answer"}, // a read does nothing
			{clients.Error{Fate: clients.Busy, Status: 503}, "the service answers 503: overloaded or out of order"},
			{clients.Error{Fate: clients.Held, Status: 401}, "the service answers 401: credentials, account or quota"},
		} {
			read = &c.err
			p, _ := probe(t, h)
			why, _ := h.Held()
			var active *ActiveError
			if !errors.As(p.Call(), &active) || why != c.want || active.Status != c.err.Status {
				t.Errorf("got %q and %+v, want %q", why, active, c.want)
			}
			p.Release(false)
		}
	})
}

func TestSucceededSinceKnowsTheLastGoodAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHold()
		before := time.Now()
		if h.Permit().SucceededSince(before) {
			t.Error("a success before any call")
		}
		time.Sleep(time.Second)
		observe(t, h, "a 403, a busy, a 500")
		if h.Permit().SucceededSince(before) {
			t.Error("a failure counted as a success")
		}
		observe(t, h, "a refused")
		if !h.Permit().SucceededSince(before) || h.Permit().SucceededSince(time.Now()) {
			t.Error("the success is not when it was")
		}
	})
}

func TestWhatIsAdmittedBeforeAHoldIsNotWorkedOnInIt(t *testing.T) {
	h := newHold()
	p, err := h.Acquire(t.Context())
	if err != nil || p.Probe() {
		t.Fatalf("got a probe %t, %v, want a plain permit", p.Probe(), err)
	}
	if !p.Admit("c") || p.Spent() || p.Call() != nil || p.Call() != nil {
		t.Error("a plain permit must allow calls while nothing is held")
	}
	observe(t, h, "a 403, b 403")
	active, ok := errors.AsType[*ActiveError](p.Call())
	if !ok || active.Status != 403 || !strings.HasPrefix(active.Error(), "held: the service answers 403") {
		t.Errorf("got %v, want *ActiveError with the status that began the hold", active)
	}
	if p.Admit("c") || !p.Spent() {
		t.Error("a plain permit must allow nothing while a hold lasts")
	}
}

// probe waits for the next probe, and says how long that took.
func probe(t *testing.T, h *Hold) (*Permit, time.Duration) {
	t.Helper()
	began := time.Now()
	p, err := h.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p, time.Since(began)
}

func TestAProbeMakesOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := held(t)
		p, waited := probe(t, h)
		if waited != interval || !p.Probe() {
			t.Fatalf("a probe %t after %v, want one after %v", p.Probe(), waited, interval)
		}
		if !p.Admit("c") || p.Spent() || p.Call() != nil {
			t.Fatal("a probe must allow a call")
		}
		if _, ok := errors.AsType[*ActiveError](p.Call()); !ok || !p.Spent() {
			t.Error("a probe must allow one call only")
		}
	})
}

func TestTheProbeOfOneHoldIsNoneOfTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := held(t)
		p, _ := probe(t, h)
		if p.Admit("c"); p.Call() != nil {
			t.Fatal("a probe must allow a call")
		}
		if p.Observe(Call{}); h.Active() || p.Call() != nil {
			t.Fatal("after a success everyone may call")
		}
		observe(t, h, "a 403, b 403")
		if _, ok := errors.AsType[*ActiveError](p.Call()); !ok {
			t.Error("the permit has made its call as a probe, and must allow none in the next hold")
		}
	})
}

func TestOneProbeIsMadeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := held(t)
		p, _ := probe(t, h)
		got := make(chan time.Time)
		began := time.Now()
		go func() {
			second, _ := probe(t, h)
			got <- time.Now()
			second.Release(false)
		}()
		const took = 5*interval - time.Second // between two probes
		time.Sleep(took)
		select {
		case <-got:
			t.Fatal("a second probe beside the first")
		default:
		}
		p.Release(false)
		if at := <-got; at.Sub(began) != took {
			t.Errorf("the second probe came %v after the first, want it when that ended", at.Sub(began))
		}
	})
}

func TestProbesKeepTheirInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := held(t)
		for range 5 {
			p, waited := probe(t, h)
			p.Release(false)
			if waited != interval {
				t.Errorf("a probe after %v, want %v", waited, interval)
			}
		}
	})
}

// Each of these probes uses a request up.
func TestTheIntervalDoublesWhereProbesHaveAnUnknownFate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHold()
		h.Read = func(context.Context) error { return nil }
		observe(t, h, "a 500, b 500, c 500, d 500, e 500") // what was under way does not count
		var probes []time.Duration
		for n := range 9 {
			p, waited := probe(t, h)
			if p.Admit(fmt.Sprint(n)); p.Call() != nil {
				t.Fatal("a probe must allow a call")
			}
			p.Observe(results["500"])
			p.Release(false)
			probes = append(probes, waited)
		}
		if got, want := fmt.Sprint(probes), "[10s 20s 40s 1m20s 2m40s 5m20s 10m40s 15m0s 15m0s]"; got != want {
			t.Errorf("probes after %v, want %v", got, want)
		}
		h.Read = func(context.Context) error { return results["busy"].Err } // no request is risked
		p, _ := probe(t, h)
		p.Release(false)
		observe(t, h, "z ok, a 500, b 500, c 500")
		if _, waited := probe(t, h); waited != interval {
			t.Errorf("the first probe of the next hold after %v, want %v", waited, interval)
		}
	})
}

func TestRetryAfterStretchesTheInterval(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		0: interval, time.Second: interval, time.Minute: time.Minute, 24 * time.Hour: 15 * time.Minute,
	} {
		synctest.Test(t, func(t *testing.T) {
			h := held(t)
			p, _ := probe(t, h)
			p.Admit("c")
			p.Observe(Call{Err: &clients.Error{Fate: clients.Busy, RetryAfter: asked}})
			p.Release(false)
			if _, waited := probe(t, h); waited != want {
				t.Errorf("asked for %v: the next probe after %v, want %v", asked, waited, want)
			}
			h = held(t)
			h.Read = func(context.Context) error { return &clients.Error{Fate: clients.Busy, RetryAfter: asked} }
			p, _ = probe(t, h)
			p.Release(false)
			if _, waited := probe(t, h); waited != want {
				t.Errorf("the read was asked for %v: the next probe after %v, want %v", asked, waited, want)
			}
		})
	}
}

func TestAnAnswerEndsAHoldForThoseThatWait(t *testing.T) {
	for _, result := range []string{"ok", "refused"} {
		synctest.Test(t, func(t *testing.T) {
			h := held(t)
			p, _ := probe(t, h)
			var waiting sync.WaitGroup
			for range 3 {
				waiting.Go(func() {
					if other, waited := probe(t, h); other.Probe() || waited != time.Second {
						t.Errorf("%s: a probe %t after %v, want a plain permit at once", result, other.Probe(), waited)
					}
				})
			}
			time.Sleep(time.Second)
			p.Admit("c")
			p.Observe(results[result])
			waiting.Wait()
			if h.Active() {
				t.Errorf("%s: still held", result)
			}
		})
	}
}

func TestAReadIsMadeBeforeARequestIsRisked(t *testing.T) {
	refused := &clients.Error{Fate: clients.Refused, Status: 422}
	denied := &clients.Error{Fate: clients.Held, Status: 403}
	down := &clients.Error{Fate: clients.Unknown, Status: 500}
	for _, c := range []struct {
		begun string // what began the hold
		read  error
		risk  bool
	}{
		{"a 403, b 403", nil, true},
		{"a 403, b 403", denied, false}, // the account is refused still
		{"a 403, b 403", refused, false},
		{"a 403, b 403", down, false},
		{"a 500, b 500, c 500", nil, true},
		{"a 500, b 500, c 500", denied, true}, // it answers again
		{"a 500, b 500, c 500", refused, true},
		{"a 500, b 500, c 500", down, false},
		{"a busy out, b busy out, c busy out", denied, true},
		{"a busy out, b busy out, c busy out", &clients.Error{Fate: clients.Busy}, false},
		{"a busy out, b busy out, c busy out", errors.New("an error of no client"), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHold()
			reads := 0
			h.Read = func(context.Context) error { reads++; return c.read }
			observe(t, h, c.begun)
			p, _ := probe(t, h)
			if reads != 1 {
				t.Errorf("%s: %d reads before the probe, want 1", c.begun, reads)
			}
			if !p.Admit("d") {
				t.Errorf("%s, read %v: what is overdue must be let through", c.begun, c.read)
			}
			if got := !p.Spent(); got != c.risk || got != (p.Call() == nil) {
				t.Errorf("%s, read %v: a request is risked %t, want %t", c.begun, c.read, got, c.risk)
			}
			if !h.Active() {
				t.Errorf("%s, read %v: the read alone ended the hold", c.begun, c.read)
			}
		})
	}
}

// Some keys may write and not read.
func TestARequestIsRiskedNowAndThenAlthoughReadsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := held(t)
		h.Read = func(context.Context) error { return &clients.Error{Fate: clients.Held, Status: 403} }
		var risked []int
		for n := 1; n <= 2*withoutRead; n++ {
			p, _ := probe(t, h)
			if p.Admit(fmt.Sprint(n)); p.Call() == nil {
				risked = append(risked, n)
			}
			p.Release(false)
		}
		if len(risked) != 2 || risked[0] != withoutRead || risked[1] != 2*withoutRead {
			t.Errorf("requests were risked by the probes %v, want each %d-th", risked, withoutRead)
		}
	})
}

func TestOnlyReadsThatAreRefusedInARowCount(t *testing.T) {
	for _, between := range []error{nil, &clients.Error{Fate: clients.Unknown}} {
		synctest.Test(t, func(t *testing.T) {
			h := held(t)
			denied, n := &clients.Error{Fate: clients.Held, Status: 403}, 0
			h.Read = func(context.Context) error {
				if n == withoutRead/2 {
					return between
				}
				return denied
			}
			for n = 1; n <= withoutRead+1; n++ {
				p, _ := probe(t, h)
				if p.Admit(fmt.Sprint(n)); p.Call() == nil && n != withoutRead/2 {
					t.Errorf("probe %d is risked, with a read that came to %v in between", n, between)
				}
				p.Release(false)
			}
		})
	}
}

func TestARequestIsNoProbeTwiceWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := held(t)
		admit := func(id string) bool {
			p, _ := probe(t, h)
			defer p.Release(false)
			return p.Admit(id)
		}
		for _, c := range []struct {
			id   string
			want bool
		}{{"c", true}, {"c", false}, {"d", true}, {"c", false}, {"d", false}, {"a", true}} {
			if got := admit(c.id); got != c.want {
				t.Fatalf("%s: admitted %t, want %t", c.id, got, c.want)
			}
		}
		p, _ := probe(t, h)
		if p.Admit("c") {
			t.Fatal("c was a probe already")
		}
		p.AdmitAgain("c") // the queue gives no other
		if p.Spent() || p.Call() != nil {
			t.Error("a request that is admitted again may be called")
		}
		p.Release(false)
		if admit("c") || !admit("d") {
			t.Error("after that everyone else is a probe first")
		}
	})
}

func TestANewHoldForgetsWhoWasAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := held(t)
		for range 2 {
			p, _ := probe(t, h)
			if !p.Admit("c") {
				t.Error("c was not a probe of this hold yet")
			}
			p.Observe(Call{})
			p.Release(false)
			observe(t, h, "a 403, b 403")
		}
	})
}

// What was admitted without a read, to end because it is overdue, was not a probe.
func TestARequestThatMayNotBeCalledIsNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := held(t)
		down := true
		h.Read = func(context.Context) error {
			if down {
				return &clients.Error{Fate: clients.Unknown}
			}
			return nil
		}
		p, _ := probe(t, h)
		p.Admit("c")
		p.Release(false)
		down = false
		if p, _ = probe(t, h); !p.Admit("c") {
			t.Error("c made no call, and was not a probe")
		}
	})
}

func TestAProbeWithoutARequestEndsTheHoldOfAnEmptyQueueOnly(t *testing.T) {
	for _, empty := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := held(t)
			p, _ := probe(t, h)
			if p.Release(empty); h.Active() == empty {
				t.Errorf("empty %t: held %t", empty, h.Active())
			}
			if observe(t, h, "c 403"); h.Active() == empty { // what was counted before is forgotten
				t.Errorf("empty %t: held %t after another refusal", empty, h.Active())
			}
			if !empty {
				if _, waited := probe(t, h); waited != interval {
					t.Errorf("the next probe after %v, want %v", waited, interval)
				}
			}
		})
	}
}

func TestAPlainPermitEndsNoHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHold()
		plain, _ := probe(t, h)
		observe(t, h, "a 403, b 403")
		probe(t, h)
		plain.Release(true)
		plain.Release(false)
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		if _, err := h.Acquire(ctx); err == nil || !h.Active() {
			t.Errorf("held %t, and another probe: %t; want it held, and the first probe to be the only one", h.Active(), err == nil)
		}
	})
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := held(t)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if p, err := h.Acquire(ctx); p != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, %v", p, err)
		}
		if _, waited := probe(t, h); waited != interval-time.Second {
			t.Errorf("the next probe after another %v, want %v", waited, interval-time.Second)
		}
	})
}

// Many workers, an upstream that comes and goes: never two probes at once, none is forgotten.
func TestManyWorkersShareAHold(t *testing.T) {
	h := newHold()
	h.Interval = time.Microsecond
	var probing atomic.Int32
	h.Read = func(context.Context) error { return nil }
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			for n := range 300 {
				p, err := h.Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if p.Probe() && probing.Add(1) != 1 {
					t.Error("two probes at once")
				}
				if id := fmt.Sprint(w); !p.Admit(id) && p.Probe() {
					p.AdmitAgain(id)
				}
				if p.Call() == nil {
					p.Observe([]Call{results["403"], results["500"], results["ok"], results["busy out"]}[(n+w)%4])
				}
				_, _, _ = h.Why(), p.Spent(), p.SucceededSince(time.Now())
				if p.Probe() {
					probing.Add(-1)
				}
				if n%50 == 0 {
					p.Release(true)
				} else {
					p.Release(false)
				}
			}
		})
	}
	workers.Wait()
}
