package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// zone is that of the e-mandate service's dates.
var zone = time.FixedZone("UTC+8", 8*60*60)

// upstreamTime is a time as the e-mandate service writes it.
func upstreamTime(t time.Time) string {
	return t.In(zone).Format(time.DateTime)
}

// callLog notes every call to the upstream, in the order in which they came.
type callLog struct {
	answer func(c upstreamCall, before []upstreamCall) int // a status instead of the upstream's own answer, or 0

	mu  sync.Mutex
	all []upstreamCall
}

type upstreamCall struct {
	operation string // enroll, list, send, or read
	at        time.Time
	body      map[string]any
}

// watch notes the calls from now on.
func (b *bubble) watch() *callLog {
	l := &callLog{}
	b.intercept = l.note
	return l
}

// of are the calls of an operation.
func (l *callLog) of(operation string) (calls []upstreamCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return only(operation, l.all)
}

func (l *callLog) note(r *http.Request) int {
	c := upstreamCall{operation: "read", at: time.Now()}
	switch {
	case strings.HasSuffix(r.URL.Path, "/transactions"):
		c.operation = "list"
	case strings.HasSuffix(r.URL.Path, "/mandates"):
		c.operation = "enroll"
	case strings.HasSuffix(r.URL.Path, "/messages"):
		c.operation = "send"
	}
	if r.Method == http.MethodPost {
		data, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(data, &c.body)
		r.Body = io.NopCloser(bytes.NewReader(data))
	}
	l.mu.Lock()
	before := slices.Clip(l.all)
	l.all = append(l.all, c)
	l.mu.Unlock()
	if l.answer == nil {
		return 0
	}
	return l.answer(c, before)
}

func only(operation string, all []upstreamCall) (calls []upstreamCall) {
	for _, c := range all {
		if c.operation == operation {
			calls = append(calls, c)
		}
	}
	return calls
}
