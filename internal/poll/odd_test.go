package poll

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

func TestAWrongTotalRecordHidesNoRow(t *testing.T) {
	for _, o := range []order{newestFirst, oldestFirst, unordered} {
		for _, wrong := range []int{-10_000, -60, -1, 1, 60, 1000} {
			t.Run(fmt.Sprint(o, wrong), func(t *testing.T) {
				inWorld(t, o, 330, func(w *world) {
					w.wrong = wrong
					w.sweeps(5 * time.Second)
					w.add(120)
					w.sweeps(15 * time.Second)
					w.add(7)
					w.sweeps(15 * time.Second)
					w.checkComplete(w.T, w.store)
					if calls := w.sweeps(5 * time.Second); len(calls) > 14 {
						t.Errorf("a sweep of a log of 10 pages asked for %q", calls)
					}
				})
			})
		}
	}
}

// raw is an upstream with the same body for every page.
type raw struct{ body string }

func (r raw) RoundTrip(request *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(r.body)), ContentLength: int64(len(r.body)), Request: request}, nil
}

func sweepOf(t *testing.T, body string, limit int) *store {
	t.Helper()
	s := &store{}
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		p := u.poller(t, &sink{store: s}, limit)
		var err error
		if p.Upstream, err = mail.New(mail.Config{URL: "http://127.0.0.1", Key: clients.NewSecret("key")}, clients.Transport(raw{body})); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 25*time.Second)
		defer stop()
		if err := p.Run(ctx); err != nil {
			t.Fatal(err)
		}
	})
	return s
}

func TestRowsThatCannotBeReadArePublishedAsUnknown(t *testing.T) {
	s := sweepOf(t, `{"error":false,"status_code":200,"message":"OK","data":{"data":[7,null,"text",{},{"to":"a@b.test"},{"to":"a@b.test","delivered":1}],"total_record":6}}`, 100)
	var got []string
	for _, e := range s.events {
		if b, ok := e.Body.(*messages.DeliveryBody); ok {
			got = append(got, string(e.State)+" "+string(b.Entry))
		}
	}
	want := []string{"unknown 7", "unknown null", `unknown "text"`, "unknown {}", `unknown {"to":"a@b.test"}`, `delivered {"to":"a@b.test","delivered":1}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
}

func TestAnUpstreamThatIgnoresThePageIsNotReadForEver(t *testing.T) {
	for _, total := range []int{0, 2, 200} {
		s := sweepOf(t, fmt.Sprintf(`{"error":false,"status_code":200,"message":"OK","data":{"data":[{"envelope_id":"1","to":"a@b.test"},{"envelope_id":"2","to":"a@b.test"}],"total_record":%d}}`, total), 2)
		if n := len(s.delivered(t)); n != 2 {
			t.Errorf("total_record %d: %d events, want 2", total, n)
		}
		if n := len(s.marks); total == 200 && n != 0 {
			t.Errorf("%d watermarks for a log of which 198 rows were not seen", n)
		}
	}
}

// A tracker that needs everything always asks for everything; states that were forgotten
// must still be learned again for a sweep of the whole log.
func TestForgottenStatesAreLearnedAgainWithATracker(t *testing.T) {
	inScenario(t, func(s *scenario) {
		s.row("a@example.test", 0, messages.Delivered)
		s.run(time.Minute)
		s.restart()
		m := &memory{seen: map[ID]stamp{}, tracker: s.poller.newTracker()}
		for _, since := range []time.Time{{}, time.Now().Add(100 * time.Hour), {}, time.Now().Add(100 * time.Hour), {}} {
			clear(m.seen)
			if err := m.learn(s.Context(), s.sink, since); err != nil {
				s.Fatal(err)
			}
			if got := len(m.seen); since.IsZero() && got != 1 {
				s.Fatalf("%d states are known, want 1", got)
			}
			if err := m.learn(s.Context(), s.sink, since); err != nil { // a second time: only what is new
				s.Fatal(err)
			}
		}
		if s.sink.learned != 3 {
			s.Errorf("%d events were learned, want one each time that everything was requested", s.sink.learned)
		}
	})
}

// A sink yields events again only if it is asked to.
func TestForgottenStatesAreLearnedAgainForTheWholeLog(t *testing.T) {
	inWorld(t, newestFirst, 10, func(w *world) {
		w.sweeps(500 * time.Millisecond)
		m := &memory{seen: map[ID]stamp{}}
		for range 3 {
			if err := m.learn(w.Context(), w.sink, m.reach(unordered, time.Minute, true)); err != nil {
				t.Fatal(err)
			}
			if len(m.seen) != 10 {
				t.Fatalf("%d states are known, want 10", len(m.seen))
			}
			m.complete = time.Now().Add(100 * time.Hour)
			m.rowsSeen = 10
			m.forget(m.complete, 0)
			if m.recall(); len(m.seen) > 0 {
				t.Fatalf("%d states were not forgotten", len(m.seen))
			}
		}
	})
}

func TestTheFirstStartPublishesRowsSinceATime(t *testing.T) {
	for _, o := range []order{newestFirst, oldestFirst, unordered} {
		t.Run(o.String(), func(t *testing.T) {
			inWorld(t, o, 500, func(w *world) {
				since := w.rows[400].created
				w.poller.Since = since
				calls := w.sweeps(5 * time.Second)
				if o == newestFirst && len(calls) > 12 || o == oldestFirst && len(calls) > 24 {
					t.Errorf("read %d pages for the last 100 rows of a log in order: %q", len(calls), calls)
				}
				w.poller.Since = time.Now() // a later start continues from the watermark
				w.add(3)
				w.sweeps(time.Minute)
				counts := w.delivered(t)
				if n := len(counts); n != 103 {
					t.Errorf("%d states were published, want those of 103 rows", n)
				}
				if m := w.marks[len(w.marks)-1]; m.Since == nil || !m.Since.Equal(since) {
					t.Errorf("watermark = %+v, want it to say since %v", m, since)
				}
			})
		})
	}
}

func TestAWatermarkSaysHowCompletenessIsKnown(t *testing.T) {
	for o, want := range map[order]messages.Known{newestFirst: messages.ByNewestFirst, oldestFirst: messages.ByOldestFirst, unordered: messages.ByWholeLog} {
		inWorld(t, o, 300, func(w *world) {
			w.sweeps(500 * time.Millisecond)
			w.add(3)
			w.sweeps(500 * time.Millisecond)
			if len(w.marks) != 2 || w.marks[0].By != messages.ByWholeLog || w.marks[1].By != want {
				t.Errorf("%s: watermarks %+v, want the first by %s, the second by %s", o, w.marks, messages.ByWholeLog, want)
			}
		})
	}
}

// A row is added late and further back than the overlap: only total_record shows it.
func TestRowsThatNoSweepSawAreLookedForInTheWholeLog(t *testing.T) {
	for _, o := range []order{newestFirst, oldestFirst} {
		inWorld(t, o, 300, func(w *world) {
			w.poller.Interval = 5 * time.Minute
			began := time.Now()
			in := func(after time.Duration, change func()) {
				time.AfterFunc(after, func() {
					w.upstream.mu.Lock()
					defer w.upstream.mu.Unlock()
					change()
				})
			}
			in(15*time.Hour, func() { w.add(200) })
			in(20*time.Hour, func() { w.add(1) })
			in(20*time.Hour+6*time.Minute, func() {
				w.add(1)
				late := w.rows[501]
				late.created = began.Add(12 * time.Hour)
				copy(w.rows[301:], w.rows[300:501])
				w.rows[300] = late
			})
			w.sweeps(21 * time.Hour)
			w.checkComplete(w.T, w.store)
		})
	}
}

func TestATotalThatGrowsByItselfIsNoReasonToReadTheWholeLogEachTime(t *testing.T) {
	inWorld(t, newestFirst, 1000, func(w *world) {
		w.poller.Interval = time.Minute
		w.busy = func(u *upstream) { u.wrong++ }
		if n := len(w.sweeps(2 * time.Hour)); n > 120*2*2+3*25 {
			t.Errorf("%d pages were read in 120 minutes, want two or four a minute and the whole log three times", n)
		}
	})
}
