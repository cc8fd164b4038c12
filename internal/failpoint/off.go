//go:build !failpoints

package failpoint

// Here does nothing.
func Here(string, ...string) {}
