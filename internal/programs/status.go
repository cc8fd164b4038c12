package programs

import (
	"os"
	"time"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// status is what a program says of itself on bus.StatusSubject: what /readyz says, with
// each hold by itself.
func (r *runtime) status() bus.ProgramStatus {
	version, _, _ := build()
	host, _ := os.Hostname() // "" says as little as a wrong one
	s := bus.ProgramStatus{Program: r.name, Host: host, Version: version, Started: messages.Time{Time: r.started}, Faults: []string{}, Holds: []bus.Hold{}}
	s.Faults = append(s.Faults, r.ready.others()...)
	for _, held := range r.ready.held() {
		if why, since := held.hold.Held(); why != "" {
			s.Holds = append(s.Holds, bus.Hold{Operation: held.op, Why: why, Since: messages.Time{Time: since}})
		}
	}
	if r.read.Load() {
		s.ReadThrough = &messages.Time{Time: time.Unix(0, r.metrics.known.Load())}
	}
	return s
}
