package sandbox

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Kinds of faults. "Done" means that the work is done and counted; only the answer differs.
const (
	Delay        = "delay"         // waits, then does the work, even when the caller is gone by then
	DelayAnswer  = "delay_answer"  // done, then waits before it answers
	Status       = "status"        // nothing done, answers the status
	Cut          = "cut"           // nothing done, the connection is reset
	AcceptCut    = "accept_cut"    // done, the connection is reset without an answer
	AcceptStatus = "accept_status" // done, answers the status
	Truncate     = "truncate"      // done, half of the answer's body under its full Content-Length
	Garbage      = "garbage"       // done, answers 200 with an unreadable body
	AcceptEmpty  = "accept_empty"  // done, an answer without url, total_recipient or data
	Short        = "short"         // a submission is accepted for its first recipients only
)

var kinds = []string{Delay, DelayAnswer, Status, Cut, AcceptCut, AcceptStatus, Truncate, Garbage, AcceptEmpty, Short}

// Fault is a rule that makes calls fail. The first one that applies to a call fires.
type Fault struct {
	Operation string  `json:"operation"` // enroll, transactions, send, logs, account, or * for any
	Kind      string  `json:"kind"`
	Skip      int     `json:"skip,omitempty"`  // calls that pass before the first one fails
	Times     int     `json:"times"`           // how often it fires; 0 is until cleared
	Share     float64 `json:"share,omitempty"` // chance that it fires on a call; 0 is always
	Seed      uint64  `json:"seed,omitempty"`  // of that chance; 0 is the sandbox's
	Match     string  `json:"match,omitempty"` // only calls whose body or query string holds this text

	Delay   Duration          `json:"delay,omitzero"`    // delay, delay_answer
	Status  int               `json:"status,omitempty"`  // status, accept_status; 0 is 500
	Body    json.RawMessage   `json:"body,omitempty"`    // status, accept_status; a JSON string is sent unquoted
	Headers map[string]string `json:"headers,omitempty"` // status, accept_status
	Accept  *int              `json:"accept,omitempty"`  // short: recipients accepted; nil is half

	Seen  int `json:"seen"`  // calls that it applied to
	Fired int `json:"fired"` // calls that it made fail

	draws *rand.Rand
}

// accepted returns how many of n recipients a short submission accepts.
func (f *Fault) accepted(n int) int {
	if f.Accept == nil {
		return n / 2
	}
	return min(n, *f.Accept)
}

// faults are the current rules, in the order they were added.
type faults struct {
	mu    sync.Mutex
	rules []*Fault
	fired map[string]int // by kind, including cleared rules
}

// AddFault appends a rule. The error names the field that is wrong.
func (s *Sandbox) AddFault(f Fault) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("sandbox: fault: %w", err)
	}
	if f.Seed == 0 {
		f.Seed = s.o.Seed
	}
	f.draws = rand.New(rand.NewPCG(f.Seed, 1))
	f.Headers, f.Body, f.Seen, f.Fired = maps.Clone(f.Headers), bytes.Clone(f.Body), 0, 0
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.rules = append(s.faults.rules, &f)
	return nil
}

func (f *Fault) check() error {
	switch {
	case f.Operation != "*" && !slices.Contains(operationNames[:], f.Operation):
		return fmt.Errorf("operation is %q, it must be * or one of %s", f.Operation, strings.Join(operationNames[:], ", "))
	case !slices.Contains(kinds, f.Kind):
		return fmt.Errorf("kind is %q, it must be one of %s", f.Kind, strings.Join(kinds, ", "))
	case f.Times < 0 || f.Skip < 0:
		return fmt.Errorf("times and skip must not be negative")
	case f.Share < 0 || f.Share > 1:
		return fmt.Errorf("share is %v, it must be between 0 and 1", f.Share)
	case f.Delay < 0 || (f.Delay == 0) == (f.Kind == Delay || f.Kind == DelayAnswer):
		return fmt.Errorf("delay must be positive for the kinds delay and delay_answer, and left out for the others")
	case f.Status != 0 && (f.Status < 200 || f.Status > 599):
		return fmt.Errorf("status is %d, it must be between 200 and 599", f.Status)
	case f.Accept != nil && *f.Accept < 0:
		return fmt.Errorf("accept must not be negative")
	case f.Kind == Short && f.Operation != "send":
		return fmt.Errorf("the kind short is for the operation send only")
	}
	return nil
}

// Faults returns the current rules with their counts.
func (s *Sandbox) Faults() []Fault {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	rules := make([]Fault, len(s.faults.rules))
	for i, f := range s.faults.rules {
		rules[i] = *f
	}
	return rules
}

// ClearFaults removes the rules of an operation, or with * every rule. The counts by kind stay.
func (s *Sandbox) ClearFaults(operation string) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.rules = slices.DeleteFunc(s.faults.rules, func(f *Fault) bool { return operation == "*" || f.Operation == operation })
}

// counts returns how often each kind fired.
func (l *faults) counts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.fired)
}

// pick returns the first rule that applies to a call, or nil.
func (l *faults) pick(op operation, body []byte, query string) *Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.rules {
		if f.applies(op, body, query) {
			f.Fired++
			l.fired[f.Kind]++
			fired := *f
			return &fired
		}
	}
	return nil
}

// applies counts the call and reports whether the rule fires on it.
func (f *Fault) applies(op operation, body []byte, query string) bool {
	if f.Operation != "*" && f.Operation != op.String() || f.Times > 0 && f.Fired >= f.Times ||
		f.Match != "" && !bytes.Contains(body, []byte(f.Match)) && !strings.Contains(query, f.Match) && !holds(body, f.Match) {
		return false
	}
	f.Seen++
	return f.Seen > f.Skip && (f.Share == 0 || f.draws.Float64() < f.Share)
}

// holds reports whether a JSON value has a string that contains text, however it is escaped, or the number that text is: 100.5
// is 100.50.
func holds(raw json.RawMessage, text string) bool {
	var (
		fields map[string]json.RawMessage
		list   []json.RawMessage
		value  string
	)
	has := func(part json.RawMessage) bool { return holds(part, text) }
	switch {
	case json.Unmarshal(raw, &value) == nil:
		return strings.Contains(value, text)
	case json.Unmarshal(raw, &fields) == nil:
		return slices.ContainsFunc(slices.Collect(maps.Values(fields)), has)
	case json.Unmarshal(raw, &list) == nil:
		return slices.ContainsFunc(list, has)
	}
	number, err := strconv.ParseFloat(string(raw), 64)
	want, unwanted := strconv.ParseFloat(text, 64)
	return err == nil && unwanted == nil && number == want
}

// failBefore does the fault's part before the work; true means that the call ends there, with nothing done.
func (s *Sandbox) failBefore(w http.ResponseWriter, op operation, f *Fault) bool {
	switch f.Kind {
	case Delay:
		s.wait(time.Duration(f.Delay), nil)
	case Status:
		f.answer(op).write(w)
		return true
	case Cut:
		cut(w)
		return true
	}
	return false
}

// failAfter does the fault's part after the work; true means that the call was answered or cut.
func (s *Sandbox) failAfter(w http.ResponseWriter, r *http.Request, op operation, f *Fault, a answer) bool {
	switch f.Kind {
	case DelayAnswer:
		s.wait(time.Duration(f.Delay), r.Context().Done())
		return false
	case AcceptCut:
		cut(w)
	case AcceptStatus:
		f.answer(op).write(w)
	case Truncate:
		w.Header()["Content-Type"] = jsonType
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body[:len(a.body)/2]) // the server closes the connection because the other half is missing
	case Garbage:
		answer{status: http.StatusOK, body: []byte(`{"url":"http://sandbox.test/<html>`)}.write(w)
	case AcceptEmpty:
		answer{status: a.status, body: withoutEssentials(op, a.body)}.write(w)
	default:
		return false
	}
	return true
}

// answer has the status, headers and body that the rule names.
func (f *Fault) answer(op operation) answer {
	status := cmp.Or(f.Status, http.StatusInternalServerError)
	a := refuse(op, status, http.StatusText(status))
	var text string
	switch {
	case json.Unmarshal(f.Body, &text) == nil:
		a.body = []byte(text)
	case len(f.Body) > 0:
		a.body = f.Body
	}
	a.header = f.Headers
	return a
}

// withoutEssentials removes from an answer what a client needs.
func withoutEssentials(op operation, body []byte) []byte {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(body, &fields) // every answer is an object
	delete(fields, "url")
	delete(fields, "data")
	if op.mail() {
		fields["data"] = json.RawMessage(`{}`)
	}
	body, _ = json.Marshal(fields) // raw values of a parsed object marshal
	return body
}

// cut resets the connection: the caller reads "connection reset" over TCP, and the end of the stream over anything else.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // makes net/http close the connection without logging
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // Close sends a reset; if this fails, it is an ordinary close
	}
	_ = conn.Close()
}
