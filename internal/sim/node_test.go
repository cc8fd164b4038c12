package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"errand/internal/retry"
)

// node is a process: a replica, or a person's program. It can be killed at every await, stand still, and be cut off from NATS.
type node struct {
	w    *world
	name string
	ctx  context.Context // until it is killed
	kill context.CancelCauseFunc

	mu     sync.Mutex
	awaits int // so far
	dies   int // at which it is killed; 0 means never
	late   bool
	goesOn time.Time // stopped until then, as by SIGSTOP
	joined time.Time // cut off from NATS until then
}

// route is what an await goes over.
type route bool

const (
	overNATS route = true
	overHTTP route = false
)

var errKilled = errors.New("killed")

func (w *world) newNode(name string) *node {
	n := &node{w: w, name: name}
	n.ctx, n.kill = context.WithCancelCause(context.Background())
	return n
}

// killAt kills the node at an await from now on, before or after it had its effect.
func (n *node) killAt(nth int, late bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dies, n.late = n.awaits+nth, late
}

// stop suspends it for a while: what it awaits comes later. cut cuts it off from NATS.
func (n *node) stop(d time.Duration) { n.until(&n.goesOn, d) }
func (n *node) cut(d time.Duration)  { n.until(&n.joined, d) }

func (n *node) until(t *time.Time, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	*t = time.Now().Add(d)
}

// before is where an await begins: nothing has happened yet.
func (n *node) before(ctx context.Context, what string, over route) error {
	n.counts("before "+what, false)
	return n.blocked(ctx, over)
}

// after is where it ends: it has happened, and may not be known.
func (n *node) after(ctx context.Context, what string, over route) error {
	n.counts("after "+what, true)
	return n.blocked(ctx, over)
}

// counts counts an await, and kills the node at the one that it is to be killed at.
func (n *node) counts(where string, over bool) {
	n.mu.Lock()
	if !over {
		n.awaits++
	}
	dies := n.dies > 0 && n.awaits >= n.dies && n.late == over
	n.mu.Unlock()
	if dies && !n.dead() {
		n.w.tell("%s is killed %s", n.name, where)
		n.kill(errKilled)
	}
}

// pass is an await without an effect.
func (n *node) pass(ctx context.Context, what string, over route, takes time.Duration) error {
	if err := n.before(ctx, what, over); err != nil {
		return err
	}
	if takes > 0 && !retry.Pause(ctx, takes) {
		return context.Cause(ctx)
	}
	return n.after(ctx, what, over)
}

func (n *node) dead() bool { return n.ctx.Err() != nil }

// absent is for how long the node stands still or, where that is longer, is cut off.
func (n *node) absent() (wait time.Duration, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	stopped, apart := max(0, time.Until(n.goesOn)), time.Until(n.joined)
	return max(stopped, apart), apart > stopped
}

// blocked waits while the node is stopped or cut off. A dead one no longer waits for anything.
func (n *node) blocked(ctx context.Context, over route) error {
	for {
		n.mu.Lock()
		stopped, cut := time.Until(n.goesOn), time.Until(n.joined)
		n.mu.Unlock()
		switch {
		case n.dead():
			return fmt.Errorf("sim: %w", errKilled)
		case stopped > 0:
			retry.Pause(n.ctx, stopped) // it cannot even see that ctx ended
		case over == overHTTP || cut <= 0:
			return nil
		case !retry.Pause(ctx, cut):
			return context.Cause(ctx)
		}
	}
}
