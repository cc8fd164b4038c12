package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
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

// finalOf are the final events of a request, whatever they say.
func (b *bubble) finalOf(operation, id string) (final []event) {
	b.t.Helper()
	for _, e := range b.events(operation + ".*." + id) {
		switch strings.Split(e.Subject, ".")[2] {
		case "succeeded", "accepted", "partial", "failed", "uncertain":
			final = append(final, e)
		}
	}
	return final
}

// ended waits for a final event of a request.
func (b *bubble) ended(operation, id string) func() bool {
	return func() bool { return len(b.finalOf(operation, id)) > 0 }
}

// wantEnd wants one final event of a request, in that state.
func (b *bubble) wantEnd(operation, state, id string) event {
	b.t.Helper()
	final := b.finalOf(operation, id)
	if len(final) != 1 || !strings.HasPrefix(final[0].Subject, operation+"."+state+".") {
		all := ""
		for _, e := range final {
			all += fmt.Sprintf("%s %.600s\n", e.Subject, e.Raw)
		}
		b.t.Fatalf("%s has %d final events, want %s once:\n%s%s", id, len(final), state, all, b.logs)
	}
	return final[0]
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
