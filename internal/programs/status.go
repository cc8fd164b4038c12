package programs

import (
	"os"
	"time"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// status is what a program answers on bus.StatusSubject: what /readyz says, with each hold by itself.
func (r *runtime) status() bus.ProgramStatus {
	host, _ := os.Hostname() // "" says as little as a wrong one
	s := bus.ProgramStatus{Program: r.name, Host: host, Version: Version(), Started: messages.Time{Time: r.started},
		Faults: append([]string{}, r.ready.others()...), Holds: []bus.Hold{}}
	for _, held := range r.ready.held() {
		if why, since := held.hold.Held(); why != "" {
			s.Holds = append(s.Holds, bus.Hold{Operation: held.op, Why: why, Since: messages.Time{Time: since}})
		}
	}
	if nanoseconds := r.metrics.readSince.Load(); nanoseconds != 0 {
		s.ReadThrough = &messages.Time{Time: time.Unix(0, nanoseconds)}
	}
	return s
}
