package e2e

import (
	"strings"
	"sync"
)

// lines keeps the last lines that a program logged, to show them when a test fails.
type lines struct {
	mu   sync.Mutex
	last []string
}

const keptLines = 60

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last = append(l.last, string(p)); len(l.last) > keptLines {
		l.last = l.last[1:]
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, "")
}

// output keeps everything that a program writes.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *output) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *output) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// count is how many lines hold all of the words.
func (r *output) count(words ...string) (n int) {
next:
	for line := range strings.Lines(r.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		n++
	}
	return n
}
