// Package clients makes calls to an upstream service and reports exactly what is known of each of them.
//
//	mandate.Client \                             / success: the answer holds what it must
//	                Upstream.Exchange -> judge -> - refused, busy, held: the upstream did nothing
//	mail.Client    /                             \ unknown: it may or may not have done it
//
// Nothing here repeats a call that changes something, follows a redirect or waits for a better moment. A failed call returns an
// [Error] whose [Fate] says what the caller may do next. The two services' documents show no error answers, so the fates are
// an assumption, made in one function: judge.
package clients

import (
	"errors"
	"net/http"
)

// Fate is what is known of a call after it was made.
type Fate string

// The fates, from best to worst.
const (
	Success Fate = "success" // the upstream did it and said so
	Busy    Fate = "busy"    // nothing happened upstream; a later call may do
	Refused Fate = "refused" // the upstream said no to this very request
	Held    Fate = "held"    // the upstream says no, perhaps to every request: key, permission, quota or credit, or a wrong address
	Unknown Fate = "unknown" // it may have happened
)

// The reasons of an [Error], one word for events.
const (
	ReasonRefused   = "refused"
	ReasonBusy      = "busy"
	ReasonHeld      = "held"
	ReasonNoAnswer  = "no_answer"  // timeout, cut, redirect, server error
	ReasonBadAnswer = "bad_answer" // a success that cannot be read or lacks what it must hold
)

// FateOf is the fate that an error carries: Success for nil, Unknown for an error that is not an [Error].
func FateOf(err error) Fate {
	if err == nil {
		return Success
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Fate
	}
	return Unknown
}

// Reading is what a client found in the body of an answer.
type Reading struct {
	Complete bool      // the body holds everything a success must hold
	Envelope *Envelope // nil for a service without one
	Message  string    // the upstream's words about a failure
	Fields   map[string][]string
}

// Envelope is the verdict that the email service repeats in the body of every answer.
type Envelope struct {
	Error      bool
	StatusCode int // 0: the body names none
}

// verdict is the fate of an answered call and the status that decided it.
type verdict struct {
	fate   Fate
	reason string
	status int
}

// judge returns the fate of a call that was answered with status and a body that reads as r. Where status and envelope disagree,
// the worse counts. Not shown by the upstreams; assumed.
func judge(status int, r Reading) verdict {
	v := verdict{fate: fateOfStatus(status), status: status}
	failed := false
	if e := r.Envelope; e != nil {
		if f := fateOfStatus(e.StatusCode); e.StatusCode != 0 && f.worse(v.fate) {
			v.fate, v.status = f, e.StatusCode
		}
		failed = e.Error
	}
	switch {
	case v.fate == Success && (failed || !r.Complete):
		v.fate, v.reason = Unknown, ReasonBadAnswer
	case v.fate == Unknown:
		v.reason = ReasonNoAnswer
	case v.fate != Success:
		v.reason = string(v.fate) // the reasons of these three carry the fate's name
	}
	return v
}

func fateOfStatus(status int) Fate {
	switch status {
	case http.StatusRequestTimeout, http.StatusMisdirectedRequest, // it came over a connection meant for another host
		http.StatusTooEarly, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return Busy
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden,
		http.StatusNotFound, http.StatusMethodNotAllowed, // the two of an address with a path too much, or one too few
		http.StatusProxyAuthRequired:
		return Held
	}
	switch status / 100 {
	case 2:
		return Success
	case 4:
		return Refused
	}
	return Unknown
}

func (f Fate) worse(than Fate) bool { return f.rank() > than.rank() }

func (f Fate) rank() int {
	switch f {
	case Success:
		return 0
	case Busy:
		return 1
	case Refused:
		return 2
	case Held:
		return 3
	}
	return 4
}
