package e2e

import (
	"time"
)

// What the sending log does not show of a call proves something only in a log that was
// watched since before the call and that goes on after it: by somebody else's mail.

// othersMail puts a row of somebody else's mail into the log, made at a time.
func (in *installation) othersMail(at time.Time) {
	in.t.Helper()
	in.insertRow(map[string]any{"created_at": at.UTC().Format(time.RFC3339Nano)})
}

// watched waits until a poller has published a row from before now: the log is watched from
// now on.
func (in *installation) watched() {
	in.t.Helper()
	in.othersMail(time.Now().Add(-time.Minute))
	in.until("the log to be watched", time.Minute, func() bool { return in.count("mail.log.watermark") > 0 })
}

// readBefore has the log be read once by a poller, which shows a row from a time.
func (in *installation) readBefore(at time.Time) {
	in.t.Helper()
	in.othersMail(at)
	p := in.start("log-poller")
	in.until("the log to be read", time.Minute, func() bool { return in.count("mail.log.watermark") > 0 })
	p.stop(time.Minute)
}
