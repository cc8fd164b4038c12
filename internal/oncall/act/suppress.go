package act

import (
	"context"
	"errors"
	"fmt"
	"time"

	"errand/internal/bus"
	"errand/internal/wire"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

// ErrNoKeys means that an address has no key for this user, who does not know the secret that keys are made with.
var ErrNoKeys = errors.New("this NATS user may not read the secret of recipients' keys, and no RECIPIENT_KEY is given")

// Suppress has nothing sent to an address, for as long as after a bounce, or has it written to again. Audit and stream have a
// key of the address, the first of those that it can have. One that was added before may have expired, and is suppressed from now on.
// Errors: as for Do; ErrNoKeys; ErrNothingDone if there is nothing to remove.
func (p Person) Suppress(ctx context.Context, keys []mailkey.Key, removed bool, why string) error {
	if len(keys) == 0 {
		return ErrNoKeys
	}
	is, err := bus.SuppressionOf(ctx, p.Conn, keys...)
	if err != nil {
		return err
	}
	act := Act{Verb: Suppress, Operation: messages.Send, Target: keys[0].String(), Why: why, Plan: "it is not suppressed"}
	if removed {
		act.Verb = Unsuppress
	}
	if is != nil && !is.Removed {
		act.Plan = "it is suppressed: " + is.Says()
	}
	_, err = p.Do(ctx, act, func(ctx context.Context) (string, error) {
		if removed && (is == nil || is.Removed) {
			return "", fmt.Errorf("%w: it is not suppressed", ErrNothingDone)
		}
		return "stored", p.Publisher.Suppress(ctx, []bus.Suppression{{Key: keys[0], At: messages.Time{Time: time.Now()},
			By: wire.Cut(p.Name), Why: wire.Cut(why), Removed: removed}})
	})
	return err
}

// EraseSuppressions removes what is stored about an address, by its keys. Programs that run forget it at their next start, or when it
// has expired. Errors: as for Do.
func (p Person) EraseSuppressions(ctx context.Context, keys []mailkey.Key, why string) error {
	erase := Act{Verb: Erase, Operation: messages.Send, Target: keys[0].String(), Why: why, Plan: "remove what is stored of bounces"}
	_, err := p.Do(ctx, erase, func(ctx context.Context) (string, error) {
		var subjects []string
		for _, k := range keys {
			subjects = append(subjects, bus.SuppressionFilter(k))
		}
		return "removed", p.purge(ctx, bus.Suppressions, subjects)
	})
	return err
}
