package programs

import (
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

// rights are the permissions that the program's NATS user lacks. A missing one can look like a server that does not answer.
type rights struct {
	mu      sync.Mutex
	missing map[string]time.Time // when the servers last said so
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
			if tokens[0] != "dead" {
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

// fault names the missing rights; "" means none. What was not refused for a while counts as allowed: nothing else shows it.
func (r *rights) fault() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.missing, func(_ string, at time.Time) bool { return time.Since(at) > retry.RightsMissing })
	if len(r.missing) == 0 {
		return ""
	}
	return fmt.Sprintf("this program's NATS user may not %s: compare its permissions with deploy/nats/errand.conf",
		strings.Join(slices.Sorted(maps.Keys(r.missing)), ", "))
}
