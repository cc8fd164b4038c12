package consumer

import (
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
)

// WritePulls is how many pulls of one message wait at a queue of writes: few leave the
// workers idle for a round trip and make each message pay its own system calls, on both
// sides. A queue of reads needs one.
const WritePulls = 16

// pulls are those of one consumer. Of a queue that has nothing one pull waits: the
// others rest until it brings something.
type pulls struct {
	free chan *bus.Pull

	mu      sync.Mutex
	resting []*bus.Pull
}

func openPulls(conn *nats.Conn, source jetstream.Consumer, n int) *pulls {
	n = max(n, 1)
	ps := &pulls{free: make(chan *bus.Pull, n)}
	for range n {
		ps.free <- bus.NewPull(conn, source)
	}
	return ps
}

// back takes a pull back, which brought a message or did not.
func (ps *pulls) back(p *bus.Pull, brought bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if !brought && len(ps.resting) < cap(ps.free)-1 {
		ps.resting = append(ps.resting, p)
		return
	}
	ps.free <- p
	if brought {
		for _, p := range ps.resting {
			ps.free <- p
		}
		ps.resting = nil
	}
}

// close is called when all pulls are back.
func (ps *pulls) close() {
	for range cap(ps.free) - len(ps.resting) {
		(<-ps.free).Close()
	}
	for _, p := range ps.resting {
		p.Close()
	}
}
