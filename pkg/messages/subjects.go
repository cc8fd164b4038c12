// Package messages is the contract between errand and those who use it: the
// subjects, the requests and how they are checked, the events and what they
// say. It knows nothing of NATS connections and needs only the standard
// library, so that producers and consumers of any program may import it.
//
//	request bytes ── DecodeEnroll, DecodeSend, … ──> request, Meta, *Invalid
//	                                                     │
//	                            (the programs do the errand, and tell of it)
//	                                                     │
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
	"strconv"
	"strings"
)

// Operation is what a request asks for or an event tells of: the first two
// tokens of the subject.
type Operation string

// The operations. Batch and Delivery are told of, never requested; Log is the
// mail log as a whole and has no request id.
const (
	Enroll       Operation = "mandate.enroll"
	Transactions Operation = "mandate.transactions"
	Send         Operation = "mail.send"
	Batch        Operation = "mail.batch"
	Account      Operation = "mail.account"
	Delivery     Operation = "mail.delivery"
	Log          Operation = "mail.log"
)

// Unmatched stands in place of the request id in the subject of a delivery
// that could not be tied to a request.
const Unmatched = "unmatched"

// Requested is the subject requests of the operation are published on.
func (o Operation) Requested() string { return string(o) + ".requested" }

// Subject is the subject of the event that tells state s of request id. For
// Batch, id is a BatchID. An empty id is left out together with its dot.
func (o Operation) Subject(s State, id string) string {
	if id == "" {
		return string(o) + "." + string(s)
	}
	return string(o) + "." + string(s) + "." + id
}

// Filter matches every event of one request, whatever the state. A request's
// history is read and written under exactly this string.
func (o Operation) Filter(id string) string { return string(o) + ".*." + id }

// BatchID names batch n, counted from 1, of request id.
func BatchID(id string, n int) string { return id + "." + strconv.Itoa(n) }

// State is the third token of an event's subject.
type State string

// The states. A delivery is Delivered, Deferred, Bounced or Unknown, and is told of by
// Summary and Overdue too; the log is told of by Marked, and by Sent and Concluded
// between the programs.
const (
	Started   State = "started"
	Deferred  State = "deferred"
	Succeeded State = "succeeded"
	Failed    State = "failed"
	Uncertain State = "uncertain"
	Resolved  State = "resolved"
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
	Sent      State = "sent"
	Concluded State = "concluded"
	Summary   State = "summary"
	Overdue   State = "overdue"
)

// StateOf is the third token of a subject, "" when there is none.
func StateOf(subject string) State {
	for range 2 {
		_, rest, found := strings.Cut(subject, ".")
		if !found {
			return ""
		}
		subject = rest
	}
	state, _, _ := strings.Cut(subject, ".")
	return State(state)
}

// Final says whether nothing more is done for a request of operation o once it
// is in state s. Resolved counts as final, as it follows a final state; for
// Batch it is the batch that is settled, not its request. Deliveries and the
// log have no final state.
func (s State) Final(o Operation) bool {
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
	ReasonRefused        Reason = "refused"         // the upstream said no
	ReasonUnavailable    Reason = "unavailable"     // given up after give_up_at
	ReasonBusy           Reason = "busy"            // nothing happened upstream; safe to repeat
	ReasonHeld           Reason = "held"            // the account is not let in, or its quota is used up
	ReasonShortCount     Reason = "short_count"     // fewer recipients accepted than were sent
	ReasonNoAnswer       Reason = "no_answer"       // timeout, cut connection, other 5xx
	ReasonBadAnswer      Reason = "bad_answer"      // a 2xx that cannot be read or lacks what it must hold
	ReasonInterrupted    Reason = "interrupted"     // a worker died during the call
	ReasonLinkLost       Reason = "link_lost"       // enrolled, but the answer with the link never came
)

// ValidID says whether s can be a request id: [A-Za-z0-9_-]{1,64}.
func ValidID(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !isAlnum(c) && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isAlnum(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
