package hold

import (
	"errors"
	"fmt"

	"errand/pkg/clients"
)

// How many in a row begin a hold.
const (
	refusedRequests   = 2 // different ones, for credentials, account or address
	exhaustedRequests = 3 // different ones, out of tries on a busy upstream
	unknownCalls      = 3
)

// Call is what came of one call.
type Call struct {
	Err       error // nil if it was answered well
	Exhausted bool  // it was the last try of a delivery
	// Suspect is set if the request met the same before while others succeeded: it proves nothing about the account.
	Suspect bool
}

// counts are the failures in a row, since the last success.
type counts struct {
	refused   requests
	exhausted requests
	unknown   int // calls
}

// requests is a set of requests. It stays small: it begins a hold when it is full.
type requests map[string]struct{}

// add puts a request into the set and returns the set's size.
func (r *requests) add(request string) int {
	if *r == nil {
		*r = requests{}
	}
	(*r)[request] = struct{}{}
	return len(*r)
}

// add counts a failed call, and returns the fault to hold the service for, zero if it may be this request's alone.
func (n *counts) add(service, request string, c Call) fault {
	status := failure(c.Err).Status
	switch fate := clients.FateOf(c.Err); {
	case fate == clients.Held && !c.Suspect:
		if n.refused.add(request) >= refusedRequests {
			return fault{why: fmt.Sprintf("%s answers %d: %s", service, status, faultOf(status)), cause: Refused, status: status}
		}
	case fate == clients.Busy && c.Exhausted:
		if n.exhausted.add(request) >= exhaustedRequests {
			if status == 0 {
				return fault{why: service + " cannot be reached", cause: Unreachable}
			}
			return fault{why: fmt.Sprintf("%s answers %d: overloaded or out of order", service, status), cause: Busy, status: status}
		}
	case fate == clients.Unknown:
		if n.unknown++; n.unknown >= unknownCalls {
			why := service + " gives no answer"
			if status != 0 {
				why = fmt.Sprintf("%s answers %d", service, status)
			}
			return fault{why: why + ": what its last calls did is unknown", cause: NoAnswer, status: status}
		}
	}
	return fault{}
}

// faultOf says what an operator should look at for a status that is not one request's fault.
func faultOf(status int) string {
	if status == 404 || status == 405 {
		return "is its address right?"
	}
	return "credentials, account or quota"
}

// failure is what is known of a failed call; the zero value for any other error.
func failure(err error) clients.Error {
	if e, ok := errors.AsType[*clients.Error](err); ok {
		return *e
	}
	return clients.Error{}
}
