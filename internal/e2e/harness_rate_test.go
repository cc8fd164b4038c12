package e2e

import (
	"slices"
	"testing"
	"time"
)

// meter says when the upstream was called.
type meter struct {
	*upstream
	began time.Time
}

// newMeter counts calls from now on.
func newMeter(u *upstream) *meter { return &meter{u, time.Now()} }

// at are the calls until now, since the meter began.
func (m *meter) at() (all []time.Duration) {
	for _, x := range m.exchanges(func(x exchange) bool { return !x.at.Before(m.began) }) {
		all = append(all, x.at.Sub(m.began))
	}
	return all
}

// between counts the calls from one time to another.
func (m *meter) between(from, to time.Duration) (n int) {
	for _, at := range m.at() {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// most is the largest number of calls in any window of a length.
func (m *meter) most(window time.Duration) (most int) {
	all := m.at()
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
