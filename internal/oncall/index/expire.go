package index

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// kept is what the streams keep: the sequence of the first message of each, and when that
// was stored. Of an empty one the next message will have it, and the time is now.
type kept map[string]jetstream.StreamState

// chunk is how many rows of a kind are removed in one transaction.
const chunk = 5000

// expire removes what the streams no longer keep. Names are left: they lead to no request, and are removed once in a
// while by sweep.
func (f *follower) expire(k kept) error {
	for {
		removed := 0
		err := f.writer.within(func() (err error) {
			removed, err = f.writer.expire(k)
			return err
		})
		f.removed = f.removed || removed > 0
		if err != nil || removed < chunk {
			return err
		}
	}
}

// expire removes some rows of what the streams no longer keep.
func (w *writer) expire(k kept) (removed int, err error) {
	if removed, err = w.expireDead(int64(k[bus.DeadLetters].FirstSeq)); err != nil {
		return removed, err
	}
	for kind, number := range w.kinds {
		n, err := w.expireKind(kind, number, k)
		if removed += n; err != nil {
			return removed, err
		}
	}
	for number, stream := range followed {
		if err == nil {
			err = w.exec("DELETE FROM message WHERE stream = ? AND seq < ?", number, int64(k[stream].FirstSeq))
		}
	}
	return removed, err
}

// expireKind removes requests of a kind, the oldest first: those whose history is gone. One
// of which there is a dead letter becomes one without a history.
func (w *writer) expireKind(kind Kind, number int64, k kept) (removed int, err error) {
	stream := k[bus.EventsOf(kind.Operation)]
	if err := w.exec("DELETE FROM tally WHERE kind = ? AND slot < ?", number, slotOf(stream.FirstTime)); err != nil {
		return 0, err
	}
	gone := func(r oldRow) bool { return r.seq < int64(stream.FirstSeq) }
	if kind.State == "" {
		since := stream.FirstTime // only a dead letter, the sending log or a callback knows of it
		if kind.Operation == messages.Send {
			since = k[bus.MailDeliveries].FirstTime
		}
		gone = func(r oldRow) bool { return !kind.Dead && r.at < since.UnixMicro() }
	}
	const oldest = "SELECT n, kind, seq, at FROM request WHERE kind = ? ORDER BY at LIMIT ?"
	rows, err := w.query(oldest, number, 1) // most often that one says that there is nothing to do
	if err == nil && len(rows) > 0 && gone(rows[0]) {
		rows, err = w.query(oldest, number, chunk)
	}
	for _, r := range rows {
		if err != nil || !gone(r) {
			break
		}
		removed++
		if kind.Dead {
			without := expired(kind.Operation)
			without.Dead, without.Seen = true, kind.Seen
			err = w.move(r.n, number, without, ", seq = 0")
		} else {
			w.requests[number]--
			err = w.exec("DELETE FROM request WHERE n = ?", r.n)
		}
	}
	return removed, err
}

func (w *writer) expireDead(first int64) (removed int, err error) {
	rows, err := w.query("SELECT n, kind, seq, at FROM request WHERE dead > 0 AND dead < ? LIMIT ?", first, chunk)
	for _, r := range rows {
		kind := w.kindOf(r.kind)
		kind.Dead, kind.Seen = false, false
		if err == nil {
			err = w.move(r.n, r.kind, kind, ", dead = 0")
		}
	}
	return len(rows), err
}

// move changes a request's kind, and sets what is named of it.
func (w *writer) move(n, from int64, to Kind, set string) error {
	number, err := w.kind(to)
	if err != nil {
		return err
	}
	w.requests[from]--
	w.requests[number]++
	return w.exec("UPDATE request SET kind = ?"+set+" WHERE n = ?", number, n)
}

// oldRow is what is asked of a request that may be removed.
type oldRow struct{ n, kind, seq, at int64 }

func (w *writer) query(question string, args ...any) (all []oldRow, err error) {
	s, err := w.statement(question)
	if err != nil {
		return nil, err
	}
	rows, err := s.QueryContext(background, args...)
	err = each(rows, err, func() error {
		var r oldRow
		err := rows.Scan(&r.n, &r.kind, &r.seq, &r.at)
		all = append(all, r)
		return err
	})
	return all, err
}

// sweep removes the names of requests that are gone, once an hour: it reads all names.
func (f *follower) sweep() error {
	if !f.removed || time.Since(f.swept) < time.Hour {
		return nil
	}
	f.removed, f.swept = false, time.Now()
	return f.writer.within(func() error {
		return f.writer.exec("DELETE FROM name WHERE n NOT IN (SELECT n FROM request)")
	})
}
