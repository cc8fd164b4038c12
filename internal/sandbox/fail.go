package sandbox

import (
	"cmp"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"strconv"
	"time"
)

// failBefore does the fault's part before the work; true means that the call ends there, with nothing done.
func (s *Sandbox) failBefore(w http.ResponseWriter, r *http.Request, op operation, f *Fault) bool {
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
		answer{status: a.status, body: withoutEssentials(a.body)}.write(w)
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
func withoutEssentials(body []byte) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return []byte("{}")
	}
	maps.DeleteFunc(fields, func(name string, _ json.RawMessage) bool {
		return name == "url" || name == "data" && fields["links"] != nil
	})
	if fields["data"] != nil {
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
