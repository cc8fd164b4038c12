package e2e

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// meter notes when an upstream is called.
type meter struct {
	mu    sync.Mutex
	began time.Time
	at    []time.Duration // of each call, since began
	kinds map[string]int  // calls by method
}

func newMeter() *meter { return &meter{began: time.Now(), kinds: map[string]int{}} }

// count notes a call and gives the number that it has among those of its method, from 1.
func (m *meter) count(r *http.Request) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = append(m.at, time.Since(m.began))
	m.kinds[r.Method]++
	return m.kinds[r.Method]
}

// calls are all until now, in order, and how many of them were of a method.
func (m *meter) calls(method string) (at []time.Duration, of int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(slices.Values(m.at)), m.kinds[method]
}

// between counts the calls from one time to another.
func (m *meter) between(from, to time.Duration) (n int) {
	all, _ := m.calls("")
	for _, at := range all {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// most is the largest number of calls in any window of a length.
func (m *meter) most(window time.Duration) (most int) {
	all, _ := m.calls("")
	for i, first := range all {
		end, _ := slices.BinarySearch(all, first+window)
		most = max(most, end-i)
	}
	return most
}

// burst is what the documents say may come on top of a rate: a second's calls and one.
func burst(perSecond float64) int { return 1 + int(perSecond) }

// wantWithin fails the test when a window has more calls than the rate and its burst.
func (m *meter) wantWithin(t *testing.T, perSecond float64, windows ...time.Duration) {
	t.Helper()
	for _, window := range windows {
		if got, want := m.most(window), int(perSecond*window.Seconds())+burst(perSecond); got > want {
			t.Errorf("%d calls in %v, want at most %d", got, window, want)
		}
	}
}

// wantUsed fails the test when less than 95 % of the rate was used.
func (m *meter) wantUsed(t *testing.T, perSecond float64, from, to time.Duration) {
	t.Helper()
	got, want := float64(m.between(from, to)), perSecond*(to-from).Seconds()
	if t.Logf("%.1f %% of the rate used from %v to %v", 100*got/want, from, to); got < 0.95*want {
		t.Errorf("%v calls from %v to %v, want %v", got, from, to, want)
	}
}
