package e2e

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// still is a line to the upstream on which one answer, as old as it will be, is not handed
// over before goOn is closed: to its caller, time stood still.
type still struct {
	http.RoundTripper
	left        atomic.Int64 // answers before that one
	there, goOn chan struct{}
}

func (s *still) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.RoundTripper.RoundTrip(r)
	if err != nil || s.left.Add(-1) != 0 {
		return answer, err
	}
	body, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	answer.Body = io.NopCloser(bytes.NewReader(body))
	close(s.there)
	<-s.goOn
	return answer, err
}

// A poller is paused for hours with a page just read while another one publishes
// everything: what that page shows, what changed since, what came and what all of it means
// for requests. When it goes on it publishes nothing twice, and no summary is wrong.
func TestAPollerPausedForHoursPublishesNothingTwice(t *testing.T) {
	full(t)
	for _, c := range []struct {
		name   string
		page   int64
		absent time.Duration // from then to the start of the other one
	}{
		{"at its first page", 1, 0}, {"half-way", 3, 0},
		{"with what only it has seen", 3, time.Hour}, // what was deferred is delivered since
	} {
		t.Run(c.name, func(t *testing.T) {
			inSweeps(t, func(v *sandbox.Settings) { v.LogCap, v.DeferredFor = 10, sandbox.Duration(4*time.Minute) }, func(s *sweeps) {
				s.alone = false
				s.mail(3, 10*time.Second, 0)
				stopped := s.sweeper()
				stopped.UpstreamTimeout = 24 * time.Hour
				line := &still{RoundTripper: stopped.Transport, there: make(chan struct{}), goOn: make(chan struct{})}
				line.left.Store(c.page)
				stopped.Transport = line
				ctx, stop := context.WithCancel(s.t.Context())
				ended := make(chan error, 1)
				go func() { ended <- stopped.Run(ctx) }()
				<-line.there
				time.Sleep(c.absent)
				s.mail(2, time.Minute, 1)
				time.Sleep(2 * time.Hour)
				s.mail(2, time.Minute, 1)
				close(line.goOn)
				s.mail(2, time.Minute, 1)
				time.Sleep(6 * time.Minute) // it is alone now, and has caught up
				stop()
				noError(s.t, <-ended)
				s.judge()
				final := map[string]int{}
				for _, e := range s.events("mail.delivery.summary.*") {
					if b := decode[messages.SummaryBody](s.t, e); b.Final {
						if final[b.RequestID]++; b.Deferred+b.Queued+b.Unknown > 0 || b.Delivered+b.Bounced != b.Accepted {
							s.t.Errorf("%s: %s", b.RequestID, counts(b))
						}
					}
				}
				for id, n := range final {
					if n != 1 {
						s.t.Errorf("%s has %d final summaries", id, n)
					}
				}
				if len(final) != s.mailed {
					s.t.Errorf("%d of %d requests have a final summary", len(final), s.mailed)
				}
			})
		})
	}
}
