package e2e

import (
	"strings"
	"sync"
)

// lines keeps the last lines that a program logged, to show them when a story fails.
type lines struct {
	mu   sync.Mutex
	last []string
}

const keep = 60

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last = append(l.last, string(p)); len(l.last) > keep {
		l.last = l.last[1:]
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, "")
}
