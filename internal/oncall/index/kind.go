package index

import (
	"slices"

	"errand/pkg/messages"
)

// Kind is what requests have in common that are listed and counted together.
type Kind struct {
	Operation messages.Operation `json:"operation"`
	State     messages.State     `json:"state"`
	Reason    messages.Reason    `json:"reason,omitempty"`
	// Outcome is what a request turned out to be whose state is resolved.
	Outcome messages.State `json:"outcome,omitempty"`
	// AfterUnknown: a call of unknown fate was made for it.
	AfterUnknown bool `json:"after_unknown,omitempty"`
	// Listed: its order number is in the transaction list.
	Listed bool `json:"listed,omitempty"`
	// Dead: there is a dead letter of it.
	Dead bool `json:"dead,omitempty"`
}

// Open reports whether requests of a kind have no outcome yet.
func (k Kind) Open() bool {
	return k.State != "" && !k.State.Final(k.Operation)
}

// Class says what running a request again may do, in the words of internal/oncall/act. It is a first
// look, by the last event: act decides by the whole history.
type Class string

// The classes.
const (
	Safe      Class = "safe"              // no call had an effect
	Twice     Class = "may_be_done_twice" // a call may have had one
	WasDone   Class = "was_done"          // it was
	Cancelled Class = "cancelled"         // a person withdrew it
	CannotRun Class = "cannot_run"        // another request has its id, or it was erased
	Underway  Class = "open"              // it has no outcome yet
)

// Class is that of the requests of a kind.
func (k Kind) Class() Class {
	last := k.State
	if last == messages.Resolved {
		last = k.Outcome
	}
	switch {
	case k.Open():
		return Underway
	case k.Reason == messages.ReasonCancelled:
		return Cancelled
	case k.Reason == messages.ReasonConflict || k.State == messages.Erased:
		return CannotRun
	case k.Reason == messages.ReasonLinkLost || k.Listed:
		return WasDone
	case last == messages.Failed && k.AfterUnknown && k.State != messages.Resolved:
		return Twice
	case last == messages.Failed || last == messages.Partial: // what was accepted of it is not run again
		return Safe
	case last.Final(k.Operation) && last != messages.Uncertain:
		return WasDone
	}
	return Twice // also where the history is gone
}

// kindColumns are those of a kind but its number, in the order of its fields.
const kindColumns = "operation, state, reason, outcome, after_unknown, listed, dead"

// operations are those whose requests are indexed. A row has the place of its own, from 1:
// one is added at the end.
var operations = []messages.Operation{messages.Enroll, messages.Transactions, messages.Send, messages.Account}

// numberOf is an operation in a row; 0: its requests are not indexed.
func numberOf(op messages.Operation) int { return slices.Index(operations, op) + 1 }
