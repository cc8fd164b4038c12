package consumer

import (
	"sync"

	"errand/internal/bus"
)

// most is how many pulls of one message wait at once: few leave the hands idle for
// a round trip and make each message pay its own system calls, on both sides.
const most = 16

// pulls are those of one consumer. Of a queue that has nothing one pull waits: the
// others rest until it brings something.
type pulls struct {
	free chan *bus.Pull

	mu      sync.Mutex
	resting []*bus.Pull
}

// open leaves a slot for the program's other consumer.
func (c *Consumer[R]) open() *pulls {
	n := 1
	if c.Writes {
		n = max(1, min(most, cap(c.Slots)-1))
	}
	ps := &pulls{free: make(chan *bus.Pull, n)}
	for range n {
		ps.free <- bus.NewPull(c.Conn, c.Source)
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
