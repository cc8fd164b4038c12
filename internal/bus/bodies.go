package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/retry"
)

// bodiesPage is how many messages EachBody asks for at once, and their bytes.
const (
	bodiesPage  = 20_000
	bodiesBytes = 8 << 20
)

// EachBody calls each with the body of every message that a stream has under a filter
// since a time, oldest first, until it returns false. Without headers and subjects that
// takes half of the work: it is for what no subject tells, and the body says whose it is.
// ErrNoStream: nothing answers there.
func EachBody(ctx context.Context, nc *nats.Conn, stream, filter string, since time.Time, each func(body []byte) bool) error {
	what := map[string]any{"next_by_subj": filter, "batch": bodiesPage, "max_bytes": bodiesBytes, "no_hdr": true}
	if since.IsZero() {
		what["seq"] = 1
	} else {
		what["start_time"] = since
	}
	for {
		last, pending, more, err := bodies(ctx, nc, stream, what, each)
		if err != nil || !more || pending == 0 {
			return err
		}
		delete(what, "start_time")
		what["seq"] = last + 1
	}
}

// bodies asks for one page: the sequence of its last message, how many come after it, and
// whether more are wanted.
func bodies(ctx context.Context, nc *nats.Conn, stream string, what map[string]any, each func(body []byte) bool) (last, pending uint64, more bool, err error) {
	body, _ := json.Marshal(what) // texts, numbers and times always encode
	ctx, cancel := context.WithTimeout(ctx, retry.ReplayAnswer)
	defer cancel()
	answers, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return 0, 0, false, fmt.Errorf("nats: direct get: %w", err)
	}
	defer func() { _ = answers.Unsubscribe() }() // the rest of a page that is given up
	if err := nc.PublishRequest("$JS.API.DIRECT.GET."+stream, answers.Subject, body); err != nil {
		return 0, 0, false, fmt.Errorf("nats: direct get: %w", err)
	}
	for {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			return 0, 0, false, noStream(stream, err)
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			if !each(m.Data) {
				return 0, 0, false, nil
			}
		case "404": // there is none
			return 0, 0, false, nil
		case "204": // the end of the page
			last, err = strconv.ParseUint(m.Header.Get("Nats-Last-Sequence"), 10, 64)
			if err == nil {
				pending, err = strconv.ParseUint(m.Header.Get("Nats-Num-Pending"), 10, 64)
			}
			if err != nil {
				return 0, 0, false, fmt.Errorf("nats: direct get: %w", err)
			}
			return last, pending, true, nil
		case "503":
			return 0, 0, false, noStream(stream, nats.ErrNoResponders)
		default:
			return 0, 0, false, fmt.Errorf("nats: direct get from %s: status %s %s", stream, status, m.Header.Get("Description"))
		}
	}
}
