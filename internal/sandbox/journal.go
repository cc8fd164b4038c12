package sandbox

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	callsKept    = 200     // the last ones
	contentsKept = 8 << 10 // bytes of what each said, and of its answer
)

// journal remembers the last calls and counts all, for the pages.
type journal struct {
	mu     sync.Mutex
	last   []*received // the newest at the end
	counts [operations]tally
}

// tally counts calls, and what became of them. One that was accepted and then failed is both.
type tally struct{ Calls, Accepted, Refused, Failed int }

// received is one call.
type received struct {
	at     time.Time
	op     operation
	asked  string // its body, or its query
	fault  string // the kind of the fault that it met
	work   int    // the status of the work; 0 if it was not done, or not yet
	status int    // of the answer; 0 if there is no answer, or not yet
	answer string
	over   bool
}

// begin notes a call that has arrived.
func (j *journal) begin(op operation, r *http.Request, body []byte) *received {
	c := &received{at: time.Now(), op: op, asked: r.URL.RawQuery}
	if op.post() {
		c.asked = string(body[:min(len(body), contentsKept)])
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counts[op].Calls++
	j.last = append(j.last, c)
	j.last = j.last[max(0, len(j.last)-callsKept):]
	return c
}

// worked notes the result of a call's work.
func (j *journal) worked(c *received, a answer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.work, c.status = a.status, a.status
	c.answer = string(a.body[:min(len(a.body), contentsKept)])
	if a.status < 300 {
		j.counts[c.op].Accepted++
	} else {
		j.counts[c.op].Refused++
	}
}

// end notes that a call is over, and what the fault that it met made of it.
func (j *journal) end(c *received, fault *Fault) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c.over = true; fault == nil {
		return
	}
	c.fault = fault.Kind
	if fault.Kind == Delay || fault.Kind == DelayAnswer || fault.Kind == Short { // answered as it was done
		return
	}
	j.counts[c.op].Failed++
	if c.status, c.answer = 0, ""; fault.Kind == Status || fault.Kind == AcceptStatus {
		c.status = fault.answer(c.op).status
	}
}

// tallies are the counts by operation.
func (j *journal) tallies() [operations]tally {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.counts
}

// callView is a call as the pages show it.
type callView struct {
	At, Operation, Name, What string
	Class                     string // of style.css: good, bad, doubt, wait
	Asked, Answer             string
}

// views are the newest calls, newest first, at most n.
func (j *journal) views(n int, zone *time.Location, contents bool) (views []callView) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := len(j.last) - 1; i >= 0 && len(views) < n; i-- {
		c := j.last[i]
		v := callView{At: c.at.In(zone).Format("15:04:05.000"), Operation: c.op.String(), Name: nameOf(c.asked)}
		v.Class, v.What = c.fate()
		if contents {
			v.Asked, v.Answer = readable(c.asked), readable(c.answer)
		}
		views = append(views, v)
	}
	return views
}

// fate is what became of a call: the class of its mark, and in words.
func (c *received) fate() (class, words string) {
	switch {
	case !c.over:
		return "wait", "under way"
	case c.fault != "" && faultWords[c.fault] != "":
		words = faultWords[c.fault]
		if c.status > 0 && (c.fault == Status || c.fault == AcceptStatus) {
			words += " " + http.StatusText(c.status)
		}
		return "doubt", words
	case c.work >= 300:
		return "bad", "refused: " + http.StatusText(c.work)
	}
	return "good", "accepted"
}

// faultWords say what a fault did to a call.
var faultWords = map[string]string{
	Delay: "done late", DelayAnswer: "done, answered late", Status: "not done, answered", Cut: "not done, connection cut",
	AcceptCut: "done, then the connection was cut", AcceptStatus: "done, but answered", Truncate: "done, half of the answer was sent",
	Garbage: "done, the answer was unreadable", AcceptEmpty: "done, the answer lacked what matters",
	Short: "some of the recipients were accepted",
}

// nameOf is what a call is about: its order number or subject, or its query.
func nameOf(asked string) string {
	var named struct {
		OrderNumber string `json:"order_number"`
		Subject     string `json:"subject"`
	}
	if !strings.HasPrefix(asked, "{") {
		return asked
	}
	_ = json.Unmarshal([]byte(asked), &named) // a request that cannot be read, or was cut, has no name
	return named.OrderNumber + named.Subject
}

// credentials are the members whose values are not shown.
var credentials = regexp.MustCompile(`"(portal_key|checksum)"\s*:\s*"(?:[^"\\]|\\.)*"`)

// readable is JSON in lines, without credentials; anything else stays.
func readable(text string) string {
	var b bytes.Buffer
	if json.Indent(&b, []byte(text), "", "  ") == nil {
		text = b.String()
	}
	text = credentials.ReplaceAllString(text, `"$1": "…"`)
	if len(text) >= contentsKept {
		text += "\n…"
	}
	return text
}
