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
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"errand/internal/wire"
	"errand/pkg/messages"
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
	StatusCode int // 0 means that the body names no status
}

// verdict is the fate of an answered call and the status that decided it.
type verdict struct {
	fate   Fate
	reason messages.Reason
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
		v.fate, v.reason = Unknown, messages.ReasonBadAnswer
	case v.fate == Unknown:
		v.reason = messages.ReasonNoAnswer
	case v.fate != Success:
		v.reason = messages.Reason(v.fate) // the reasons of these three carry the fate's name
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

// fates are all, from best to worst.
var fates = []Fate{Success, Busy, Refused, Held, Unknown}

func (f Fate) worse(than Fate) bool { return slices.Index(fates, f) > slices.Index(fates, than) }

// Error is a call that did not succeed. It is always returned as *Error. However it is printed, it shows the operation, the fate and the
// status, and never the upstream's words, a payer's data, a secret or an address.
type Error struct {
	Operation  string
	Fate       Fate
	Reason     messages.Reason     // refused, busy, held, no_answer or bad_answer
	Status     int                 // the status that decided, of HTTP or of the envelope; 0 without an answer
	Message    string              // the upstream's words, or ours where it has none; secrets removed, at most 500 characters
	Fields     map[string][]string // field -> messages, in the upstream's words; secrets removed
	RetryAfter time.Duration       // how long the upstream asks to wait, 0 to 24 h; only for Busy and Held
	Err        error               // the cause in our own words; context and system errors can be found in it
}

// Refusal is the error of a call that was not made because field breaks rule.
func Refusal(operation, field, rule string) *Error {
	return &Error{
		Operation: operation,
		Fate:      Refused,
		Reason:    messages.ReasonRefused,
		Message:   wire.Cut(field + ": " + rule),
		Fields:    map[string][]string{field: {wire.Cut(rule)}},
		Err:       errNotSent,
	}
}

// Error says what is known of the call without a word of the upstream.
func (e Error) Error() string {
	fate := string(e.Fate)
	if e.Fate == Busy && e.Status == 0 {
		fate = "unreachable" // it said nothing: nobody may listen
	}
	text := e.Operation + ": " + fate
	if string(e.Reason) != string(e.Fate) {
		text += " (" + string(e.Reason) + ")"
	}
	if e.Status != 0 {
		text += ": status " + strconv.Itoa(e.Status)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e Error) Unwrap() error { return e.Err }

// Format prints Error() for every verb.
func (e Error) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, e.Error()) }

// MarshalText returns Error(), so that no encoder or logger looks at the fields.
func (e Error) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// LogValue returns Error().
func (e Error) LogValue() slog.Value { return slog.StringValue(e.Error()) }

// Without is the same failure with texts taken out of the upstream's words, in any case, as secrets are. Texts of less than four
// characters stay, for they are parts of other words.
func (e Error) Without(texts ...string) *Error {
	var parts []string
	for _, text := range texts {
		if len(text) >= 4 {
			parts = append(parts, regexp.QuoteMeta(text))
		}
	}
	if len(parts) == 0 {
		return &e
	}
	hidden := regexp.MustCompile("(?i)" + strings.Join(parts, "|")) // quoted, so it compiles
	e.Message = hidden.ReplaceAllString(e.Message, redacted)
	fields := e.Fields
	e.Fields = make(map[string][]string, len(fields))
	for name, messages := range fields {
		name = hidden.ReplaceAllString(name, redacted)
		for _, message := range messages {
			e.Fields[name] = append(e.Fields[name], hidden.ReplaceAllString(message, redacted))
		}
	}
	return &e
}

var (
	errNotSent      = errors.New("not sent, the request is not valid")
	errNoHost       = errors.New("host name not found")
	errCertificate  = errors.New("certificate not trusted")
	errHandshake    = errors.New("tls handshake failed")
	errTimeout      = errors.New("timeout")
	errLate         = errors.New("deadline passed before the call was made")
	errNoConnection = errors.New("no connection")
	errCut          = errors.New("connection cut before the answer was complete")
	errEarly        = errors.New("answer came before the call, it belongs to another one")
	errTooLong      = errors.New("answer too long")
	errEncoding     = errors.New("answer in an unknown encoding")
	errBadAnswer    = errors.New("answer unreadable or incomplete")
)

// cause puts a transport error into our own words: its text may quote the answer or the address.
func cause(err error, connected bool) error {
	var (
		errno       syscall.Errno
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		alert       tls.AlertError
		network     net.Error
	)
	switch {
	case errors.Is(err, errEarly):
		return errEarly
	case errors.Is(err, errLate):
		return errLate
	case errors.As(err, &dns):
		return errNoHost
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.As(err, &certificate):
		return errCertificate
	case errors.As(err, &record), errors.As(err, &alert):
		return errHandshake
	case errors.As(err, &errno):
		return errno
	case errors.As(err, &network) && network.Timeout():
		return errTimeout
	case connected:
		return errCut
	}
	return errNoConnection
}

// unanswered is the error of a call that got no complete answer. Without a connection nothing can have happened upstream.
func unanswered(operation string, connected bool, status int, err error) *Error {
	e := &Error{Operation: operation, Fate: Unknown, Reason: messages.ReasonNoAnswer, Status: status, Err: cause(err, connected)}
	if !connected {
		e.Fate, e.Reason = Busy, messages.ReasonBusy
	}
	e.Message = e.Err.Error()
	return e
}

// answered is the error of a call whose answer was judged as v; unreadable says why the body could not be read, if it could not.
func (u *Upstream) answered(call Request, v verdict, r Reading, header http.Header, unreadable error) *Error {
	e := &Error{Operation: call.Operation, Fate: v.fate, Reason: v.reason, Status: v.status, Err: unreadable}
	if e.Reason == messages.ReasonBadAnswer && e.Err == nil {
		e.Err = errBadAnswer
	}
	if v.fate == Busy || v.fate == Held {
		e.RetryAfter = retryAfter(header, v.status, time.Now())
	}
	if len(r.Fields) > 0 {
		e.Fields = make(map[string][]string, len(r.Fields))
	}
	var said []string
	known := u.secrets.Load().with(call.Redact)
	for _, name := range slices.Sorted(maps.Keys(r.Fields)) {
		field := wire.Cut(known.cleanText(name))
		for _, message := range r.Fields[name] {
			message = wire.Cut(known.cleanText(message))
			e.Fields[field] = append(e.Fields[field], message)
			said = append(said, field+": "+message)
		}
	}
	e.Message = wire.Cut(known.cleanText(r.Message))
	switch {
	case e.Message != "":
	case len(said) > 0:
		e.Message = wire.Cut(strings.Join(said, "; "))
	case e.Err != nil:
		e.Message = e.Err.Error()
	default:
		e.Message = "status " + strconv.Itoa(v.status) + " " + http.StatusText(v.status)
	}
	return e
}
