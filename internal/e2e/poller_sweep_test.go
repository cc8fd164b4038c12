package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// A log that was there before any poller is read while mail is sent and rows change, is left alone for a day in which mail is
// sent too, and is read again. What pages and totals may lie about is in the model of internal/lists/sweep.
func TestALogThatMisbehavesIsPublishedOnceAndCompletely(t *testing.T) {
	full(t)
	type settings = sandbox.Settings
	churning := func(v *settings) { v.LogLosses, v.LogLate = 0.05, 0.1 }
	for _, c := range []struct {
		name    string
		change  func(*settings)
		pollers int
	}{
		{"newest first", func(*settings) {}, 1},
		{"no order, rows come late and go, in every form", func(v *settings) { churning(v); v.LogOrder, v.LogForms = sandbox.NoOrder, true }, 1},
		{"rows come minutes late", func(v *settings) { v.LogLate, v.LogLateBy = 0.1, sandbox.Duration(overlap-30*time.Second) }, 1},
		{"oldest first, rows come late and go, two pollers", func(v *settings) { churning(v); v.LogOrder = sandbox.Oldest }, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			inSweeps(t, c.change, func(s *sweeps) {
				s.alone = c.pollers == 1
				s.mail(5, 5*time.Second, 0)
				time.Sleep(2 * time.Hour)
				s.mail(6, 40*time.Second, c.pollers)
				s.mail(2, 20*time.Second, 0)
				time.Sleep(24 * time.Hour)
				s.mail(2, 20*time.Second, 0)
				s.mail(6, 40*time.Second, c.pollers)
				s.quiet()
				s.judge()
			})
		})
	}
}

var fastMails = flag.Int("fast.mails", 5, "messages to 1,000 that go out while the log is read, one each 1.7 s")

// Messages to 1,000 go out one after the other, and a page of 100 rows takes 90 ms: nearly 600 rows a second. Each is
// published within seconds, and the watermark covers only published rows.
func TestRowsOfAFastLogArePublishedWithinSeconds(t *testing.T) {
	in := install(t, "POLL_LIMIT=100")
	in.fault(sandbox.Fault{Operation: "logs", Kind: sandbox.Delay, Delay: sandbox.Duration(90 * time.Millisecond)})
	in.untilReady(in.start("log-poller"))
	in.untilReady(in.start("mail-consumer"))
	every := time.Tick(1700 * time.Millisecond)
	for i := range *fastMails {
		in.publish("mail.send.requested", message(fmt.Sprint("m", i), 1000))
		<-every
	}
	in.until("every row to be published", 2*time.Minute, in.published("mail.delivery.delivered.*", 1000**fastMails))
	in.until("a watermark that covers them", 2*time.Minute, func() bool {
		var covered messages.Watermark
		last, err := in.stream(bus.MailDeliveries).GetLastMsgForSubject(t.Context(), "mail.log.watermark")
		return err == nil && messages.DecodeEvent(last.Data, &covered) == nil && covered.TotalRecord == 1000**fastMails
	})
	var delays []time.Duration
	marks, through, covered := in.events("mail.log.watermark"), time.Time{}, 0
	for _, e := range in.events("mail.delivery.delivered.*") {
		for ; len(marks) > 0 && marks[0].Sequence < e.Sequence; marks = marks[1:] {
			through = decode[messages.Watermark](t, marks[0]).CompleteThrough.Time
		}
		b := decode[struct {
			At    messages.Time
			Entry struct {
				CreatedAt messages.Time `json:"created_at"`
			}
		}](t, e)
		if delays = append(delays, b.At.Sub(b.Entry.CreatedAt.Time)); !b.Entry.CreatedAt.After(through) {
			covered++
		}
	}
	slices.Sort(delays)
	t.Logf("%d rows: the median is published after %v, the last after %v", len(delays), delays[len(delays)/2], delays[len(delays)-1])
	errorIf(t, covered > 0, "%d rows were published after a watermark that covers them", covered)
}

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
				stop := s.running(stopped)
				<-line.there
				time.Sleep(c.absent)
				s.mail(2, time.Minute, 1)
				time.Sleep(2 * time.Hour)
				s.mail(2, time.Minute, 1)
				close(line.goOn)
				s.mail(2, time.Minute, 1)
				time.Sleep(6 * time.Minute) // it is alone now, and has caught up
				stop()
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
					errorIf(s.t, n != 1, "%s has %d final summaries", id, n)
				}
				errorIf(s.t, len(final) != s.mailed, "%d of %d requests have a final summary", len(final), s.mailed)
			})
		})
	}
}
