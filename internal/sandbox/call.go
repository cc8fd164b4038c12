package sandbox

import (
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// operation is one thing the upstreams can be asked to do.
type operation int

const (
	opEnroll operation = iota
	opTransactions
	opSend
	opLogs
	opAccount
	operations
)

var operationNames = [operations]string{"enroll", "transactions", "send", "logs", "account"}

func (op operation) String() string { return operationNames[op] }
func (op operation) mail() bool     { return op >= opSend }
func (op operation) post() bool     { return op == opEnroll || op == opSend }

// bodyLimit is the maximum size of a request's body in bytes. The documents show no limit; this one protects the memory.
const bodyLimit = 64 << 20

// call is one request; its body is read completely before any work is done.
type call struct {
	r    *http.Request
	body string // valid JSON in valid UTF-8 when the work begins; "" for a GET
	base string
	*Settings
	short *Fault // the fault by which a submission is accepted in part, or nil
}

// answer is the response to a call.
type answer struct {
	status int
	header map[string]string
	body   []byte
}

// serve handles every upstream call: read, count, perhaps fail, admit, do the work, perhaps fail again, answer.
func (s *Sandbox) serve(w http.ResponseWriter, r *http.Request, op operation, work func(*Sandbox, *call) answer) {
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit+1))
	if err != nil {
		return // the caller disconnected before the request was complete
	}
	seen := s.journal.begin(op, r, body)
	c := &call{r: r, base: s.base(r), Settings: s.settings.Load()}

	fault := s.faults.pick(op, body, r.URL.RawQuery)
	defer s.journal.end(seen, fault)
	if fault != nil {
		s.logf("fault fired: %s on %s", fault.Kind, op)
		if s.failBefore(w, op, fault) {
			return
		}
		if fault.Kind == Short {
			c.short = fault
		}
	}
	s.wait(time.Duration(c.Latency), nil)

	a, admitted := s.admit(op, r, body)
	if admitted {
		if op.post() {
			c.body = strings.ToValidUTF8(string(body), string(utf8.RuneError))
		}
		a = work(s, c)
	}
	s.journal.worked(seen, a)
	if fault != nil && s.failAfter(w, r, op, fault, a) {
		return
	}
	a.write(w)
}

// admit checks what every operation requires: method, credentials, content type, a JSON object as the body.
func (s *Sandbox) admit(op operation, r *http.Request, body []byte) (answer, bool) {
	want := http.MethodGet
	if op.post() {
		want = http.MethodPost
	}
	if r.Method != want {
		a := refuse(op, http.StatusMethodNotAllowed, "the method is not allowed here")
		a.header = map[string]string{"Allow": want}
		return a, false
	}
	if !s.authenticated(op, r) {
		return refuse(op, http.StatusUnauthorized, "Unauthenticated."), false
	}
	if !op.post() {
		return answer{}, true
	}
	if !isJSON(r.Header.Get("Content-Type")) {
		return refuse(op, http.StatusUnsupportedMediaType, "Content-Type must be application/json"), false
	}
	if len(body) > bodyLimit {
		return refuse(op, http.StatusRequestEntityTooLarge, "the body is too large"), false
	}
	if start := bytes.TrimLeft(body, " \t\r\n"); !json.Valid(body) || start[0] != '{' {
		return refuse(op, http.StatusBadRequest, "the body is not a JSON object"), false
	}
	return answer{}, true
}

// authenticated reports whether the call carries the credential of its service.
func (s *Sandbox) authenticated(op operation, r *http.Request) bool {
	if op.mail() {
		return credentialMatches(r.Header.Get("X-API-Key"), s.o.MailKey)
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && credentialMatches(strings.TrimSpace(token), s.o.MandateToken)
}

func credentialMatches(given, want string) bool {
	if want == "" {
		return given != ""
	}
	return subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}

func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == "application/json"
}

// wait sleeps for d, or until the sandbox closes or leave is closed.
func (s *Sandbox) wait(d time.Duration, leave <-chan struct{}) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-leave:
	case <-s.running.Done():
	}
}

func (a answer) write(w http.ResponseWriter) {
	h := w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(a.body))}
	for name, value := range a.header {
		h.Set(name, value)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // fails only when the caller is gone
}

// refuse returns an error answer in the format of the service that was called.
// The upstreams show no error answers; assumed, see docs/why/adr/0004-sandbox-assumptions.md.
func refuse(op operation, status int, text string) answer {
	if op.mail() {
		return refusal(status, text)
	}
	return answer{status: status, body: object("message", text)}
}

var jsonType = []string{"application/json"}
