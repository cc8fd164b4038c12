// Package inshort is how a test does less with -short, and notes that it did: .ci/run runs every test with -short under the
// race detector, and again without -short the tests that skipped or asked here.
package inshort

import "testing"

// Choose returns how long or how much a test does: less with -short.
func Choose[T any](t testing.TB, all, less T) T {
	t.Helper()
	if Asked(t) {
		return less
	}
	return all
}

// Asked reports whether the test is to do less, as -short asks.
func Asked(t testing.TB) bool {
	t.Helper()
	if !testing.Short() { //nolint:forbidigo // this is what notes it
		return false
	}
	t.Attr("short", "less")
	return true
}
