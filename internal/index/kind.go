package index

import "errand/pkg/messages"

// Kind is what requests have in common that are listed and counted together.
type Kind struct {
	Operation messages.Operation `json:"operation"`
	State     messages.State     `json:"state"`
	Reason    messages.Reason    `json:"reason,omitempty"`
	// Outcome is what a request turned out to be whose state is resolved.
	Outcome messages.State `json:"outcome,omitempty"`
	// AfterUnknown: a call of unknown fate was made for it.
	AfterUnknown bool `json:"after_unknown,omitempty"`
	// Dead: there is a dead letter of it.
	Dead bool `json:"dead,omitempty"`
}

// Open reports whether requests of a kind have no outcome yet.
func (k Kind) Open() bool { return k.State != "" && !k.State.Final(k.Operation) }

// Class says what running a request again may do. It is a first look: whoever redrives
// decides by the history.
type Class string

// The classes.
const (
	Safe  Class = "safe"              // no call had an effect
	Twice Class = "may_be_done_twice" // a call may have had one
	Done  Class = "was_done"          // it was
	Runs  Class = "not_over"          // it has no outcome yet
)

// Class is that of the requests of a kind.
func (k Kind) Class() Class {
	last := k.State
	if last == messages.Resolved {
		last = k.Outcome
	}
	switch {
	case k.Open():
		return Runs
	case last == messages.Failed || last == messages.Partial: // what was accepted of it is not run again
		return Safe
	case last.Final(k.Operation) && last != messages.Uncertain:
		return Done
	}
	return Twice // also where the history is gone
}
