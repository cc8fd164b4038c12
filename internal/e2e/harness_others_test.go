package e2e

import (
	"testing"
	"time"

	"errand/pkg/messages"
)

// What the sending log does not show of a call proves something only in a log that was
// watched since before the call and that goes on after it: by somebody else's mail.

// othersMail puts a row of somebody else's mail into the log, made at a time.
func (in *installation) othersMail(at time.Time) {
	in.t.Helper()
	insertRow(in.t, in.box, map[string]any{"created_at": at.UTC().Format(time.RFC3339Nano)})
}

// watched waits until a poller has published a row from before now: the log is watched from
// now on.
func (in *installation) watched() {
	in.t.Helper()
	in.othersMail(time.Now().Add(-time.Minute))
	in.until("the log to be watched", time.Minute, func() bool { return in.count("mail.log.watermark") > 0 })
}

// watchedSince has the log be watched since a time, as by pollers that have run since then.
func (in *installation) watchedSince(at time.Time) {
	in.t.Helper()
	in.othersMail(at)
	p := in.start("log-poller")
	in.until("the log to be watched", time.Minute, func() bool { return in.count("mail.log.watermark") > 0 })
	p.stop(time.Minute)
	marks := in.events("mail.log.watermark")
	w := decode[messages.Watermark](in.t, marks[len(marks)-1])
	w.At, w.WatchedSince = messages.Time{Time: time.Now()}, &messages.Time{Time: at}
	e := messages.Event{Operation: messages.Log, State: messages.Marked, Body: &w}
	data, err := e.Encode()
	if err == nil {
		_, err = in.js.Publish(in.t.Context(), e.Subject(), data)
	}
	must(in.t, err)
}

// othersGoOn puts a row of somebody else's mail into the log every pause until t ends.
func (in *installation) othersGoOn(t *testing.T, pause time.Duration) {
	end, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(end); <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				noError(t, in.box.InsertLog([]byte(`{}`), false))
			}
		}
	}()
}
