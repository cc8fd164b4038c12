package send

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/pkg/messages"
)

// suppressing is a handler with a list that tests change.
type suppressing struct {
	*testing.T
	log  *historytest.Log
	list map[string]bool // whose mail bounced
	size int             // of a batch, as the replica is configured
	some int             // batches at once
}

var bouncedAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newSuppressing(t *testing.T, list ...string) *suppressing {
	s := &suppressing{T: t, log: &historytest.Log{}, list: map[string]bool{}, size: 2, some: 1}
	for _, address := range list {
		s.list[address] = true
	}
	return s
}

// deliver hands a request over once.
func (s *suppressing) deliver(u http.RoundTripper, change func(*messages.SendRequest), to ...string) (
	messages.State, *messages.SendOutcome, error,
) {
	s.Helper()
	h, req := handler(s.T, u), request(s.T, s.log, to)
	h.Size, h.Parallel = s.size, s.some
	h.Suppressed = func(address string) (time.Time, string, bool) { return bouncedAt, "bounced: 550", s.list[address] }
	if change != nil {
		change(&req.Body)
	}
	ev, err := req.History.Settle(s.Context(), true, func(p history.Prior) (messages.Event, error) {
		req.Prior = p
		return h.Handle(s.Context(), req)
	})
	body, _ := ev.Body.(*messages.SendOutcome)
	return ev.State, body, err
}

func invalid(addresses ...string) (all []messages.InvalidAddress) {
	for _, a := range addresses {
		all = append(all, messages.InvalidAddress{Address: a, Reason: "suppressed", At: &messages.Time{Time: bouncedAt}, Why: "bounced: 550"})
	}
	return all
}

func abc(letters string) (all []string) {
	for l := range strings.SplitSeq(letters, "") {
		all = append(all, l+"@example.test")
	}
	return all
}

func TestSuppressedRecipientsAreLeftOutAndReported(t *testing.T) {
	tryAll := func(r *messages.SendRequest) { r.Suppress = new(false) }
	for name, c := range map[string]struct {
		to, list string
		change   func(*messages.SendRequest)
		state    messages.State
		sent     string
		calls    int
		batches  int
	}{
		"one batch":                   {"ab", "b", nil, messages.Accepted, "a", 1, 1},
		"one batch, nobody left":      {"ab", "ab", nil, messages.Failed, "", 0, 0},
		"one batch, all tried":        {"ab", "ab", tryAll, messages.Accepted, "ab", 1, 1},
		"several":                     {"abcdefg", "adg", nil, messages.Accepted, "bcef", 3, 4},
		"several, a batch of nobody":  {"abcdef", "cdf", nil, messages.Accepted, "abe", 2, 3},
		"several, nobody left at all": {"abcd", "abcd", nil, messages.Failed, "", 0, 0},
		"several, all tried":          {"abcd", "abcd", tryAll, messages.Accepted, "abcd", 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s, u := newSuppressing(t, abc(c.list)...), &upstream{to: map[string]int{}}
			state, body, err := s.deliver(u, c.change, abc(c.to)...)
			if err != nil {
				t.Fatal(err)
			}
			left := abc(c.list)
			if c.change != nil {
				left = nil
			}
			want := messages.SendOutcome{Recipients: len(c.sent), Accepted: len(c.sent), Batches: c.batches,
				InvalidCount: len(left), Invalid: invalid(left...)}
			got := messages.SendOutcome{Recipients: body.Recipients, Accepted: body.Accepted, Batches: body.Batches, InvalidCount: body.InvalidCount,
				Invalid: body.Invalid}
			if diff := cmp.Diff(want, got); diff != "" || state != c.state || body.UnsettledCount != 0 {
				t.Errorf("%s, %d unsettled (-want +got):\n%s", state, body.UnsettledCount, diff)
			}
			for _, a := range abc(c.to) {
				if want := strings.Count(c.sent, a[:1]); u.to[a] != want {
					t.Errorf("%s was sent to %d times, want %d", a, u.to[a], want)
				}
			}
			if len(u.sizes) != c.calls {
				t.Errorf("calls of %v, want %d", u.sizes, c.calls)
			}
			if state == messages.Failed && (body.Reason != messages.ReasonInvalidRequest || len(body.Fields["to"]) == 0) {
				t.Errorf("%s, %v", body.Reason, body.Fields)
			}
			for _, e := range s.log.Events() {
				if state == messages.Failed && messages.StateOf(e.Subject) == messages.Started && c.batches == 0 && len(c.to) == 2 {
					t.Errorf("%s, though there is no call", e.Subject)
				}
			}
		})
	}
}

// The list that a program has changes with every bounce and removal, and is another one in each replica. What a batch left out when it
// was begun it leaves out until its end, and nobody comes into another batch.
func TestWhatABatchLeavesOutIsDecidedOnce(t *testing.T) {
	for to, list := range map[string]string{"ab": "a", "abcdef": "abf"} {
		synctest.Test(t, func(t *testing.T) {
			s := newSuppressing(t, abc(list)...)
			taken := &upstream{to: map[string]int{}}
			s.some = 3 // all are begun before the first answer
			if _, _, err := s.deliver(roundTrip(func(r *http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				return answers(http.StatusServiceUnavailable).RoundTrip(r)
			}), nil, abc(to)...); err == nil {
				t.Fatal("it does not wait")
			}
			s.list = map[string]bool{abc("b")[0]: true, abc("c")[0]: true} // of the other replica, or since a removal and a bounce
			s.size = 3
			time.Sleep(time.Hour)
			state, body, err := s.deliver(taken, nil, abc(to)...)
			if err != nil || state != messages.Accepted {
				t.Fatalf("%s: %s, %v", to, state, err)
			}
			if diff := cmp.Diff(invalid(abc(list)...), body.Invalid); diff != "" {
				t.Errorf("%s (-want +got):\n%s", to, diff)
			}
			for _, a := range abc(to) {
				if want := 1 - strings.Count(list, a[:1]); taken.to[a] != want {
					t.Errorf("%s: %s was sent to %d times, want %d", to, a, taken.to[a], want)
				}
			}
		})
	}
}

// Unsettled counts as if those that are left out had not been in the list.
func TestUnsettledBatchesCountWithoutThoseLeftOut(t *testing.T) {
	s := newSuppressing(t, abc("bde")...)
	n := 0
	state, body, err := s.deliver(roundTrip(func(r *http.Request) (*http.Response, error) {
		if n++; n == 2 {
			return answers(http.StatusUnprocessableEntity).RoundTrip(r)
		}
		return (&upstream{}).RoundTrip(r)
	}), nil, abc("abcdefgh")...)
	if err != nil || state != messages.Partial || len(body.Unsettled) != 1 {
		t.Fatalf("%s, %v, %+v", state, err, body)
	}
	if u := body.Unsettled[0]; u.Batch != 2 || u.First != 1 || u.Count != 1 {
		t.Errorf("%+v, want the second of the five", u)
	}
	unsent, err := body.Unsent(slices.Values(abc("abcdefgh")))
	text := ""
	for _, u := range unsent {
		text += u.Address[:1]
	}
	if text != "bcde" || err != nil {
		t.Errorf("unsent are %q, %v", text, err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A redrive decides anew for what surely was not sent: somebody may have been removed from the list, or have bounced.
func TestARedriveDecidesAnewForWhatWasNotSent(t *testing.T) {
	s := newSuppressing(t, abc("abcd")...)
	if state, _, err := s.deliver(&upstream{}, nil, abc("abcd")...); state != messages.Failed || err != nil {
		t.Fatal(state, err)
	}
	var started history.Facts
	for _, e := range s.log.Events() {
		if f, _ := history.ReadFacts(e.Body); f.BatchSize > 0 {
			started = f
		}
	}
	s.log.Put("mail.send.reopened.r1", fmt.Appendf(nil, `{"by":"ann","was":{"state":"failed"},"batch_size":2,"fingerprint":%q}`,
		started.Fingerprint))
	s.list = map[string]bool{abc("a")[0]: true}
	taken := &upstream{to: map[string]int{}}
	state, body, err := s.deliver(taken, nil, abc("abcd")...)
	if state != messages.Accepted || err != nil || body.Accepted != 3 || taken.to[abc("a")[0]] != 0 {
		t.Errorf("%s, %v, %+v, sent to %v", state, err, body, taken.to)
	}
}
