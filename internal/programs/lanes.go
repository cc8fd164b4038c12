package programs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/requests/admission"
	"errand/internal/requests/consumer"
	"errand/internal/wire"
	"errand/pkg/messages"
)

// Lanes are names and weights of lanes; messages.DefaultLane is the first if there are others.
type Lanes []admission.Lane

const maxLaneWeight = 1000

// UnmarshalText reads lanes separated by commas, each with =WEIGHT or of weight 1.
func (l *Lanes) UnmarshalText(text []byte) error {
	lanes := Lanes{{Name: messages.DefaultLane, Weight: 1}}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(string(text), ",") {
		name, weight, weighted := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.Atoi(weight)
		if !weighted {
			n, err = 1, nil
		}
		switch {
		case !wire.IsLane(name):
			return fmt.Errorf("must be like default=4,bulk=1, each name up to 32 of a to z, 0 to 9 and -, got %q", part)
		case seen[name]:
			return fmt.Errorf("must have each lane once, got %q", text)
		case err != nil || n < 1 || n > maxLaneWeight:
			return fmt.Errorf("must have weights of 1 to %d, got %q", maxLaneWeight, part)
		case name == messages.DefaultLane:
			lanes[0].Weight = n
		default:
			lanes = append(lanes, admission.Lane{Name: name, Weight: n})
		}
		seen[name] = true
	}
	*l = lanes
	return nil
}

// Names are the lanes beside the default one.
func (l Lanes) Names() (names []string) {
	for _, lane := range l {
		if lane.Name != messages.DefaultLane {
			names = append(names, lane.Name)
		}
	}
	return names
}

// with adds the lanes whose queues were found, with weight 1: no request waits for a program that does not know its lane.
func (l Lanes) with(found bus.Found) Lanes {
	for _, q := range found.All {
		if name := q.Lane(); name != "" && !slices.Contains(l.Names(), name) {
			if len(l) == 0 {
				l = Lanes{{Name: messages.DefaultLane, Weight: 1}}
			}
			l = append(slices.Clip(l), admission.Lane{Name: name, Weight: 1})
		}
	}
	return l
}

// pulls take requests of all lanes of a queue.
func (r *runtime) pulls(found bus.Found, of bus.Queue) (first consumer.Queue, lanes []consumer.Lane) {
	for _, q := range found.All {
		if q.Lane() != "" && q == of.In(q.Lane()) {
			lanes = append(lanes, consumer.Lane{Name: q.Lane(), Queue: r.pull(found.Queues[q.Name])})
		}
	}
	return r.pull(found.Queues[of.Name]), lanes
}

func (r *runtime) pull(queue jetstream.Consumer) *bus.Pull {
	p := bus.NewPull(r.nc, queue)
	p.Idle = r.idle
	return p
}
