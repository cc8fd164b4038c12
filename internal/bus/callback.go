package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/history"
	"errand/pkg/messages"
)

// ErrManyCallbacks says that no further callback of a request is stored.
var ErrManyCallbacks = errors.New("bus: too many callbacks of the request are stored")

const (
	// maxCallbacks is how many callbacks of a request are stored in callbackMemory; the service sends a few per application.
	maxCallbacks = 64
	// maxCallbackBytes is how many bytes they may have together, so that nobody with one address drives out what others sent.
	maxCallbackBytes = 512 << 10
	// callbackMemory is for how long a repeated callback is recognized.
	callbackMemory = 30 * 24 * time.Hour
	// maxRaces is how often a callback is tried against others of its request.
	maxRaces = 32
	// earlier is the header that lists a callback and those before it: <beginning of the digest>.<Unix seconds>.<bytes>, with commas.
	earlier = "Errand-Callbacks"
	// digestKept is how much of each digest is in it.
	digestKept = 24
)

// Callback stores a request's callback once per digest, fenced on the last. Errors: ErrManyCallbacks, or it may be stored.
func (s EventStore) Callback(ctx context.Context, request string, body *messages.CallbackBody) error {
	e := messages.Event{Operation: messages.Callback, State: messages.Received, ID: request, Body: body}
	m := &nats.Msg{Subject: e.Subject()}
	now := time.Now()
	body.Common = messages.Common{RequestID: request, At: messages.Time{Time: now}}
	own := body.Digest[:digestKept]
	var known []string // nearly every callback is the first
	last := uint64(0)
	for try := 1; ; try++ {
		data, err := e.Encode()
		if err != nil {
			return err
		}
		m.Data, m.Header = data, nats.Header{}
		e.Headers(m.Header, s.Source, request+"."+body.Digest) // other requests may get the same one
		m.Header.Set(earlier, strings.Join(append(known, fmt.Sprintf("%s.%d.%d", own, now.Unix(), len(data))), ","))
		Fence(m.Header, messages.Callback.Filter(request), last)
		_, err = s.Publisher.Publish(ctx, m)
		switch {
		case err == nil:
			return nil
		case tooLarge(err) && history.Abridge(body):
			continue
		case !isConflict(err) || try == maxRaces:
			return fmt.Errorf("bus: store a callback of %s: %w", request, err)
		}
		// The subject is part of the request's, so that a user may be allowed callbacks alone.
		got, err := direct(ctx, s.Publisher.nc, MandateCallbacks+"."+m.Subject, nil)
		if err != nil {
			return noStream(MandateCallbacks, err)
		}
		stored := 0
		if last, known = 0, nil; got != nil {
			last = got.Sequence
			known, stored = knownAt(got.Header.Get(earlier), now)
		}
		switch {
		case slices.ContainsFunc(known, func(one string) bool { return strings.HasPrefix(one, own) }):
			return nil
		case len(known) >= maxCallbacks, stored+len(data) > maxCallbackBytes:
			return ErrManyCallbacks
		}
	}
}

// knownAt are the callbacks in the header earlier that are remembered at a time, and their bytes: a mandate lasts for years.
func knownAt(header string, at time.Time) (known []string, bytes int) {
	for one := range strings.SplitSeq(header, ",") {
		_, rest, _ := strings.Cut(one, ".")
		seconds, size, _ := strings.Cut(rest, ".")
		if stored, err := strconv.ParseInt(seconds, 10, 64); err == nil && at.Sub(time.Unix(stored, 0)) < callbackMemory {
			known = append(known, one)
			n, _ := strconv.Atoi(size) // only the receiver writes there
			bytes += n
		}
	}
	return known, bytes
}
