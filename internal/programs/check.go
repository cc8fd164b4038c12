package programs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/retry"
)

// startChecks is how often a server that does not answer is asked when a program starts: it may be starting, too.
const startChecks = 6

// check checks that the program's streams and consumers are there, now and from time to time: without one that can store
// events the program is not ready. An idle program would not notice, a busy one would wait silently.
func (r *runtime) check(ctx context.Context, queues []bus.Queue, streams ...string) (bus.Found, error) {
	found, err := bus.Check(ctx, r.js, queues, streams...)
	for try := 1; bus.IsUnavailable(err) && try < startChecks && retry.Pause(ctx, retry.NATSCheck); try++ {
		r.log.Warn().Err(bus.Explain(r.nc, err)).Msg("starting: JetStream does not answer")
		found, err = bus.Check(ctx, r.js, queues, streams...)
	}
	if err != nil && ctx.Err() != nil { // stopped before there was work, which is not a failure
		return found, fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	if missing := r.rights.fault(); err != nil && missing != "" {
		err = fmt.Errorf("%w: %s", err, missing)
	}
	if err != nil {
		return found, bus.Explain(r.nc, err)
	}
	r.metrics.ofStreams(streams, r.publisher.Faults)
	r.taken = found.All
	r.note(found)
	var fault latest
	r.ready.checks.add(fault.now)
	r.background(ctx, func(ctx context.Context) {
		for retry.Pause(ctx, r.every) {
			before, now := fault.now(), r.problem(ctx, queues, streams)
			fault.Store(now)
			switch {
			case now == before || ctx.Err() != nil:
			case now == "":
				r.log.Info().Msg("what the program needs of NATS is there again")
			default:
				r.log.Warn().Str("why", now).Msg("not ready: NATS check failed")
			}
		}
	})
	return found, nil
}

// problem says what is wrong now; "" if nothing is.
func (r *runtime) problem(ctx context.Context, queues []bus.Queue, streams []string) string {
	ctx, done := context.WithTimeout(ctx, retry.NATSCheck)
	defer done()
	found, err := bus.Check(ctx, r.js, queues, streams...)
	r.note(found)
	if err == nil {
		r.heal(ctx, found)
	} else {
		clear(r.strandings)
	}
	if missing := r.rights.fault(); missing != "" { // first: what follows comes and goes with it
		return missing
	}
	switch {
	case bus.IsUnavailable(err):
		return "JetStream does not answer: " + bus.Explain(r.nc, err).Error()
	case err != nil:
		return err.Error()
	case r.onDemand: // what it could not store may be stored now: the next call shows that
		return ""
	}
	return r.publisher.Fault()
}

// note keeps the result of a check; what could not be read stays as it was.
func (r *runtime) note(found bus.Found) {
	r.metrics.set(found)
	r.ready.paused.Store(r.notWorked(found))
	if found.Queues != nil {
		r.keptFor.Store(int64(found.Kept))
		r.newer.Store(found.Newer)
	}
}

// notWorked says which queues are paused, and whose lanes were declared after the program started, a line for each.
func (r *runtime) notWorked(found bus.Found) string {
	var lines []string
	for _, q := range found.All {
		if c := found.Queues[q.Name]; c != nil && c.CachedInfo().Paused {
			lines = append(lines, fmt.Sprintf("%s is paused until %s", q, c.CachedInfo().Config.PauseUntil.UTC().Format(time.RFC3339)))
		}
		if !slices.Contains(r.taken, q) {
			lines = append(lines, fmt.Sprintf("%s was declared after this program started, which does not take its requests: restart it", q))
		}
	}
	return strings.Join(lines, "\n")
}

// triesEvery says how long the program may wait until it tries again what NATS refused: it counts for so long.
func (r *runtime) triesEvery(wait time.Duration) {
	r.publisher.TriesEvery(wait)
	r.rights.mu.Lock()
	defer r.rights.mu.Unlock()
	r.rights.wait = wait
}

// rights are the permissions that the program's NATS user lacks. A missing one can look like a server that does not answer.
type rights struct {
	mu      sync.Mutex
	missing map[string]time.Time // when the servers last said so
	wait    time.Duration        // the longest until one is used again
}

// watch notes what the servers refuse on nc from now on, until it reconnects: permissions may have changed.
func (r *rights) watch(nc *nats.Conn) {
	logged, reconnected := nc.ErrorHandler(), nc.ReconnectHandler()
	nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		logged(nc, sub, err)
		r.note(err)
	})
	nc.SetReconnectHandler(func(nc *nats.Conn) {
		reconnected(nc)
		r.mu.Lock()
		defer r.mu.Unlock()
		clear(r.missing)
	})
}

// violation matches how a server says what it refuses.
var violation = regexp.MustCompile(`(?i)violation for (publish|subscription) to "([^"]+)"`)

// note keeps a missing right that the program cannot do without.
func (r *rights) note(err error) {
	found := violation.FindStringSubmatch(err.Error())
	if !errors.Is(err, nats.ErrPermissionViolation) || found == nil {
		return
	}
	subject := withoutIDs(found[2])
	if subject == "" {
		return
	}
	what := "publish to "
	if strings.EqualFold(found[1], "subscription") {
		what = "subscribe to "
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.missing == nil {
		r.missing = map[string]time.Time{}
	}
	r.missing[what+subject] = time.Now()
}

// withoutIDs is a subject as permissions have it, without ids; "" for what only one request may ask for, its bucket.
func withoutIDs(subject string) string {
	tokens := strings.Split(subject, ".")
	streams := bus.Streams(bus.Limits{})
	ours := slices.IndexFunc(tokens, func(token string) bool {
		return slices.ContainsFunc(streams, func(s jetstream.StreamConfig) bool { return s.Name == token })
	})
	switch {
	case strings.HasPrefix(subject, "_INBOX"):
		tokens = append(tokens[:1], ">")
	case !strings.HasPrefix(subject, "$"):
		for i := 3; i < len(tokens); i++ {
			if tokens[0] != "dead" && tokens[0] != "errand" {
				tokens[i] = "*"
			}
		}
	case ours < 0:
		return ""
	case ours < len(tokens)-1:
		tokens = append(tokens[:ours+1], ">")
	}
	return strings.Join(tokens, ".")
}

// fault names the missing rights; "" means nothing is missing. What was not refused for a while counts as allowed: nothing else shows it.
func (r *rights) fault() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lasts := max(retry.Refused, 2*r.wait)
	maps.DeleteFunc(r.missing, func(_ string, at time.Time) bool { return time.Since(at) > lasts })
	if len(r.missing) == 0 {
		return ""
	}
	return fmt.Sprintf("this program's NATS user may not %s: compare its permissions with deploy/nats/errand.conf",
		strings.Join(slices.Sorted(maps.Keys(r.missing)), ", "))
}
