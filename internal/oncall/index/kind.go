package index

import (
	"slices"

	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

// Kind is what requests have in common that are listed and counted together.
type Kind struct {
	Operation messages.Operation `json:"operation"`
	State     messages.State     `json:"state"`
	Reason    messages.Reason    `json:"reason,omitempty"`
	// Outcome is what a request turned out to be whose state is resolved.
	Outcome messages.State `json:"outcome,omitempty"`
	// Class is what running it again may do, as far as its last event says.
	Class inspect.Class `json:"class,omitempty"`
	// Dead means that it has a dead letter.
	Dead bool `json:"dead,omitempty"`
	// Seen means that a person discarded its last dead letter.
	Seen bool `json:"seen,omitempty"`
}

// Open reports whether requests of a kind have no outcome yet.
func (k Kind) Open() bool {
	return k.State != "" && !k.State.Final(k.Operation)
}

// Needed reports whether a dead letter of a kind needs somebody: it does not where its request went on, was withdrawn or was
// done, or where a person discarded it.
func (k Kind) Needed() bool {
	over := k.Class == inspect.Superseded || k.Class == inspect.Underway || k.Class == inspect.Cancelled
	return k.Dead && !k.Seen && !over && (k.State != messages.Resolved || k.Class != inspect.WasDone)
}

// expired is the kind of requests of which no event is known.
func expired(op messages.Operation) Kind {
	class, _ := inspect.ClassOf(op, "", messages.Facts{})
	return Kind{Operation: op, Class: class}
}

// kindColumns are the columns of a kind but its number, in the order of its fields.
const kindColumns = "operation, state, reason, outcome, class, dead, seen"

// numberOf is an operation in a row, where one more is added at the end; 0 when its requests are not indexed.
func numberOf(op messages.Operation) int { return slices.Index(inspect.Operations, op) + 1 }
