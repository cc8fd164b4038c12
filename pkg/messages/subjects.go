// Package messages is the contract between errand and those who use it: subjects, requests and how they are checked, events and
// what they say. It needs only the standard library.
//
//	request bytes ── Decode ──> request, Meta, *Invalid
//	                               │
//	         (the programs run it and publish what happens)
//	                               │
//	subject, headers, body  <── Subject, Headers, Encode ── Event
//
// Everything that happens to a request is an event on the subject
//
//	<domain>.<operation>.<state>.<request id>
//
// and the last event under <domain>.<operation>.*.<request id> is the state of
// the request.
package messages

import (
	"slices"
	"strconv"
	"strings"

	"errand/internal/wire"
)

// Operation is the first two tokens of a subject.
type Operation string

// The operations. Only Requests can be requested, the others have events; Log is the mail log as a whole, without a request id.
const (
	Enroll       Operation = "mandate.enroll"
	Transactions Operation = "mandate.transactions"
	Application  Operation = "mandate.application"
	Deduction    Operation = "mandate.deduction"
	Callback     Operation = "mandate.callback"
	Send         Operation = "mail.send"
	Batch        Operation = "mail.batch"
	Account      Operation = "mail.account"
	Delivery     Operation = "mail.delivery"
	Log          Operation = "mail.log"
)

// Unmatched is the id in the subject of what could be matched to no request.
const Unmatched = "unmatched"

// Requested is the subject requests of the operation are published on.
func (o Operation) Requested() string { return string(o) + ".requested" }

// DefaultLane is the lane of requests that are published on Requested itself.
const DefaultLane = "default"

// RequestedIn is Requested for a lane, which must be declared; "" is DefaultLane.
func (o Operation) RequestedIn(lane string) string {
	if lane == "" || lane == DefaultLane {
		return o.Requested()
	}
	return o.Requested() + ".lane." + lane
}

// HasLanes says whether there are other lanes than DefaultLane.
func (o Operation) HasLanes() bool { return o == Enroll || o == Send }

// Subject is the subject of an event; the id of a Batch is a BatchID.
func (o Operation) Subject(s State, id string) string {
	if id == "" {
		return string(o) + "." + string(s)
	}
	return string(o) + "." + string(s) + "." + id
}

// Filter matches every event of one request.
func (o Operation) Filter(id string) string { return string(o) + ".*." + id }

// BatchID names batch n, counted from 1, of request id.
func BatchID(id string, n int) string { return id + "." + strconv.Itoa(n) }

// State is the third token of an event's subject.
type State string

// The states: of a delivery Delivered, Deferred, Bounced and Unknown, of all of a request's Summary, of the log Marked.
const (
	Started   State = "started"
	Deferred  State = "deferred"
	Succeeded State = "succeeded"
	Failed    State = "failed"
	Uncertain State = "uncertain"
	Resolved  State = "resolved"
	Reopened  State = "reopened"
	Accepted  State = "accepted"
	Partial   State = "partial"
	Refused   State = "refused"
	Page      State = "page"
	Listed    State = "listed"
	Reported  State = "reported"
	Delivered State = "delivered"
	Bounced   State = "bounced"
	Unknown   State = "unknown"
	Marked    State = "watermark"
	Summary   State = "summary"
	Erased    State = "erased"
	Received  State = "received"
	Requested State = "requested" // of a request itself, which is not an event
)

// Subject is what the subject of a message says.
type Subject struct {
	Operation Operation
	State     State  // Requested for a request and for its dead letter
	ID        string // the request id, or Unmatched; "" for Requested and for the log as a whole
	Batch     int    // counted from 1; 0: the event is not about one batch
	Lane      string // of a request and its dead letter; "" for DefaultLane
	Dead      bool   // a dead letter; its request id is in a header
}

// ParseSubject reads
//
//	<domain>.<operation>.requested[.lane.<lane>]   a request
//	dead.<a request's subject>                     a dead letter
//	<domain>.<operation>.<state>[.<id>[.<batch>]]  an event
//
// and returns the zero Subject for anything else.
func ParseSubject(subject string) Subject {
	rest, dead := strings.CutPrefix(subject, "dead.")
	dot := strings.IndexByte(rest, '.')
	end := dot + 1 + strings.IndexByte(rest[dot+1:], '.')
	if dot < 1 || end < dot+2 {
		return Subject{}
	}
	s := Subject{Operation: Operation(rest[:end]), Dead: dead}
	state, id, _ := strings.Cut(rest[end+1:], ".")
	s.State = State(state)
	if dead && s.State != Requested || state == "" {
		return Subject{}
	}
	if s.State == Requested {
		lane, named := strings.CutPrefix(id, "lane.")
		if id != "" && !(named && wire.IsLane(lane) && lane != DefaultLane && s.Operation.HasLanes()) {
			return Subject{}
		}
		s.Lane = lane
		return s
	}
	id, batch, _ := strings.Cut(id, ".")
	s.ID = id
	s.Batch, _ = strconv.Atoi(batch) // 0 for what is not a number
	return s
}

// Request is the operation and id of the request that the message belongs to, such as Send for a batch. The id is "" for a
// request, a dead letter and the log.
func (s Subject) Request() (Operation, string) {
	switch s.Operation {
	case Batch, Delivery:
		return Send, s.ID
	case Application, Deduction, Callback:
		return Enroll, s.ID
	}
	return s.Operation, s.ID
}

// StateOf is the state in a subject, "" when there is none.
func StateOf(subject string) State { return ParseSubject(subject).State }

// Final reports whether a request of operation o, or a Batch, has ended once it is in state s. Resolved counts, as it follows a
// final state.
func (s State) Final(o Operation) bool {
	if s == Erased {
		return o != Application && o != Deduction && o != Callback && o != Delivery && o != Log
	}
	switch o {
	case Enroll:
		return s == Succeeded || s == Failed || s == Uncertain || s == Resolved
	case Transactions:
		return s == Listed || s == Failed
	case Send:
		return s == Accepted || s == Partial || s == Failed || s == Uncertain || s == Resolved
	case Batch:
		return s == Accepted || s == Refused || s == Uncertain
	case Account:
		return s == Reported || s == Failed
	}
	return false
}

// Reason says why a request or a batch is where it is: a closed set.
type Reason string

// The reasons.
const (
	ReasonInvalidRequest Reason = "invalid_request" // the request breaks a rule; no call was made
	ReasonConflict       Reason = "conflict"        // another request has the same id
	ReasonCancelled      Reason = "cancelled"       // a person withdrew it before any call was under way
	ReasonRefused        Reason = "refused"         // the upstream said no
	ReasonUnavailable    Reason = "unavailable"     // given up after give_up_at
	ReasonBusy           Reason = "busy"            // nothing happened upstream; safe to repeat
	ReasonScheduled      Reason = "scheduled"       // of deferred alone: its not_before has not come
	ReasonHeld           Reason = "held"            // the account is not authorized, or its quota is used up
	ReasonShortCount     Reason = "short_count"     // fewer recipients accepted than were sent
	ReasonNoAnswer       Reason = "no_answer"       // timeout, cut connection, other 5xx
	ReasonBadAnswer      Reason = "bad_answer"      // a 2xx that cannot be read or lacks what it must hold
	ReasonInterrupted    Reason = "interrupted"     // a worker died during the call
	ReasonLinkLost       Reason = "link_lost"       // enrolled, but the answer with the link never came
)

// Reasons are all of them, in the order of the contract.
var Reasons = []Reason{ReasonInvalidRequest, ReasonConflict, ReasonCancelled, ReasonRefused, ReasonUnavailable, ReasonBusy, ReasonHeld,
	ReasonShortCount, ReasonNoAnswer, ReasonBadAnswer, ReasonInterrupted, ReasonLinkLost, ReasonScheduled}

// ValidID says whether a request may have s as its id: [A-Za-z0-9_-]{1,64}, but not Unmatched or <stream>-<sequence>.
func ValidID(s string) bool { return wire.IsID(s) && !isReservedID(s) }

func isReservedID(s string) bool {
	stream, sequence, found := strings.Cut(s, "-")
	return s == Unmatched || found && sequence != "" && allDigits(sequence) && slices.Contains(wire.Streams, stream)
}
